-- Latents, embeddings, class images: made once by an attempt, used by the jobs of its project.
CREATE TABLE prepared (
    project  TEXT   NOT NULL,
    key      TEXT   NOT NULL,
    attempt  TEXT   NOT NULL REFERENCES attempt (id),
    subject  TEXT   NOT NULL,   -- the part of the key that follows from a spec
    numerics TEXT   NOT NULL,   -- of the nodes that may use it; empty: any
    trust    BIGINT NOT NULL,   -- of the node that made it
    prefix   TEXT   NOT NULL,
    manifest TEXT   NOT NULL,   -- JSON
    made_ms  BIGINT NOT NULL,
    used_ms  BIGINT NOT NULL,   -- to the day
    PRIMARY KEY (project, key, attempt)
);
CREATE INDEX prepared_subject ON prepared (project, subject);
CREATE INDEX prepared_attempt ON prepared (attempt);
CREATE INDEX prepared_unused ON prepared (used_ms);

-- Bases by the names that a project gave them. Jobs name content, so a name may go.
CREATE TABLE base (
    project         TEXT   NOT NULL,
    name            TEXT   NOT NULL,
    base            TEXT   NOT NULL,    -- JSON
    base_id         TEXT   NOT NULL,
    vae             TEXT   NOT NULL,    -- JSON, of a VAE that goes in the place of its own; else empty
    vae_id          TEXT   NOT NULL,
    family          TEXT   NOT NULL,
    prediction_type TEXT   NOT NULL,
    licence         TEXT   NOT NULL,
    because         TEXT   NOT NULL,    -- what family and prediction were read from
    bytes           BIGINT NOT NULL,
    made_ms         BIGINT NOT NULL,
    PRIMARY KEY (project, name)
);

-- Gated models of the hub, which this service copies into the object store for a project: nodes have no token of the hub.
CREATE TABLE mirror (
    project      TEXT   NOT NULL,
    base         TEXT   NOT NULL,       -- its id
    role         TEXT   NOT NULL CHECK (role IN ('base', 'vae')),
    repo         TEXT   NOT NULL,
    revision     TEXT   NOT NULL,       -- a commit
    state        TEXT   NOT NULL CHECK (state IN ('fetching', 'ready', 'failed')),
    because      TEXT   NOT NULL,
    files        TEXT   NOT NULL,       -- JSON: path, bytes, sha256 (none of small ones before they are here)
    bytes        BIGINT NOT NULL,
    done_files   BIGINT NOT NULL,       -- so many of them are here
    done_bytes   BIGINT NOT NULL,
    begun        TEXT   NOT NULL,       -- the upload of the next, where it goes in parts; else empty
    parts        TEXT   NOT NULL,       -- JSON: the SHA-256 of its parts that are here
    server       TEXT   NOT NULL,       -- who copies it, until its turn ends
    turn_ends_ms BIGINT NOT NULL,
    tries        BIGINT NOT NULL,       -- in a row that came to nothing
    PRIMARY KEY (project, base, role)
);
CREATE INDEX mirror_open ON mirror (turn_ends_ms) WHERE state = 'fetching';
