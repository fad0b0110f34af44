-- A job may begin from the checkpoints of another one, which has ended.

ALTER TABLE job ADD COLUMN begins_from TEXT;                          -- that job, until this one has a checkpoint of its own
CREATE INDEX job_begins_from ON job (begins_from) WHERE begins_from IS NOT NULL;
ALTER TABLE checkpoint ADD COLUMN heirs BIGINT NOT NULL DEFAULT 0;    -- so many jobs were to begin from it: who deletes it saw as many
