-- Places that users name: photos that this service fetches for a job before a node may have it, and where results are copied to.

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

-- Results that are copied to where their owner wants them.

CREATE TABLE delivery (
    job          TEXT   PRIMARY KEY REFERENCES job (id),
    address      TEXT   NOT NULL,
    state        TEXT   NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed', 'dropped')),
    done         TEXT   NOT NULL,       -- JSON: the SHA-256 of each file that is there, by its path
    because      TEXT   NOT NULL,       -- what the last try met; else empty
    server       TEXT   NOT NULL,       -- who copies them, until its turn ends
    turn_ends_ms BIGINT NOT NULL,
    tries        BIGINT NOT NULL        -- in a row that came to nothing
);
CREATE INDEX delivery_open ON delivery (turn_ends_ms) WHERE state = 'waiting';
