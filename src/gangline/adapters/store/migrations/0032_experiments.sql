-- Experiments: jobs that were submitted together over a grid of settings, and are shown and steered as one.
--
-- A job of an experiment is HELD until its experiment lets it wait for a node: then `job.fetching` is 2. Every index and statement that looks for
-- work asks for `fetching = 0` since photos are fetched, also in servers of the version before, so none of them takes a held job.

CREATE TABLE experiment (
    id       TEXT   PRIMARY KEY,
    project  TEXT   NOT NULL,
    name     TEXT   NOT NULL,
    owner    TEXT,                               -- the id of the key that asked for it; NULL: nobody wrote that down
    settings TEXT   NOT NULL,                    -- the names of the settings that its runs differ in, as JSON
    measure  TEXT   NOT NULL,                    -- by which its runs are compared
    at_once  BIGINT,                             -- the most runs in progress; NULL: no limit
    budget   BIGINT,                             -- in micro-dollars; NULL: no limit
    halving  TEXT   NOT NULL,                    -- the terms of successive halving, as JSON; '': every run goes to its end
    state    TEXT   NOT NULL,                    -- running, stopped, ended
    because  TEXT   NOT NULL,                    -- what it waits for, or how it ended
    best     TEXT,                               -- the job that was best when it ended
    best_as  TEXT   NOT NULL DEFAULT '',         -- how that job was compared then, as JSON; '': there was none
    seen     BIGINT NOT NULL DEFAULT -1,         -- the sum of its jobs' versions at a look that found nothing to do; -1: no such look
    price    DOUBLE PRECISION,                   -- micro-dollars a step as planned; NULL: not known
    version  BIGINT NOT NULL,                    -- of this row, for writes of its terms and its state
    made_ms  BIGINT NOT NULL,
    ended_ms BIGINT
);
CREATE INDEX experiment_listed ON experiment (project, made_ms, id);
CREATE INDEX experiment_open ON experiment (made_ms, id) WHERE ended_ms IS NULL;

CREATE TABLE experiment_run (
    job         TEXT   PRIMARY KEY REFERENCES job (id),
    experiment  TEXT   NOT NULL REFERENCES experiment (id),
    number      BIGINT NOT NULL,
    settings    TEXT   NOT NULL,                 -- the values of the settings that its experiment varies, as JSON
    seed        BIGINT NOT NULL,
    prepares    TEXT   NOT NULL,                 -- equal for runs that can use the same prepared files; '': it prepares none
    rung        BIGINT NOT NULL DEFAULT 0,       -- how often it was among the best of its rung
    dropped     BIGINT NOT NULL DEFAULT 0,       -- 1: halving ends it, for the reason in `because`
    because     TEXT   NOT NULL DEFAULT '',
    waits       TEXT   NOT NULL DEFAULT '',      -- why its experiment paused it: rung, budget; '': it did not
    measured    TEXT   NOT NULL DEFAULT '',      -- what its metrics up to `measured_ms` come to, as JSON
    measured_ms BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX experiment_run_number ON experiment_run (experiment, number);

-- One row for a file of all runs together: a row in job_file for each run would be 20,000 for a thousand runs on twenty photos.
CREATE TABLE experiment_file (
    project    TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    experiment TEXT NOT NULL REFERENCES experiment (id),
    PRIMARY KEY (project, sha256, experiment)
);
CREATE INDEX experiment_file_of ON experiment_file (experiment);

-- A thousand held jobs are no step on the way to the next that a node may take.
DROP INDEX job_queue;
CREATE INDEX job_queue ON job (project, priority DESC, submitted_ms, id)
WHERE state = 'queued' AND fencing = 0 AND fetching = 0 AND kind <> 'sample';
