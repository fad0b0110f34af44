-- Imports: photos that are downloaded for jobs.

-- name: await_photos
-- Until the photos are fetched, the spec contains their addresses.
UPDATE job SET fetching = 1, imported = 1, spec = :spec WHERE id = :id

-- name: add_import
INSERT INTO photo_import (job, state, asked, places, done, files, because, server, turn_ends_ms, tries)
VALUES (:job, 'fetching', :asked, :places, 0, 0, '', '', 0, 0)

-- name: import_of
SELECT photo_import.job, photo_import.state, photo_import.places, photo_import.done, photo_import.files, photo_import.because,
       photo_import.turn_ends_ms, photo_import.tries, photo_import.spent_ms, job.project, job.spec, job.ended_ms
FROM photo_import JOIN job ON job.id = photo_import.job WHERE photo_import.job = :job

-- name: imports_of_jobs
SELECT photo_import.job, photo_import.done, photo_import.files, photo_import.because, photo_import.turn_ends_ms FROM {listed_ids}
    JOIN photo_import ON photo_import.job = listed.id

-- name: imports_to_make
-- List imports that are not in another server's turn, of projects below their limit of concurrent imports: projects with the fewest
-- first, then the oldest imports.
SELECT photo_import.job, job.project FROM photo_import JOIN job ON job.id = photo_import.job
LEFT JOIN (SELECT job.project, COUNT(*) AS fetches FROM photo_import JOIN job ON job.id = photo_import.job
           WHERE photo_import.server <> '' AND photo_import.server <> :server AND photo_import.turn_ends_ms >= :now
           GROUP BY job.project) AS held ON held.project = job.project
WHERE photo_import.state = 'fetching' AND (photo_import.turn_ends_ms < :now OR photo_import.server = :server)
  AND COALESCE(held.fetches, 0) < :at_once_max
ORDER BY COALESCE(held.fetches, 0), photo_import.job LIMIT 100

-- name: hold_project
-- Lock the project's row before an import is taken, so that the count of its imports is exact: PostgreSQL lets a second transaction pass
-- only after the first has committed.
UPDATE project SET share = share WHERE id = :project

-- name: take_import
-- Take the turn: one thread at a time downloads an import, and a project has at most `:at_once_max`. Each thread has its own `:server`
-- and one import at a time, so another import with its name was left by a process that died.
UPDATE photo_import SET server = :server, turn_ends_ms = :turn_ends_ms
WHERE job = :job AND state = 'fetching' AND (turn_ends_ms < :now OR server = :server)
  AND (SELECT COUNT(*) FROM photo_import AS other JOIN job ON job.id = other.job
       WHERE other.server <> '' AND other.server <> :server AND other.turn_ends_ms >= :now AND job.project = :project) < :at_once_max

-- name: advance_import
-- Record progress, only by the server whose turn it is.
UPDATE photo_import SET done = :done, files = :files, tries = :tries, because = :because, turn_ends_ms = :turn_ends_ms, spent_ms = :spent_ms
WHERE job = :job AND server = :server

-- name: end_import
-- End the turn, only by the server whose turn it is; the next one may not start before `:not_before_ms`.
UPDATE photo_import SET state = :state, because = :because, tries = :tries, turn_ends_ms = :not_before_ms, server = '', spent_ms = :spent_ms
WHERE job = :job AND server = :server

-- name: fill_job
-- All photos are stored: from now on the spec stays as it is, and a node may claim the job. A job that has ended is left alone.
UPDATE job SET fetching = 0, spec = :spec, spec_hash = :spec_hash, workload = :workload, input_bytes = :input_bytes,
       because = CASE WHEN state = 'queued' THEN :because ELSE because END, ready_ms = :now, queued_ms = :now, version = version + 1
WHERE id = :id AND ended_ms IS NULL

-- name: remove_import
DELETE FROM photo_import WHERE job = :job
