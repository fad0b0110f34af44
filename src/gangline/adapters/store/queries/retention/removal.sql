-- Jobs that their owners delete. Bills stay, and with them rows of the job and its attempts without content.

-- name: samples_beside
-- List all jobs that rendered images of a job.
SELECT sample.job AS id FROM sample WHERE sample.parent = :parent ORDER BY sample.job

-- name: remove_job
-- Delete everything that the owner wrote.
UPDATE job SET removed_ms = :now, name = '', spec = '{}', request = NULL, fingerprint = NULL, because = 'deleted by its owner', version = version + 1
WHERE id = :id AND version = :version

-- name: remove_attempt
-- The reason of a failure may quote what the owner wrote.
UPDATE attempt SET because = 'its job was deleted by its owner' WHERE id = :id

-- name: remove_events
DELETE FROM event WHERE job = :job

-- name: remove_metrics
DELETE FROM metric WHERE attempt = :attempt

-- name: remove_phases
DELETE FROM attempt_phase WHERE attempt = :attempt

-- name: remove_bans
DELETE FROM ban WHERE job = :job

-- name: remove_tracking
DELETE FROM tracked WHERE job = :job

-- name: remove_tracked_pictures
DELETE FROM tracked_picture WHERE job = :job

-- name: remove_sampling
DELETE FROM sampling WHERE job = :job

-- name: remove_wishes
DELETE FROM wish WHERE job = :job

-- name: remove_notices
DELETE FROM notice WHERE job = :job

-- name: remove_sample
DELETE FROM sample WHERE job = :job

-- name: unpin_checkpoints
UPDATE checkpoint SET pinned = 0 WHERE job = :job

-- name: remove_job_files
DELETE FROM job_file WHERE job = :job

-- name: blobs_of_job
-- List a job's files, each with the number of other jobs, of experiments and of data sets' versions that use it.
SELECT blob.sha256, blob.bytes, blob.used_ms,
       (SELECT COUNT(*) FROM dataset_file WHERE dataset_file.project = blob.project AND dataset_file.sha256 = blob.sha256) +
       (SELECT COUNT(*) FROM job_file AS other
        WHERE other.project = blob.project AND other.sha256 = blob.sha256 AND other.job <> job_file.job
          AND other.job NOT IN (SELECT sample.job FROM sample WHERE sample.parent = job_file.job))
       + (SELECT COUNT(*) FROM experiment_file WHERE experiment_file.project = blob.project AND experiment_file.sha256 = blob.sha256) AS others
FROM job_file JOIN blob ON blob.project = job_file.project AND blob.sha256 = job_file.sha256
WHERE job_file.job = :job AND blob.going = '' ORDER BY blob.sha256

-- name: prepared_of_attempt
SELECT project, key, attempt, subject, manifest, prefix, used_ms FROM prepared WHERE attempt = :attempt

-- name: specs_at_work
-- List specs of jobs on the same base that wait or run and have their photos, one of several jobs that can use the same prepared files.
SELECT MIN(job.spec) AS spec FROM job LEFT JOIN experiment_run AS run ON run.job = job.id
WHERE job.project = :project AND job.base = :base AND job.ended_ms IS NULL AND job.fetching <> 1 AND job.id <> :but
GROUP BY CASE WHEN run.prepares IS NULL OR run.prepares = '' THEN job.id ELSE run.prepares END
