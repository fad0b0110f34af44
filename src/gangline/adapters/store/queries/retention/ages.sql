-- What goes by its age: checkpoints, logs and previews of ended jobs, and uploaded files that no job uses.

-- name: checkpoints_to_expire
-- Those of jobs that ended long enough ago, but for what is pinned, by its owner, by pictures that are to be made of it, or by a job
-- that is to begin from it.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.bytes, checkpoint.committed_ms,
       checkpoint.heirs, attempt.node, job.project, job.state
FROM checkpoint JOIN job ON job.id = checkpoint.job JOIN attempt ON attempt.id = checkpoint.attempt
WHERE checkpoint.state = 'committed' AND checkpoint.pinned = 0
  AND job.ended_ms < CASE WHEN job.state = 'succeeded' THEN CAST(:succeeded_before AS BIGINT) ELSE CAST(:others_before AS BIGINT) END
  AND NOT EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
                  WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL)
  AND NOT EXISTS (SELECT 1 FROM job AS heir WHERE heir.begins_from = checkpoint.job AND heir.ended_ms IS NULL)
ORDER BY job.ended_ms, checkpoint.job, checkpoint.id LIMIT :limit

-- name: jobs_with_old_logs
SELECT job.id, job.state, (SELECT COUNT(*) FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt
                WHERE attempt.job = job.id) AS chunks
FROM job WHERE job.log_kept = 1 AND job.ended_ms < :before ORDER BY job.ended_ms, job.id LIMIT :limit

-- name: forget_log
-- Once.
UPDATE job SET log_kept = 0 WHERE id = :id AND log_kept = 1

-- name: drop_log_chunks
DELETE FROM log_chunk WHERE attempt = :attempt

-- name: jobs_with_old_previews
-- While pictures are still to be made of a job, those that are there stay; the last one as long as if the job had ended with it.
SELECT id, state FROM job
WHERE previews_kept = 1 AND ended_ms < :before
  AND NOT EXISTS (SELECT 1 FROM artifact
                  WHERE artifact.job = job.id AND artifact.path LIKE 'samples/step-%' AND artifact.made_ms >= :before)
  AND NOT EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
                  WHERE sample.parent = job.id AND shown.ended_ms IS NULL)
ORDER BY ended_ms, id LIMIT :limit

-- name: forget_previews
UPDATE job SET previews_kept = 0 WHERE id = :id

-- name: kept_artifacts
-- With since when they are there, and what made them: pictures may be those of a job that only renders, whose bill they are on.
SELECT artifact.path, artifact.attempt, artifact.key, artifact.bytes, COALESCE(artifact.made_ms, job.ended_ms) AS since_ms,
       attempt.node, attempt.job, job.project
FROM artifact JOIN job ON job.id = artifact.job JOIN attempt ON attempt.id = artifact.attempt
WHERE artifact.job = :job ORDER BY artifact.path

-- name: drop_artifact
DELETE FROM artifact WHERE job = :job AND path = :path

-- name: jobs_unlisted
-- Of servers that do not know yet that a job's inputs are listed.
SELECT id, project, spec FROM job WHERE listed = 0 AND removed_ms IS NULL ORDER BY id LIMIT :limit

-- name: mark_listed
-- The flag is the guard of the rows beside it: a job's files are listed once.
UPDATE job SET listed = 1 WHERE id = :id AND listed = 0

-- name: add_job_file
INSERT INTO job_file (project, sha256, job) VALUES (:project, :sha256, :job)

-- name: blobs_unused
-- That nobody handed in or named for long, and no job uses that waits, runs or ended a short while ago.
SELECT project, sha256, bytes, used_ms FROM blob
WHERE going = '' AND used_ms < :before AND made_ms < :before
  AND NOT EXISTS (SELECT 1 FROM job_file JOIN job ON job.id = job_file.job
                  WHERE job_file.project = blob.project AND job_file.sha256 = blob.sha256
                  AND (job.ended_ms IS NULL OR job.ended_ms >= :before))
ORDER BY used_ms, project, sha256 LIMIT :limit

-- name: give_up_blob
-- Unless it was handed in or named since it was seen. From here on nobody may name it, nor put it there again, until it is gone.
UPDATE blob SET going = 'asked', going_ms = :now, used_ms = :now WHERE project = :project AND sha256 = :sha256 AND used_ms = :seen

-- name: blobs_going
-- To be deleted: by nobody yet, by this server when it ended in between, or by one that is not heard of any more.
SELECT project, sha256, going_ms FROM blob
WHERE going <> '' AND (going IN ('asked', :server) OR going_ms < :late) ORDER BY going_ms, project, sha256 LIMIT :limit

-- name: take_blob
-- One server at a time deletes it.
UPDATE blob SET going = :server, going_ms = :now WHERE project = :project AND sha256 = :sha256 AND going_ms = :seen

-- name: drop_blob
-- Its bytes are gone. Not by who was overtaken meanwhile.
DELETE FROM blob WHERE project = :project AND sha256 = :sha256 AND going = :server
