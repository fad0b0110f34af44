-- What ended jobs keep has an age, and a job can be removed. Who has not heard of this yet adds jobs whose inputs are not listed.

ALTER TABLE job ADD COLUMN removed_ms BIGINT;                       -- its owner deleted it: only its bills are left
ALTER TABLE job ADD COLUMN listed BIGINT NOT NULL DEFAULT 0;        -- 1: job_file has its inputs
ALTER TABLE job ADD COLUMN log_kept BIGINT NOT NULL DEFAULT 1;      -- 0: its log was deleted by age
ALTER TABLE job ADD COLUMN previews_kept BIGINT NOT NULL DEFAULT 1; -- 0: the pictures of its steps were deleted by age
CREATE INDEX job_log_kept ON job (ended_ms) WHERE log_kept = 1 AND ended_ms IS NOT NULL;
CREATE INDEX job_previews_kept ON job (ended_ms) WHERE previews_kept = 1 AND ended_ms IS NOT NULL;
CREATE INDEX job_unlisted ON job (id) WHERE listed = 0 AND removed_ms IS NULL;

ALTER TABLE checkpoint ADD COLUMN pinned BIGINT NOT NULL DEFAULT 0; -- 1: its owner wants it kept

-- The uploaded files that a job starts from.
CREATE TABLE job_file (
    project TEXT   NOT NULL,
    sha256  TEXT   NOT NULL,
    job     TEXT   NOT NULL REFERENCES job (id),
    PRIMARY KEY (project, sha256, job)
);
CREATE INDEX job_file_job ON job_file (job);

ALTER TABLE blob ADD COLUMN used_ms BIGINT NOT NULL DEFAULT 0;      -- when it was handed in or named last
ALTER TABLE blob ADD COLUMN going TEXT NOT NULL DEFAULT '';         -- asked: to be deleted; a server's name: by this one; else it stays
ALTER TABLE blob ADD COLUMN going_ms BIGINT NOT NULL DEFAULT 0;     -- since when
CREATE INDEX blob_used ON blob (used_ms) WHERE going = '';
CREATE INDEX blob_going ON blob (going_ms) WHERE going <> '';
