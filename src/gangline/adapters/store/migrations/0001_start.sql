-- Times are milliseconds UTC, money is micro-dollars.

CREATE TABLE token (
    hash       TEXT   PRIMARY KEY,      -- SHA-256 of the token; the token itself is nowhere
    role       TEXT   NOT NULL CHECK (role IN ('user', 'join', 'node')),
    project    TEXT   NOT NULL,
    node       TEXT,
    made_ms    BIGINT NOT NULL
);

CREATE TABLE node (
    id                       TEXT   PRIMARY KEY,
    machine                  TEXT   NOT NULL,   -- the same for every node that ever ran on it
    name                     TEXT   NOT NULL,
    pool                     TEXT   NOT NULL,
    state                    TEXT   NOT NULL CHECK (state IN ('ready', 'draining', 'gone')),
    slots                    BIGINT NOT NULL,
    capabilities             TEXT   NOT NULL,   -- JSON
    price_micro_usd_per_hour BIGINT NOT NULL,
    joined_ms                BIGINT NOT NULL,
    seen_ms                  BIGINT NOT NULL
);
CREATE INDEX node_here ON node (seen_ms) WHERE state <> 'gone';

CREATE TABLE blob (
    project TEXT   NOT NULL,
    sha256  TEXT   NOT NULL,
    bytes   BIGINT NOT NULL,
    made_ms BIGINT NOT NULL,
    PRIMARY KEY (project, sha256)
);

CREATE TABLE job (
    id              TEXT   PRIMARY KEY,
    project         TEXT   NOT NULL,
    name            TEXT   NOT NULL,
    kind            TEXT   NOT NULL,
    spec            TEXT   NOT NULL,            -- JSON; never changes
    spec_hash       TEXT   NOT NULL,
    request         TEXT,                       -- the submitter's idempotency key
    state           TEXT   NOT NULL CHECK (state IN ('queued', 'running', 'paused', 'succeeded', 'failed', 'canceled')),
    because         TEXT   NOT NULL,
    steps           BIGINT NOT NULL,
    fencing         BIGINT NOT NULL,            -- of the newest attempt
    attempts_failed BIGINT NOT NULL,
    version         BIGINT NOT NULL,
    submitted_ms    BIGINT NOT NULL,
    queued_ms       BIGINT NOT NULL,
    ended_ms        BIGINT
);
CREATE UNIQUE INDEX job_request ON job (project, request) WHERE request IS NOT NULL;
CREATE INDEX job_queue ON job (fencing DESC, submitted_ms, id) WHERE state = 'queued';
CREATE INDEX job_page ON job (project, submitted_ms, id);

CREATE TABLE attempt (
    id                       TEXT   PRIMARY KEY,
    job                      TEXT   NOT NULL REFERENCES job (id),
    node                     TEXT   NOT NULL REFERENCES node (id),
    machine                  TEXT   NOT NULL,
    fencing                  BIGINT NOT NULL,
    state                    TEXT   NOT NULL CHECK (state IN ('live', 'succeeded', 'failed', 'interrupted', 'released', 'canceled')),
    because                  TEXT   NOT NULL,
    slots                    BIGINT NOT NULL,
    price_micro_usd_per_hour BIGINT NOT NULL,   -- of its slots
    from_step                BIGINT NOT NULL,   -- where it went on
    step                     BIGINT NOT NULL,   -- the last that it was heard to have taken; this and the next four: from its lease, when it ends
    loss                     DOUBLE PRECISION,
    seconds_per_step         DOUBLE PRECISION,
    training_ms              BIGINT,            -- when its first step was heard of
    beat_ms                  BIGINT NOT NULL,
    started_ms               BIGINT NOT NULL,
    ended_ms                 BIGINT,
    UNIQUE (job, fencing)
);
CREATE UNIQUE INDEX attempt_live ON attempt (job) WHERE state = 'live';

-- Hot and narrow: a heartbeat touches one of these rows and nothing else. A lease lives as long as its attempt.
CREATE TABLE lease (
    attempt          TEXT   NOT NULL REFERENCES attempt (id),
    rank             BIGINT NOT NULL,
    node             TEXT   NOT NULL,
    fencing          BIGINT NOT NULL,
    slots            BIGINT NOT NULL,
    expires_ms       BIGINT NOT NULL,
    beat_ms          BIGINT NOT NULL,
    phase            TEXT   NOT NULL,
    step             BIGINT NOT NULL,
    loss             DOUBLE PRECISION,
    seconds_per_step DOUBLE PRECISION,
    training_ms      BIGINT,
    PRIMARY KEY (attempt, rank)
);
CREATE INDEX lease_expiry ON lease (expires_ms);
CREATE INDEX lease_node ON lease (node);

CREATE TABLE checkpoint (
    id           TEXT   PRIMARY KEY,
    job          TEXT   NOT NULL REFERENCES job (id),
    attempt      TEXT   NOT NULL REFERENCES attempt (id),
    step         BIGINT NOT NULL,
    state        TEXT   NOT NULL CHECK (state IN ('committed', 'rejected', 'pruned')),
    because      TEXT   NOT NULL,
    verified     BIGINT NOT NULL,               -- 1: the store attests each SHA-256
    bytes        BIGINT NOT NULL,
    prefix       TEXT   NOT NULL,
    manifest     TEXT   NOT NULL,               -- JSON
    committed_ms BIGINT NOT NULL,
    UNIQUE (attempt, step)
);
CREATE INDEX checkpoint_newest ON checkpoint (job, step) WHERE state = 'committed';

CREATE TABLE artifact (
    job     TEXT   NOT NULL REFERENCES job (id),
    path    TEXT   NOT NULL,
    attempt TEXT   NOT NULL REFERENCES attempt (id),
    key     TEXT   NOT NULL,
    bytes   BIGINT NOT NULL,
    sha256  TEXT   NOT NULL,
    PRIMARY KEY (job, path)
);

-- What the trainer printed: blobs in the order of their first byte.
CREATE TABLE log_chunk (
    attempt    TEXT   NOT NULL REFERENCES attempt (id),
    first_byte BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    key        TEXT   NOT NULL,
    PRIMARY KEY (attempt, first_byte)
);

-- Facts, numbered for each job.
CREATE TABLE event (
    job     TEXT   NOT NULL REFERENCES job (id),
    number  BIGINT NOT NULL,
    at_ms   BIGINT NOT NULL,
    kind    TEXT   NOT NULL,
    attempt TEXT,
    node    TEXT,
    because TEXT   NOT NULL,
    PRIMARY KEY (job, number)
);

-- Money: what an attempt's time on its node cost.
CREATE TABLE ledger (
    attempt   TEXT   NOT NULL REFERENCES attempt (id),
    cause     TEXT   NOT NULL,
    job       TEXT   NOT NULL,
    node      TEXT   NOT NULL,
    from_ms   BIGINT NOT NULL,
    to_ms     BIGINT NOT NULL,
    micro_usd BIGINT NOT NULL,
    PRIMARY KEY (attempt, cause)
);
CREATE INDEX ledger_job ON ledger (job);
