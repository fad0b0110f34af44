-- What expires by age: checkpoints, logs and previews of ended jobs, and uploaded files that no job uses.

-- name: checkpoints_to_expire
-- List checkpoints of jobs that ended long enough ago. Skip those that are pinned by their owner, needed for images that are still to be
-- rendered, or needed by a job that will start from them.
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
-- The flag is the guard: a log is deleted once.
UPDATE job SET log_kept = 0 WHERE id = :id AND log_kept = 1

-- name: drop_log_chunks
DELETE FROM log_chunk WHERE attempt = :attempt

-- name: jobs_with_old_previews
-- Previews stay while images of the job are still to be rendered. The age of the newest one counts from when it was made, if that was
-- after the job's end.
SELECT id, state, version FROM job
WHERE previews_kept = 1 AND ended_ms < :before
  AND NOT EXISTS (SELECT 1 FROM artifact
                  WHERE artifact.job = job.id AND artifact.path LIKE 'samples/step-%' AND artifact.made_ms >= :before)
  AND NOT EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
                  WHERE sample.parent = job.id AND shown.ended_ms IS NULL)
ORDER BY ended_ms, id LIMIT :limit

-- name: forget_previews
-- Whoever chooses a step of the job concurrently looks again at what is there, and so does what found these pictures.
UPDATE job SET previews_kept = 0, version = version + 1 WHERE id = :id AND version = :version

-- name: keep_previews
-- Pictures of steps expire again that stayed for what was chosen of them.
UPDATE job SET previews_kept = 1 WHERE id = :id

-- name: kept_artifacts
-- List a job's files with the time since when they are stored and the job that made them: images may come from a job that only renders,
-- which pays for them.
SELECT artifact.path, artifact.attempt, artifact.key, artifact.bytes, COALESCE(artifact.made_ms, job.ended_ms) AS since_ms,
       attempt.node, attempt.job, job.project
FROM artifact JOIN job ON job.id = artifact.job JOIN attempt ON attempt.id = artifact.attempt
WHERE artifact.job = :job ORDER BY artifact.path

-- name: drop_artifact
DELETE FROM artifact WHERE job = :job AND path = :path

-- name: jobs_unlisted
-- List jobs of older servers, which do not list a job's inputs.
SELECT id, project, spec FROM job WHERE listed = 0 AND removed_ms IS NULL ORDER BY id LIMIT :limit

-- name: mark_listed
-- The flag is the guard of the rows beside it: a job's files are listed once.
UPDATE job SET listed = 1 WHERE id = :id AND listed = 0

-- name: add_job_file
INSERT INTO job_file (project, sha256, job) VALUES (:project, :sha256, :job)

-- name: blobs_unused
-- List files that nobody has uploaded or named for long, that no job and no experiment uses which waits, runs or ended recently, and that
-- are in no data set.
SELECT project, sha256, bytes, used_ms FROM blob
WHERE going = '' AND used_ms < :before AND made_ms < :before
  AND NOT EXISTS (SELECT 1 FROM job_file JOIN job ON job.id = job_file.job
                  WHERE job_file.project = blob.project AND job_file.sha256 = blob.sha256
                  AND (job.ended_ms IS NULL OR job.ended_ms >= :before))
  AND NOT EXISTS (SELECT 1 FROM dataset_file WHERE dataset_file.project = blob.project AND dataset_file.sha256 = blob.sha256)
  AND NOT EXISTS (SELECT 1 FROM experiment_file JOIN experiment ON experiment.id = experiment_file.experiment
                  WHERE experiment_file.project = blob.project AND experiment_file.sha256 = blob.sha256
                  AND (experiment.ended_ms IS NULL OR experiment.ended_ms >= :before))
ORDER BY used_ms, project, sha256 LIMIT :limit

-- name: give_up_blob
-- Mark the file for deletion, unless it was uploaded or named since it was read. From here until it is deleted, it can neither be named
-- nor uploaded.
UPDATE blob SET going = 'asked', going_ms = :now, used_ms = :now WHERE project = :project AND sha256 = :sha256 AND used_ms = :seen

-- name: blobs_going
-- List files that are marked for deletion: by no server yet, by this one before a restart, or by one that has stopped responding.
SELECT project, sha256, going_ms FROM blob
WHERE going <> '' AND (going IN ('asked', :server) OR going_ms < :late) ORDER BY going_ms, project, sha256 LIMIT :limit

-- name: take_blob
-- Take the deletion: one server at a time deletes a file.
UPDATE blob SET going = :server, going_ms = :now WHERE project = :project AND sha256 = :sha256 AND going_ms = :seen

-- name: drop_blob
-- Forget the file once its bytes are deleted; only by the server that still holds the deletion.
DELETE FROM blob WHERE project = :project AND sha256 = :sha256 AND going = :server
