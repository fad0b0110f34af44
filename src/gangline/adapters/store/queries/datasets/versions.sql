-- Data sets by name, and their versions.

-- name: dataset
SELECT id, name, versions, made_ms FROM dataset WHERE project = :project AND name = :name

-- name: datasets
-- List the data sets of a project, each with its newest version.
SELECT dataset.name, dataset.made_ms AS since_ms, {shown_version},
       (SELECT COUNT(*) FROM job_dataset WHERE job_dataset.project = dataset.project AND job_dataset.name = dataset.name) AS jobs
FROM dataset JOIN dataset_version AS found ON found.dataset = dataset.id
WHERE dataset.project = :project
  AND found.number = (SELECT MAX(newest.number) FROM dataset_version AS newest
                      WHERE newest.dataset = dataset.id AND newest.state IN ('checking', 'ready', 'refused'))
ORDER BY dataset.name

-- name: add_dataset
INSERT INTO dataset (id, project, name, versions, made_ms) VALUES (:id, :project, :name, 0, :now)
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
-- List the versions of a data set, newest first.
SELECT {shown_version},
       (SELECT COUNT(*) FROM job_dataset WHERE job_dataset.version = found.id) AS jobs
FROM dataset_version AS found
WHERE found.dataset = :dataset AND found.state IN ('checking', 'ready', 'refused') ORDER BY found.number DESC

-- name: dataset_version_of_content
-- Find the version with this content, also one whose files are still being added.
SELECT {shown_version} FROM dataset_version AS found
WHERE found.dataset = :dataset AND found.digest = :digest AND found.state <> 'going'

-- name: dataset_version
SELECT {shown_version} FROM dataset_version AS found WHERE found.id = :id

-- name: hold_dataset_version
-- Only while its files are still being added: one that was given up meanwhile takes no more.
UPDATE dataset_version SET moved_ms = :now WHERE id = :id AND state = 'adding'

-- name: complete_dataset_version
-- From here on the version is seen and checked. Of two requests that add the same files, one completes it.
UPDATE dataset_version SET state = 'checking', moved_ms = :now WHERE id = :id AND state = 'adding'

-- name: versions_to_check
-- List versions that no server checks now, those first that have waited longest since their last step.
SELECT {shown_version}, found.moved_ms FROM dataset_version AS found
WHERE found.state = 'checking' AND (found.server IN ('', :server) OR found.turn_ends_ms < :now)
ORDER BY found.moved_ms, found.id LIMIT 1

-- name: take_version_to_check
-- One server at a time takes a step of a check.
UPDATE dataset_version SET server = :server, turn_ends_ms = :turn_ends_ms, moved_ms = :now
WHERE id = :id AND state = 'checking' AND (server IN ('', :server) OR turn_ends_ms < :now)

-- name: leave_version_to_check
-- End the turn, if it is still this server's. The version may have been removed meanwhile: then nothing that was found of it is kept.
UPDATE dataset_version SET server = '', moved_ms = :now WHERE id = :id AND server = :server

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

-- name: jobs_of_version
-- List the jobs that named a version, those that have not ended first.
SELECT job.id, job.state, job.ended_ms FROM job_dataset JOIN job ON job.id = job_dataset.job
WHERE job_dataset.version = :version
ORDER BY CASE WHEN job.ended_ms IS NULL THEN 0 ELSE 1 END, job.submitted_ms DESC, job.id

-- name: give_up_dataset_version
-- Nobody sees it any more, unless a job has named it since it was read, or one that named it has not ended.
UPDATE dataset_version SET state = 'going', moved_ms = :now, server = ''
WHERE id = :id AND used_ms = :seen
  AND NOT EXISTS (SELECT 1 FROM job_dataset JOIN job ON job.id = job_dataset.job
                  WHERE job_dataset.version = dataset_version.id AND job.ended_ms IS NULL)

-- name: give_up_unfinished_version
-- Somebody began to add files long ago and never completed them, nor since it was read.
UPDATE dataset_version SET state = 'going', moved_ms = :now WHERE id = :id AND moved_ms = :seen

-- name: versions_unfinished
SELECT id, moved_ms FROM dataset_version WHERE state = 'adding' AND moved_ms < :before ORDER BY moved_ms, id LIMIT :limit

-- name: versions_going
SELECT id, dataset, project, moved_ms FROM dataset_version WHERE state = 'going' AND moved_ms < :before ORDER BY moved_ms, id LIMIT :limit

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
    found.masks, found.bytes, found.findings, found.used_ms, found.made_ms, found.checked_ms
