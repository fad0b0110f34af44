-- What a span of time cost is summed by node in the order of an index, as SQLite sorts what it groups.

CREATE INDEX ledger_node ON ledger (node, cause, project, from_ms, to_ms, micro_usd);

-- Amounts of money of whose crossing there is a notice. A crossing is no event of a job, but has a number among the facts of the project whose endpoints get the
-- notice, so a notice may be of no job.

CREATE TABLE cost_threshold (
    id        TEXT   PRIMARY KEY,
    project   TEXT   NOT NULL,      -- whose costs are summed; '': everything that the service costs
    pool      TEXT   NOT NULL,      -- of the nodes of this pool alone; '': of all
    per       TEXT   NOT NULL,      -- day, month
    micro_usd BIGINT NOT NULL,
    percents  TEXT   NOT NULL,      -- JSON: the shares of it at which there is a notice
    forecast  BIGINT NOT NULL,      -- 1: so is a forecast that is higher
    zone      TEXT   NOT NULL,      -- whose days and months
    notify      TEXT   NOT NULL,      -- the project whose endpoints receive the notices
    made_ms   BIGINT NOT NULL
);
CREATE UNIQUE INDEX cost_threshold_scope ON cost_threshold (project, pool, per);

CREATE TABLE cost_crossing (
    threshold       TEXT   NOT NULL,
    from_ms         BIGINT NOT NULL,    -- when the day or month began in which it was
    limit_micro_usd BIGINT NOT NULL,    -- the amount of the threshold then
    percent         BIGINT NOT NULL,
    forecast        BIGINT NOT NULL,    -- 1: not what was spent, but what was expected
    at_ms           BIGINT NOT NULL,
    micro_usd       BIGINT NOT NULL,
    name            TEXT   NOT NULL,    -- whose costs they are, in words
    because         TEXT   NOT NULL,
    project         TEXT   NOT NULL,    -- whose endpoints get the notice
    fact            BIGINT NOT NULL,    -- its number among the facts of that project
    PRIMARY KEY (threshold, from_ms, limit_micro_usd, percent, forecast)
);
CREATE INDEX cost_crossing_fact ON cost_crossing (project, fact);

ALTER TABLE notice RENAME TO notice_before;
CREATE TABLE notice_of_any (
    endpoint TEXT   NOT NULL REFERENCES endpoint (id),
    fact     BIGINT NOT NULL,                     -- its number in the project of the endpoint
    job      TEXT   REFERENCES job (id),          -- NULL: it is of a crossing of a threshold
    state    TEXT   NOT NULL,                     -- waiting, delivered, failed, dropped
    tries    BIGINT NOT NULL DEFAULT 0,
    due_ms   BIGINT NOT NULL,
    because  TEXT   NOT NULL DEFAULT '',          -- what came of the last try
    tried_ms BIGINT,
    ended_ms BIGINT,
    PRIMARY KEY (endpoint, fact)
);
INSERT INTO notice_of_any (endpoint, fact, job, state, tries, due_ms, because, tried_ms, ended_ms)
SELECT endpoint, fact, job, state, tries, due_ms, because, tried_ms, ended_ms FROM notice_before;
DROP TABLE notice_before;
ALTER TABLE notice_of_any RENAME TO notice;
CREATE INDEX notice_due ON notice (endpoint, due_ms, fact) WHERE state = 'waiting';
CREATE INDEX notice_ended ON notice (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX notice_job ON notice (job);

-- People who hear of a budget that is used up hear of thresholds, too.
INSERT INTO endpoint_event (endpoint, notice, kind, state)
SELECT endpoint_event.endpoint, 'cost_threshold', 'cost threshold', '' FROM endpoint_event JOIN endpoint ON endpoint.id = endpoint_event.endpoint
WHERE endpoint_event.kind = 'over budget' AND endpoint.channel <> 'webhook';
