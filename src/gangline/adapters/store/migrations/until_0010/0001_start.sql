-- Times are milliseconds UTC, money is micro-dollars.

CREATE TABLE token (
    hash       TEXT   PRIMARY KEY,      -- SHA-256 of the token; the token itself is nowhere
    role       TEXT   NOT NULL CHECK (role IN ('user', 'join', 'node')),
    project    TEXT   NOT NULL,
    node       TEXT,
    made_ms    BIGINT NOT NULL
);

-- A node that was rented is here before its worker has joined; one that joined by hand has no instance.
CREATE TABLE node (
    id                       TEXT   PRIMARY KEY,
    machine                  TEXT   NOT NULL,   -- the same for every node that ever ran on it; empty until it has joined
    name                     TEXT   NOT NULL,
    pool                     TEXT   NOT NULL,
    state                    TEXT   NOT NULL CHECK (state IN ('starting', 'ready', 'on_trial', 'draining', 'quarantined', 'gone')),
    because                  TEXT   NOT NULL,
    gpu                      TEXT   NOT NULL,   -- its class; empty where there is none
    gpu_memory_gb            DOUBLE PRECISION NOT NULL,
    trust                    BIGINT NOT NULL,
    numerics                 TEXT   NOT NULL,   -- names what decides the bits of a result there
    slots                    BIGINT NOT NULL,
    capabilities             TEXT   NOT NULL,   -- JSON
    price_micro_usd_per_hour BIGINT NOT NULL,
    rented                   BIGINT NOT NULL,   -- 1: from a provider, which bills it
    instance                 TEXT,              -- the provider's name for it
    missing                  BIGINT NOT NULL,   -- so many lists of the provider in a row were without it
    since_ms                 BIGINT NOT NULL,   -- when it was asked for, or joined by hand
    joined_ms                BIGINT,
    seen_ms                  BIGINT NOT NULL,
    meter_ms                 BIGINT NOT NULL    -- up to here its time is in the ledger; where it is idle, since then
);
CREATE INDEX node_here ON node (pool, since_ms, id) WHERE state <> 'gone';
CREATE INDEX node_silence ON node (seen_ms) WHERE state IN ('ready', 'on_trial', 'draining', 'quarantined');
CREATE INDEX node_quarantined ON node (machine) WHERE state = 'quarantined';
CREATE INDEX node_never_joined ON node (pool, since_ms) WHERE joined_ms IS NULL;
CREATE INDEX node_machine ON node (machine, joined_ms);
CREATE INDEX node_working ON node (machine) WHERE state IN ('ready', 'on_trial');
CREATE INDEX node_joined ON node (pool, joined_ms, machine);

-- What providers said of what they bill us for.
CREATE TABLE instance (
    id             TEXT   PRIMARY KEY,
    node           TEXT   NOT NULL,
    billed_from_ms BIGINT NOT NULL,
    billed_to_ms   BIGINT,
    settled        BIGINT NOT NULL      -- 1: the ledger has all of it
);
CREATE INDEX instance_open ON instance (id) WHERE settled = 0;
CREATE INDEX instance_ended ON instance (billed_to_ms);
CREATE INDEX instance_node ON instance (node);

-- The bases that a node holds.
CREATE TABLE node_base (
    node TEXT NOT NULL REFERENCES node (id),
    base TEXT NOT NULL,
    PRIMARY KEY (node, base)
);

-- What is remembered of a machine, whatever node it was.
CREATE TABLE machine (
    id                   TEXT   PRIMARY KEY,
    pool                 TEXT   NOT NULL,
    known_ms             BIGINT NOT NULL,   -- when it came first
    failures             BIGINT NOT NULL,   -- in a row
    rest_until_ms        BIGINT NOT NULL,
    quarantines          BIGINT NOT NULL,   -- so far
    quarantined_ms       BIGINT,            -- the last time; strikes from before it are paid for
    quarantined_until_ms BIGINT NOT NULL,
    on_trial             BIGINT NOT NULL,   -- 1 until something goes well
    because              TEXT   NOT NULL
);
CREATE INDEX machine_quarantined ON machine (pool, quarantined_ms);

CREATE TABLE strike (
    attempt  TEXT   PRIMARY KEY,
    machine  TEXT   NOT NULL,
    job      TEXT   NOT NULL,
    workload TEXT   NOT NULL,
    gpu      TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    quarters BIGINT NOT NULL,
    at_ms    BIGINT NOT NULL
);
CREATE INDEX strike_machine ON strike (machine, at_ms);
CREATE INDEX strike_age ON strike (at_ms);

-- A machine that brought a workload further, and how fast: the contrast for blame, and for what is slow.
CREATE TABLE pace (
    workload         TEXT   NOT NULL,
    gpu              TEXT   NOT NULL,
    machine          TEXT   NOT NULL,
    seconds_per_step DOUBLE PRECISION,
    at_ms            BIGINT NOT NULL,
    PRIMARY KEY (workload, gpu, machine)
);

-- What the last look at a pool found: the work ahead of each node, and how often new machines come.
CREATE TABLE foresight (
    pool      TEXT PRIMARY KEY,
    waiting   DOUBLE PRECISION NOT NULL,   -- jobs, for each node
    new_share DOUBLE PRECISION NOT NULL    -- of the nodes that came last, those on machines that had never come before
);

CREATE TABLE project (
    id       TEXT   PRIMARY KEY,
    share    DOUBLE PRECISION NOT NULL,
    usage    DOUBLE PRECISION NOT NULL,   -- micro-dollars, decayed to usage_ms
    usage_ms BIGINT NOT NULL,
    budget   BIGINT,                      -- micro-dollars; none: no limit
    spent    BIGINT NOT NULL,             -- by attempts that have ended
    reserved BIGINT NOT NULL              -- for those that live
);

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
    save_s          DOUBLE PRECISION NOT NULL,  -- a checkpoint is due so often
    priority        BIGINT NOT NULL,
    base            TEXT   NOT NULL,
    workload        TEXT   NOT NULL,            -- equal for jobs that ask the same of a machine
    slots           BIGINT NOT NULL,
    input_bytes     BIGINT NOT NULL,
    checkpoint_bytes BIGINT NOT NULL,           -- of the newest that is committed
    gpu             TEXT   NOT NULL,            -- the class that it needs; empty: any
    gpu_memory_gb   DOUBLE PRECISION NOT NULL,  -- that it needs, as far as is known
    pool            TEXT   NOT NULL,
    trust           BIGINT NOT NULL,
    exact           TEXT   NOT NULL CHECK (exact IN ('required', 'preferred', 'off')),
    numerics        TEXT   NOT NULL,            -- of its checkpoints, where they pin it; else empty
    fencing         BIGINT NOT NULL,            -- of the newest attempt
    attempts_failed BIGINT NOT NULL,
    attempts_max    BIGINT NOT NULL,
    ready_ms        BIGINT NOT NULL,            -- not to be tried before
    version         BIGINT NOT NULL,
    submitted_ms    BIGINT NOT NULL,
    queued_ms       BIGINT NOT NULL,
    ended_ms        BIGINT
);
CREATE UNIQUE INDEX job_request ON job (project, request) WHERE request IS NOT NULL;
CREATE INDEX job_queue ON job (project, priority DESC, submitted_ms, id) WHERE state = 'queued' AND fencing = 0;
CREATE INDEX job_again ON job (priority DESC, queued_ms, id) WHERE state = 'queued' AND fencing > 0;
CREATE INDEX job_waiting ON job (queued_ms) WHERE state = 'queued';
CREATE INDEX job_page ON job (project, submitted_ms, id);

-- This machine does not get this job again.
CREATE TABLE ban (
    job     TEXT   NOT NULL REFERENCES job (id),
    machine TEXT   NOT NULL,
    because TEXT   NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (job, machine)
);

-- When the service ticked last, and since when without a gap.
CREATE TABLE service (
    id        BIGINT PRIMARY KEY CHECK (id = 1),
    ticked_ms BIGINT NOT NULL,
    back_ms   BIGINT NOT NULL
);
INSERT INTO service (id, ticked_ms, back_ms) VALUES (1, 0, 0);

CREATE TABLE attempt (
    id                       TEXT   PRIMARY KEY,
    job                      TEXT   NOT NULL REFERENCES job (id),
    node                     TEXT   NOT NULL REFERENCES node (id),
    machine                  TEXT   NOT NULL,
    pool                     TEXT   NOT NULL,
    gpu                      TEXT   NOT NULL,
    gpu_memory_gb            DOUBLE PRECISION NOT NULL,
    workload                 TEXT   NOT NULL,
    fencing                  BIGINT NOT NULL,
    kind                     TEXT   NOT NULL,   -- of its failure; empty where it did not fail
    committed_step           BIGINT NOT NULL,   -- by itself; 0: none
    committed_ms             BIGINT,
    state                    TEXT   NOT NULL CHECK (state IN ('live', 'succeeded', 'failed', 'interrupted', 'released', 'canceled')),
    because                  TEXT   NOT NULL,
    slots                    BIGINT NOT NULL,
    price_micro_usd_per_hour BIGINT NOT NULL,   -- of its slots
    from_step                BIGINT NOT NULL,   -- where it went on
    step                     BIGINT NOT NULL,   -- the last that it was heard to have taken; this and the next four: from its lease, when it ends
    loss                     DOUBLE PRECISION,
    seconds_per_step         DOUBLE PRECISION,
    training_ms              BIGINT,            -- when its first step was
    beat_ms                  BIGINT NOT NULL,
    started_ms               BIGINT NOT NULL,
    ended_ms                 BIGINT,
    UNIQUE (job, fencing)
);
CREATE UNIQUE INDEX attempt_live ON attempt (job) WHERE state = 'live';
CREATE INDEX attempt_ended ON attempt (gpu, ended_ms) WHERE state <> 'live';

-- Hot and narrow: a heartbeat reads and writes one of these rows and nothing else. A lease lives as long as its attempt.
CREATE TABLE lease (
    attempt          TEXT   NOT NULL REFERENCES attempt (id),
    rank             BIGINT NOT NULL,
    node             TEXT   NOT NULL,
    fencing          BIGINT NOT NULL,
    slots            BIGINT NOT NULL,
    price_micro_usd_per_hour BIGINT NOT NULL,   -- of its slots
    started_ms       BIGINT NOT NULL,
    expires_ms       BIGINT NOT NULL,
    beat_ms          BIGINT NOT NULL,
    phase            TEXT   NOT NULL,
    step             BIGINT NOT NULL,
    loss             DOUBLE PRECISION,
    seconds_per_step DOUBLE PRECISION,
    training_ms      BIGINT,
    stepped_ms       BIGINT NOT NULL,       -- when `step` last grew
    reserved         BIGINT NOT NULL,       -- micro-dollars of the project's budget
    downloaded_bytes BIGINT NOT NULL,       -- that it was given URLs for
    stop             TEXT   NOT NULL,       -- why it is to hand the job back; empty: it is not
    stop_kind        TEXT   NOT NULL,       -- paused, or a kind of failure; empty: neither
    stop_ms          BIGINT,
    PRIMARY KEY (attempt, rank)
);
CREATE INDEX lease_expiry ON lease (expires_ms);
CREATE INDEX lease_node ON lease (node);
CREATE INDEX lease_stop ON lease (stop_ms) WHERE stop <> '';

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

-- Money: every part of a node's time, and what was stored and sent, with its cause. Attempt and job are empty for what no job caused.
CREATE TABLE ledger (
    node      TEXT   NOT NULL,
    attempt   TEXT   NOT NULL,
    cause     TEXT   NOT NULL,
    from_ms   BIGINT NOT NULL,
    to_ms     BIGINT NOT NULL,
    job       TEXT   NOT NULL,
    project   TEXT   NOT NULL,
    micro_usd BIGINT NOT NULL,
    PRIMARY KEY (node, attempt, cause, from_ms)
);
CREATE INDEX ledger_job ON ledger (job, attempt);
