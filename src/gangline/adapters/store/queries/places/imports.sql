-- Photos that are fetched for jobs from where they lie.

-- name: await_photos
-- Until they are here, the spec says where they are.
UPDATE job SET fetching = 1, imported = 1, spec = :spec WHERE id = :id

-- name: add_import
INSERT INTO photo_import (job, state, asked, places, done, files, because, server, turn_ends_ms, tries)
VALUES (:job, 'fetching', :asked, :places, 0, 0, '', '', 0, 0)

-- name: import_of
SELECT photo_import.job, photo_import.state, photo_import.places, photo_import.done, photo_import.files, photo_import.because,
       photo_import.turn_ends_ms, photo_import.tries, job.project, job.spec, job.ended_ms
FROM photo_import JOIN job ON job.id = photo_import.job WHERE photo_import.job = :job

-- name: imports_to_make
-- Not in another's turn.
SELECT job FROM photo_import WHERE state = 'fetching' AND (turn_ends_ms < :now OR server = :server)
ORDER BY turn_ends_ms, job LIMIT 100

-- name: take_import
-- One at a time fetches them.
UPDATE photo_import SET server = :server, turn_ends_ms = :turn_ends_ms
WHERE job = :job AND (turn_ends_ms < :now OR server = :server)

-- name: advance_import
-- By whose turn it is.
UPDATE photo_import SET done = :done, files = :files, tries = :tries, because = :because, turn_ends_ms = :turn_ends_ms
WHERE job = :job AND server = :server

-- name: end_import
-- Of a turn, too: nobody begins another one before a moment.
UPDATE photo_import SET state = :state, because = :because, tries = :tries, turn_ends_ms = :not_before_ms, server = ''
WHERE job = :job AND server = :server

-- name: fill_job
-- All its photos are here: from now on its spec stays as it is, and a node may have it.
UPDATE job SET fetching = 0, spec = :spec, spec_hash = :spec_hash, workload = :workload, input_bytes = :input_bytes,
       because = CASE WHEN state = 'queued' THEN :because ELSE because END, ready_ms = :now, queued_ms = :now, version = version + 1
WHERE id = :id AND ended_ms IS NULL

-- name: remove_import
DELETE FROM photo_import WHERE job = :job
