-- Data sets by name, and their versions.

-- name: dataset
SELECT id, name, versions, made_ms FROM dataset WHERE project = :project AND name = :name

-- name: datasets
-- List the data sets of a project, each with its newest version. Jobs that named an earlier data set of the name do not count.
SELECT dataset.name, dataset.made_ms AS since_ms, {shown_version},
       (SELECT COUNT(*) FROM job_dataset JOIN dataset_version AS named ON named.id = job_dataset.version
        WHERE named.dataset = dataset.id) AS jobs
FROM dataset JOIN dataset_version AS found ON found.dataset = dataset.id
WHERE dataset.project = :project
  AND found.number = (SELECT MAX(newest.number) FROM dataset_version AS newest
                      WHERE newest.dataset = dataset.id AND newest.state IN ('checking', 'ready', 'refused'))
ORDER BY dataset.name

-- name: last_number_of_jobs
-- Find the highest number of this name that a job remembers, of a data set that was removed.
SELECT COALESCE(MAX(number), 0) AS number FROM job_dataset WHERE project = :project AND name = :name

-- name: add_dataset
-- The numbers of an earlier data set of this name are not given again as long as jobs remember them.
INSERT INTO dataset (id, project, name, versions, made_ms)
VALUES (:id, :project, :name, (SELECT COALESCE(MAX(job_dataset.number), 0) FROM job_dataset
                               WHERE job_dataset.project = :project AND job_dataset.name = :name), :now)
ON CONFLICT (project, name) DO NOTHING

-- name: number_dataset_version
-- Take the next number. Of two that add a version at once, the second one looks again, and finds the first one's if it is the same.
UPDATE dataset SET versions = versions + 1 WHERE project = :project AND name = :name AND versions = :seen

-- name: add_dataset_version
-- Add a version without files, which nobody sees yet.
INSERT INTO dataset_version (id, dataset, project, number, digest, state, because, photos, captions, masks, bytes, findings,
                             moved_ms, made_ms)
VALUES (:id, (SELECT dataset.id FROM dataset WHERE dataset.project = :project AND dataset.name = :name), :project, :number, :digest,
        'adding', '', :photos, :captions, :masks, :bytes, '', :now, :now)

-- name: dataset_versions
-- List versions of a data set below a number, newest first.
SELECT {shown_version},
       (SELECT COUNT(*) FROM job_dataset WHERE job_dataset.version = found.id) AS jobs
FROM dataset_version AS found
WHERE found.dataset = :dataset AND found.number < :below AND found.state IN ('checking', 'ready', 'refused')
ORDER BY found.number DESC LIMIT :limit

-- name: versions_to_remove
-- List all versions of a data set that are seen, newest first.
SELECT id, dataset, number, used_ms FROM dataset_version
WHERE dataset = :dataset AND state IN ('checking', 'ready', 'refused') ORDER BY number DESC

-- name: version_of_number
SELECT {shown_version} FROM dataset JOIN dataset_version AS found ON found.dataset = dataset.id
WHERE dataset.project = :project AND dataset.name = :name AND found.number = :number
  AND found.state IN ('checking', 'ready', 'refused')

-- name: newest_ready
SELECT {shown_version} FROM dataset JOIN dataset_version AS found ON found.dataset = dataset.id
WHERE dataset.project = :project AND dataset.name = :name AND found.state = 'ready' ORDER BY found.number DESC LIMIT 1

-- name: dataset_version_of_content
-- Find the newest version, if it has this content, also while its files are still being added. An older one is not found: what was
-- pushed last is what a name without a number stands for.
SELECT {shown_version} FROM dataset_version AS found
WHERE found.dataset = :dataset AND found.digest = :digest AND found.state <> 'going'
  AND NOT EXISTS (SELECT 1 FROM dataset_version AS later
                  WHERE later.dataset = found.dataset AND later.number > found.number
                    AND later.state IN ('checking', 'ready', 'refused'))
ORDER BY found.number DESC LIMIT 1

-- name: dataset_version
-- Find a version with what its check found.
SELECT {shown_version}, found.findings, (SELECT COUNT(*) FROM job_dataset WHERE job_dataset.version = found.id) AS jobs
FROM dataset_version AS found WHERE found.id = :id

-- name: check_version_again
-- Somebody pushed a refused version again.
UPDATE dataset_version SET state = 'checking', because = '', findings = '', tries = 0, moved_ms = :now
WHERE id = :id AND state = 'refused'

-- name: hold_dataset_version
-- Only while its files are still being added: one that was given up meanwhile takes no more.
UPDATE dataset_version SET moved_ms = :now WHERE id = :id AND state = 'adding'

-- name: complete_dataset_version
-- From here on the version is seen and checked. Of two requests that add the same files, one completes it.
UPDATE dataset_version SET state = 'checking', moved_ms = :now WHERE id = :id AND state = 'adding'

-- name: versions_to_check
-- List versions that no server checks now, those first that have waited longest since their last step.
SELECT {shown_version}, found.moved_ms, found.tries FROM dataset_version AS found
WHERE found.state = 'checking' AND (found.server IN ('', :server) OR found.turn_ends_ms < :now)
ORDER BY found.moved_ms, found.id LIMIT 1

-- name: take_version_to_check
-- One server at a time takes a step of a check.
UPDATE dataset_version SET server = :server, turn_ends_ms = :turn_ends_ms, moved_ms = :now
WHERE id = :id AND state = 'checking' AND (server IN ('', :server) OR turn_ends_ms < :now)

-- name: leave_version_to_check
-- End the turn, if it is still this server's. The version may have been removed meanwhile: then nothing that was found of it is kept.
-- `tries` counts the steps in which a picture was missing, or took too much memory or time.
UPDATE dataset_version SET server = '', tries = :tries, moved_ms = :now WHERE id = :id AND server = :server

-- name: judge_dataset_version
-- Only in this server's turn: a version that was removed meanwhile is nobody's.
UPDATE dataset_version SET state = :state, because = :because, findings = :findings, checked_ms = :now, server = ''
WHERE id = :id AND server = :server

-- name: name_dataset_version
-- A job names the version: whoever was about to remove it looks again.
UPDATE dataset_version SET used_ms = CASE WHEN used_ms < :now THEN :now ELSE used_ms + 1 END WHERE id = :id AND state = 'ready'

-- name: add_job_dataset
INSERT INTO job_dataset (job, project, name, number, digest, version) VALUES (:job, :project, :name, :number, :digest, :version)

-- name: dataset_of_job
SELECT name, number, digest, version FROM job_dataset WHERE job = :job

-- name: remove_job_dataset
DELETE FROM job_dataset WHERE job = :job

-- name: jobs_of_versions
-- List jobs that named one version, or one of all that are seen (`number` 0), those that have not ended first.
SELECT job.id, job.state, job.ended_ms
FROM dataset_version JOIN job_dataset ON job_dataset.version = dataset_version.id JOIN job ON job.id = job_dataset.job
WHERE dataset_version.dataset = :dataset AND (dataset_version.number = :number OR :number = 0)
  AND dataset_version.state IN ('checking', 'ready', 'refused')
ORDER BY CASE WHEN job.ended_ms IS NULL THEN 0 ELSE 1 END, job.submitted_ms DESC, job.id LIMIT :limit

-- name: count_jobs_of_versions
-- Of those that have not ended, count too how many are of an experiment, and name the first and the last of their experiments.
SELECT COUNT(*) AS jobs, COUNT(*) - COUNT(job.ended_ms) AS running,
       COUNT(CASE WHEN job.ended_ms IS NULL THEN run.experiment END) AS of_experiments,
       MIN(CASE WHEN job.ended_ms IS NULL THEN run.experiment END) AS first_experiment,
       MAX(CASE WHEN job.ended_ms IS NULL THEN run.experiment END) AS last_experiment
FROM dataset_version JOIN job_dataset ON job_dataset.version = dataset_version.id JOIN job ON job.id = job_dataset.job
     LEFT JOIN experiment_run AS run ON run.job = job.id
WHERE dataset_version.dataset = :dataset AND (dataset_version.number = :number OR :number = 0)
  AND dataset_version.state IN ('checking', 'ready', 'refused')

-- name: give_up_dataset_version
-- Nobody sees it any more, unless a job has named it since it was read, or one that named it has not ended.
UPDATE dataset_version SET state = 'going', moved_ms = :now, server = ''
WHERE id = :id AND used_ms = :seen
  AND NOT EXISTS (SELECT 1 FROM job_dataset JOIN job ON job.id = job_dataset.job
                  WHERE job_dataset.version = dataset_version.id AND job.ended_ms IS NULL)

-- name: give_up_unfinished_version
-- Somebody began to add files long ago and never completed them, nor since it was read.
UPDATE dataset_version SET state = 'going', moved_ms = :now WHERE id = :id AND state = 'adding' AND moved_ms = :seen

-- name: versions_unfinished
SELECT id, moved_ms FROM dataset_version WHERE state = 'adding' AND moved_ms < :before ORDER BY moved_ms, id LIMIT :limit

-- name: versions_going
-- List some versions that are removed, those first whose last step is longest ago.
SELECT id, dataset, project, moved_ms FROM dataset_version WHERE state = 'going' ORDER BY moved_ms, id LIMIT :limit

-- name: move_dataset_removal
-- One server at a time takes a step of a removal.
UPDATE dataset_version SET moved_ms = CASE WHEN moved_ms < :now THEN :now ELSE moved_ms + 1 END
WHERE id = :id AND moved_ms = :seen

-- name: drop_dataset_version
DELETE FROM dataset_version WHERE id = :id

-- name: drop_dataset
-- Forget a name without versions. Its counter is the guard: a version may be added in this moment.
DELETE FROM dataset WHERE id = :id AND versions = :seen
  AND NOT EXISTS (SELECT 1 FROM dataset_version WHERE dataset_version.dataset = dataset.id)

-- name: dataset_by_id
SELECT id, versions FROM dataset WHERE id = :id

-- part: shown_version
found.id, found.dataset, found.project, found.number, found.digest, found.state, found.because, found.photos, found.captions,
    found.masks, found.bytes, found.used_ms, found.made_ms, found.checked_ms
