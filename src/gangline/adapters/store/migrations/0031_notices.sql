-- Endpoints receive the facts of their project. A `notice` is one fact for one endpoint: it is added in the transaction that numbers the fact, and
-- waits until a try has delivered it.

CREATE TABLE endpoint (
    id               TEXT   PRIMARY KEY,
    project          TEXT   NOT NULL,
    channel          TEXT   NOT NULL,
    name             TEXT   NOT NULL,
    shown            TEXT   NOT NULL,             -- what anybody of the project may see of its address
    sealed           TEXT   NOT NULL,             -- its address, encrypted under a key that is not in the database
    interval_ms      BIGINT NOT NULL,             -- the least time between two messages for people
    quiet            TEXT   NOT NULL,             -- hours in which people are not disturbed; '': none
    state            TEXT   NOT NULL,             -- active, disabled
    because          TEXT   NOT NULL,             -- why it is disabled
    version          BIGINT NOT NULL,             -- of this row, for writes of its owner
    secret           BIGINT NOT NULL,             -- the version of its signing secret, which follows from the key that `secret_key` names
    secret_key       TEXT   NOT NULL,
    old_secret       BIGINT NOT NULL DEFAULT 0,   -- the one before, with which messages are signed too until `old_until_ms`; 0: there is none
    old_secret_key   TEXT   NOT NULL DEFAULT '',
    old_until_ms     BIGINT NOT NULL DEFAULT 0,
    active_ms        BIGINT NOT NULL,             -- it receives what happened from then on
    failing_since_ms BIGINT,                      -- the first failed try since the last that succeeded; NULL: the last try succeeded
    hold_until_ms    BIGINT NOT NULL DEFAULT 0,   -- nothing is sent before: the receiver asked to wait, or people are not to be flooded
    delivered_ms     BIGINT,                      -- the last success
    made_ms          BIGINT NOT NULL,
    made_by          TEXT   NOT NULL              -- the key that added it
);
CREATE UNIQUE INDEX endpoint_name ON endpoint (project, name);

CREATE TABLE endpoint_event (
    endpoint TEXT NOT NULL REFERENCES endpoint (id),
    notice   TEXT NOT NULL,                       -- the kind of notice that its owner chose
    kind     TEXT NOT NULL,                       -- the kind of event of which that tells
    state    TEXT NOT NULL,                       -- and the state of the job after it; '': any
    PRIMARY KEY (endpoint, kind, state)
);

CREATE TABLE notice (
    endpoint TEXT   NOT NULL REFERENCES endpoint (id),
    fact     BIGINT NOT NULL,                     -- its number in the project of the endpoint
    job      TEXT   NOT NULL REFERENCES job (id),
    state    TEXT   NOT NULL,                     -- waiting, delivered, failed, dropped
    tries    BIGINT NOT NULL DEFAULT 0,
    due_ms   BIGINT NOT NULL,
    because  TEXT   NOT NULL DEFAULT '',          -- what came of the last try
    tried_ms BIGINT,
    ended_ms BIGINT,
    PRIMARY KEY (endpoint, fact)
);
CREATE INDEX notice_due ON notice (endpoint, due_ms, fact) WHERE state = 'waiting';
CREATE INDEX notice_ended ON notice (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX notice_job ON notice (job);
