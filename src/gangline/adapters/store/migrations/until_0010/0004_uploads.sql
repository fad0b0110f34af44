-- Uploads in parts that were begun and are no object that anybody asks about again. A row is there before the store is asked.
CREATE TABLE upload (
    key     TEXT   PRIMARY KEY,     -- of the object that it is to become
    attempt TEXT   NOT NULL,        -- whose it is; empty: handed in by a user
    begun   TEXT   NOT NULL,        -- the store's name for it; empty: it is being begun
    bytes   BIGINT NOT NULL,
    sha256  TEXT   NOT NULL,
    parts   TEXT   NOT NULL,        -- JSON: the SHA-256 of each
    made_ms BIGINT NOT NULL
);
CREATE INDEX upload_attempt ON upload (attempt, made_ms);

-- 1: the object store holds nothing of it that nobody refers to.
ALTER TABLE attempt ADD COLUMN swept BIGINT NOT NULL DEFAULT 0;
CREATE INDEX attempt_to_sweep ON attempt (ended_ms) WHERE swept = 0 AND state <> 'live';

CREATE INDEX checkpoint_unverified ON checkpoint (committed_ms) WHERE verified = 0 AND state = 'committed';
