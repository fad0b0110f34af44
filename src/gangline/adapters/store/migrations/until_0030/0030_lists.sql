-- Jobs have an owner and labels, and each filter of a list of jobs has an index in the order of the list. A job remembers the whole request that made
-- it, and so does what else is made by a request that may be repeated.

ALTER TABLE job ADD COLUMN owner TEXT;         -- the id of the key that asked for it; NULL: nobody wrote that down
ALTER TABLE job ADD COLUMN fingerprint TEXT;   -- a hash of the request whose Idempotency-Key is in `request`

DROP INDEX job_page;
CREATE INDEX job_listed ON job (project, submitted_ms, id) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_state ON job (project, state, submitted_ms, id) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_kind ON job (project, kind, submitted_ms, id) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_owner ON job (project, owner, submitted_ms, id) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_name ON job (project, name, submitted_ms, id) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_id_end ON job (project, (substr(id, length(id) - 3))) WHERE kind <> 'sample' AND removed_ms IS NULL;
CREATE INDEX job_removed ON job (removed_ms) WHERE removed_ms IS NOT NULL;

CREATE TABLE label (
    job          TEXT   NOT NULL REFERENCES job (id),
    key          TEXT   NOT NULL,
    value        TEXT   NOT NULL,
    project      TEXT   NOT NULL,
    submitted_ms BIGINT NOT NULL,   -- when the job was, for the order of lists
    PRIMARY KEY (job, key)
);
CREATE INDEX label_value ON label (project, key, value, submitted_ms, job);
CREATE INDEX label_key ON label (project, key, submitted_ms, job);

-- What a request with an Idempotency-Key has made, if it is no job: its id or name, never the answer, which may have a secret.
CREATE TABLE request (
    project     TEXT   NOT NULL,    -- '' where a request is about no project
    endpoint    TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    fingerprint TEXT   NOT NULL,
    made        TEXT   NOT NULL,
    at_ms       BIGINT NOT NULL,
    PRIMARY KEY (project, endpoint, key)
);
CREATE INDEX request_age ON request (at_ms);
