-- What a project keeps in the object store: how much of each kind, whose, and from when on it may go.

-- name: pin_checkpoint
-- A checkpoint that was rejected or is being deleted cannot be kept any more: the pin is refused and the user told.
UPDATE checkpoint SET pinned = :pinned WHERE id = :id AND state = 'committed'

-- name: checkpoints_of_job
-- That are kept, newest first.
SELECT checkpoint.id, checkpoint.step, checkpoint.bytes, checkpoint.verified, checkpoint.pinned, checkpoint.committed_ms,
       EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
               WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL) AS shown,
       EXISTS (SELECT 1 FROM job AS heir WHERE heir.begins_from = checkpoint.job AND heir.ended_ms IS NULL) AS inherited
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: stored_checkpoints
-- By how their jobs ended; `ends`: without what is pinned.
SELECT job.state, checkpoint.pinned, CAST(COUNT(*) AS BIGINT) AS files, CAST(SUM(checkpoint.bytes) AS BIGINT) AS bytes,
       COUNT(DISTINCT job.id) AS jobs, MIN(job.ended_ms) AS ended_ms
FROM checkpoint JOIN job ON job.id = checkpoint.job
WHERE job.project = :project AND checkpoint.state = 'committed'
GROUP BY job.state, checkpoint.pinned

-- name: stored_artifacts
-- Results, and pictures of steps, by whether their jobs have ended; `since_ms`: from when on the age of the first job's counts.
SELECT kind, ended, CAST(SUM(files) AS BIGINT) AS files, CAST(SUM(bytes) AS BIGINT) AS bytes, COUNT(*) AS jobs, MIN(since_ms) AS since_ms
FROM (SELECT CASE WHEN artifact.path LIKE 'samples/step-%' THEN 'previews' ELSE 'results' END AS kind,
             CASE WHEN job.ended_ms IS NULL THEN 0 ELSE 1 END AS ended, COUNT(*) AS files, SUM(artifact.bytes) AS bytes,
             MAX(CASE WHEN artifact.made_ms > job.ended_ms THEN artifact.made_ms ELSE job.ended_ms END) AS since_ms
      FROM artifact JOIN job ON job.id = artifact.job WHERE job.project = :project
      GROUP BY 1, 2, job.id) AS of_job
GROUP BY kind, ended

-- name: stored_logs
SELECT CASE WHEN job.ended_ms IS NULL THEN 0 ELSE 1 END AS ended, COUNT(*) AS files, CAST(SUM(log_chunk.bytes) AS BIGINT) AS bytes,
       COUNT(DISTINCT job.id) AS jobs, MIN(job.ended_ms) AS ended_ms
FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt JOIN job ON job.id = attempt.job WHERE job.project = :project
GROUP BY 1

-- name: stored_blobs
-- Uploaded files; `used_ms`: when one was used last, none while a job uses it that has not ended.
SELECT blob.sha256, blob.bytes, CASE WHEN blob.used_ms > blob.made_ms THEN blob.used_ms ELSE blob.made_ms END AS named_ms,
       COUNT(job.id) AS jobs, SUM(CASE WHEN job.id IS NOT NULL AND job.ended_ms IS NULL THEN 1 ELSE 0 END) AS at_work,
       MAX(job.ended_ms) AS ended_ms
FROM blob LEFT JOIN job_file ON job_file.project = blob.project AND job_file.sha256 = blob.sha256
     LEFT JOIN job ON job.id = job_file.job
WHERE blob.project = :project GROUP BY blob.sha256, blob.bytes, blob.used_ms, blob.made_ms

-- name: jobs_with_files
SELECT COUNT(DISTINCT job) AS jobs FROM job_file WHERE project = :project

-- name: prepared_of_project
SELECT manifest, used_ms, attempt.job FROM prepared JOIN attempt ON attempt.id = prepared.attempt WHERE project = :project

-- name: largest_jobs
-- Checkpoints, results, pictures and logs. Uploaded files may be several jobs'.
SELECT job.id, job.name, job.state, job.ended_ms, CAST(SUM(part.bytes) AS BIGINT) AS bytes
FROM (SELECT checkpoint.job, checkpoint.bytes FROM checkpoint WHERE checkpoint.state = 'committed'
      UNION ALL SELECT artifact.job, artifact.bytes FROM artifact
      UNION ALL SELECT attempt.job, log_chunk.bytes FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt) AS part
     JOIN job ON job.id = part.job
WHERE job.project = :project
GROUP BY job.id, job.name, job.state, job.ended_ms ORDER BY 5 DESC, job.id LIMIT :limit

-- name: add_storage_cost
-- What was kept since the same moment is one line.
INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd)
VALUES (:node, :attempt, :cause, :from_ms, :to_ms, :job, :project, :micro_usd)
ON CONFLICT (node, attempt, cause, from_ms) DO UPDATE SET micro_usd = ledger.micro_usd + excluded.micro_usd

-- name: mirrored_files
SELECT files FROM mirror WHERE project = :project
