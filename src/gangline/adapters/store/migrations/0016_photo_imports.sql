-- Photos that lie elsewhere, which this service fetches for a job before a node may have it.

ALTER TABLE job ADD COLUMN fetching BIGINT NOT NULL DEFAULT 0;   -- 1: its spec names places; it is whole, for good, when the photos are here
ALTER TABLE job ADD COLUMN imported BIGINT NOT NULL DEFAULT 0;   -- 1: its photos are, or were, fetched from elsewhere

CREATE TABLE photo_import (
    job          TEXT   PRIMARY KEY REFERENCES job (id),
    state        TEXT   NOT NULL CHECK (state IN ('fetching', 'ready', 'failed', 'dropped')),
    asked        TEXT   NOT NULL,       -- a hash of the spec as it was submitted
    places       TEXT   NOT NULL,       -- JSON
    done         BIGINT NOT NULL,       -- so many files were here at once
    files        BIGINT NOT NULL,       -- of so many; 0 while that is not known
    because      TEXT   NOT NULL,       -- what the last try met; else empty
    server       TEXT   NOT NULL,       -- who fetches them, until its turn ends
    turn_ends_ms BIGINT NOT NULL,
    tries        BIGINT NOT NULL        -- in a row that came to nothing
);
CREATE INDEX photo_import_open ON photo_import (turn_ends_ms) WHERE state = 'fetching';
