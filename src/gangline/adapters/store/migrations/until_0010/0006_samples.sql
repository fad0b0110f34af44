-- How a training job is looked at while it trains. `step` and `at_ms` are those of the last checkpoint that pictures were asked of;
-- `here`: 1 where the node that trains was asked for them.
CREATE TABLE sampling (
    job         TEXT   PRIMARY KEY REFERENCES job (id),
    every_steps BIGINT,
    every_s     DOUBLE PRECISION,
    step        BIGINT NOT NULL,
    at_ms       BIGINT NOT NULL,
    here        BIGINT NOT NULL
);

-- Jobs that render such pictures: of which training job, and of which checkpoint of it.
CREATE TABLE sample (
    job        TEXT   PRIMARY KEY REFERENCES job (id),
    parent     TEXT   NOT NULL REFERENCES job (id),
    checkpoint TEXT   NOT NULL REFERENCES checkpoint (id),
    step       BIGINT NOT NULL
);
CREATE INDEX sample_parent ON sample (parent, step);
CREATE INDEX sample_checkpoint ON sample (checkpoint);

-- Pictures are there before their job has ended.
ALTER TABLE artifact ADD COLUMN made_ms BIGINT;
CREATE INDEX artifact_attempt ON artifact (attempt);

-- The queue of training, and what comes after it.
DROP INDEX job_queue;
DROP INDEX job_again;
DROP INDEX job_page;
CREATE INDEX job_queue ON job (project, priority DESC, submitted_ms, id) WHERE state = 'queued' AND fencing = 0 AND kind <> 'sample';
CREATE INDEX job_again ON job (priority DESC, queued_ms, id) WHERE state = 'queued' AND fencing > 0 AND kind <> 'sample';
CREATE INDEX job_page ON job (project, submitted_ms, id) WHERE kind <> 'sample';
CREATE INDEX job_samples ON job (queued_ms, id) WHERE state = 'queued' AND kind = 'sample';
CREATE INDEX job_rendering ON job (id) WHERE state = 'running' AND kind = 'sample';

-- When a node last had something to train.
CREATE INDEX attempt_of_node ON attempt (node, ended_ms);
