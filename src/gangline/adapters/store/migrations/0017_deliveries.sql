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
