-- What a project stores in the object store: how much of each kind, for which jobs, and when it may be deleted.

-- name: pin_checkpoint
-- Pin or unpin, only while the checkpoint is committed: one that was rejected or is being deleted cannot be kept, and the user gets an
-- error.
UPDATE checkpoint SET pinned = :pinned WHERE id = :id AND state = 'committed'

-- name: checkpoints_of_job
-- List the checkpoints that are stored, newest first.
SELECT checkpoint.id, checkpoint.step, checkpoint.bytes, checkpoint.verified, checkpoint.pinned, checkpoint.committed_ms,
       checkpoint.manifest,
       EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
               WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL) AS shown,
       EXISTS (SELECT 1 FROM job AS heir WHERE heir.begins_from = checkpoint.job AND heir.ended_ms IS NULL) AS inherited
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: stored_checkpoints
-- Sum checkpoints by the state of their jobs, and by whether they are pinned.
SELECT job.state, checkpoint.pinned, CAST(COUNT(*) AS BIGINT) AS files, CAST(SUM(checkpoint.bytes) AS BIGINT) AS bytes,
       COUNT(DISTINCT job.id) AS jobs, MIN(job.ended_ms) AS ended_ms
FROM checkpoint JOIN job ON job.id = checkpoint.job
WHERE job.project = :project AND checkpoint.state = 'committed'
GROUP BY job.state, checkpoint.pinned

-- name: stored_artifacts
-- Sum results and previews, by whether their jobs have ended. `since_ms` is when the oldest job's age begins.
SELECT kind, ended, CAST(SUM(files) AS BIGINT) AS files, CAST(SUM(bytes) AS BIGINT) AS bytes, COUNT(*) AS jobs, MIN(since_ms) AS since_ms
FROM (SELECT CASE WHEN artifact.path LIKE 'samples/step-%' THEN 'previews' ELSE 'results' END AS kind,
             CASE WHEN job.ended_ms IS NULL THEN 0 ELSE 1 END AS ended, COUNT(*) AS files,
             SUM(artifact.bytes + artifact.thumbnail_bytes) AS bytes,
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
-- List uploaded files. `named_ms` is when each was last uploaded or named, `at_work` how many jobs that have not ended use it, `in_sets` whether a data set has it.
SELECT blob.sha256, blob.bytes, CASE WHEN blob.used_ms > blob.made_ms THEN blob.used_ms ELSE blob.made_ms END AS named_ms,
       COUNT(job.id) AS jobs, SUM(CASE WHEN job.id IS NOT NULL AND job.ended_ms IS NULL THEN 1 ELSE 0 END) AS at_work,
       MAX(job.ended_ms) AS ended_ms,
       CASE WHEN EXISTS (SELECT 1 FROM dataset_file WHERE dataset_file.project = :project AND dataset_file.sha256 = blob.sha256)
            THEN 1 ELSE 0 END AS in_sets
FROM blob LEFT JOIN (SELECT project, sha256, job FROM job_file
                     UNION ALL SELECT shared.project, shared.sha256, run.job
                     FROM experiment_file AS shared JOIN experiment_run AS run ON run.experiment = shared.experiment) AS named
     ON named.project = blob.project AND named.sha256 = blob.sha256
     LEFT JOIN job ON job.id = named.job
WHERE blob.project = :project GROUP BY blob.sha256, blob.bytes, blob.used_ms, blob.made_ms

-- name: jobs_with_files
SELECT (SELECT COUNT(DISTINCT job) FROM job_file WHERE project = :project)
     + (SELECT COUNT(*) FROM experiment_run AS run JOIN experiment ON experiment.id = run.experiment
        WHERE experiment.project = :project
          AND EXISTS (SELECT 1 FROM experiment_file AS shared WHERE shared.experiment = experiment.id)) AS jobs

-- name: prepared_of_project
SELECT manifest, used_ms, attempt.job FROM prepared JOIN attempt ON attempt.id = prepared.attempt WHERE project = :project

-- name: largest_jobs
-- Sum checkpoints, results, images and logs by job. Uploaded files are left out, since several jobs may share one.
SELECT job.id, job.name, job.state, job.ended_ms, CAST(SUM(part.bytes) AS BIGINT) AS bytes
FROM (SELECT checkpoint.job, checkpoint.bytes FROM checkpoint WHERE checkpoint.state = 'committed'
      UNION ALL SELECT artifact.job, artifact.bytes + artifact.thumbnail_bytes AS bytes FROM artifact
      UNION ALL SELECT attempt.job, log_chunk.bytes FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt) AS part
     JOIN job ON job.id = part.job
WHERE job.project = :project
GROUP BY job.id, job.name, job.state, job.ended_ms ORDER BY 5 DESC, job.id LIMIT :limit

-- name: add_storage_cost
-- Costs since the same moment are added up in one line.
INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd)
VALUES (:node, :attempt, :cause, :from_ms, :to_ms, :job, :project, :micro_usd)
ON CONFLICT (node, attempt, cause, from_ms) DO UPDATE SET micro_usd = ledger.micro_usd + excluded.micro_usd

-- name: mirrored_files
SELECT files FROM mirror WHERE project = :project

-- name: totals_of_store
SELECT (SELECT COUNT(*) FROM job) AS jobs, (SELECT COUNT(*) FROM lease) AS live_attempts

-- name: jobs_up_to
-- Find the last of the next jobs, in the order of their ids.
SELECT MAX(id) AS id FROM (SELECT id FROM job WHERE id > :after ORDER BY id LIMIT :limit) AS found

-- name: files_of_jobs
-- List the files that rows of some jobs refer to: checkpoints and prepared files by prefix and manifest, the rest by key.
SELECT 'checkpoint' AS kind, checkpoint.prefix AS key, checkpoint.manifest, checkpoint.bytes FROM checkpoint
WHERE checkpoint.state = 'committed' AND checkpoint.job > :after AND checkpoint.job <= :last
UNION ALL SELECT 'result' AS kind, artifact.key, '' AS manifest, artifact.bytes FROM artifact
WHERE artifact.job > :after AND artifact.job <= :last
UNION ALL SELECT 'picture' AS kind, artifact.thumbnail AS key, '' AS manifest, artifact.thumbnail_bytes AS bytes FROM artifact
WHERE artifact.job > :after AND artifact.job <= :last AND artifact.thumbnail_bytes > 0
UNION ALL SELECT 'log' AS kind, log_chunk.key, '' AS manifest, log_chunk.bytes FROM attempt JOIN log_chunk ON log_chunk.attempt = attempt.id
WHERE attempt.job > :after AND attempt.job <= :last
UNION ALL SELECT 'prepared file' AS kind, prepared.prefix AS key, prepared.manifest, 0 AS bytes FROM prepared JOIN attempt ON attempt.id = prepared.attempt
WHERE attempt.job > :after AND attempt.job <= :last

-- name: uploads_in_store
-- List uploaded files and the small copies of photos, in the order of project and content.
SELECT 'upload' AS kind, project, sha256, bytes FROM blob
WHERE going = '' AND (project > :project OR (project = :project AND sha256 > :sha256))
ORDER BY project, sha256 LIMIT :limit

-- name: thumbnails_in_store
SELECT 'picture' AS kind, project, sha256, thumbnail_bytes AS bytes FROM photo
WHERE thumbnail_bytes > 0 AND (project > :project OR (project = :project AND sha256 > :sha256))
ORDER BY project, sha256 LIMIT :limit
