-- Objects other than checkpoints: inputs, open uploads, results, logs, prepared files; and what is swept.

-- name: blob
SELECT bytes, going FROM blob WHERE project = :project AND sha256 = :sha256

-- name: add_blob
-- Add the file, or renew it if it was uploaded before. Neither is possible while it is being deleted.
INSERT INTO blob (project, sha256, bytes, made_ms, used_ms) VALUES (:project, :sha256, :bytes, :now, :now)
ON CONFLICT (project, sha256) DO UPDATE SET used_ms = excluded.used_ms WHERE blob.going = ''

-- name: use_blob
-- Renew the file when a job or a base names it: a server that was about to delete it then finds another `used_ms` and reads it again.
UPDATE blob SET used_ms = :now WHERE project = :project AND sha256 = :sha256 AND going = ''

-- name: upload
SELECT key, begun, bytes, sha256, parts FROM upload WHERE key = :key

-- name: keep_upload
-- Add the upload, or replace the one that was read.
INSERT INTO upload (key, attempt, begun, bytes, sha256, parts, made_ms)
VALUES (:key, :attempt, :begun, :bytes, :sha256, :parts, :now)
ON CONFLICT (key) DO UPDATE SET begun = excluded.begun, bytes = excluded.bytes, sha256 = excluded.sha256, parts = excluded.parts,
    made_ms = excluded.made_ms
WHERE upload.begun = :seen

-- name: drop_upload
-- Delete only the upload that was read: the key may have a newer one since.
DELETE FROM upload WHERE key = :key AND begun = :begun

-- name: uploads_of_attempt
SELECT key, begun FROM upload WHERE attempt = :attempt

-- name: uploads_left
-- List open uploads of users that began long ago.
SELECT key, begun FROM upload WHERE attempt = '' AND made_ms < :before ORDER BY made_ms LIMIT :limit

-- name: add_artifact
-- Images may have been uploaded before.
INSERT INTO artifact (job, path, attempt, key, bytes, sha256, made_ms)
VALUES (:job, :path, :attempt, :key, :bytes, :sha256, :now)
ON CONFLICT (job, path) DO NOTHING

-- name: artifacts
SELECT path, attempt, key, bytes, sha256 FROM artifact WHERE job = :job ORDER BY path

-- name: add_log_chunk
-- A chunk that is sent twice is stored once: a node repeats a request whose answer was lost.
INSERT INTO log_chunk (attempt, first_byte, bytes, key) VALUES (:attempt, :first_byte, :bytes, :key)
ON CONFLICT (attempt, first_byte) DO NOTHING

-- name: log_chunks
SELECT attempt.fencing, log_chunk.attempt, log_chunk.first_byte, log_chunk.bytes, log_chunk.key
FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt
WHERE attempt.job = :job
  AND (attempt.fencing > :fencing OR (attempt.fencing = :fencing AND log_chunk.first_byte >= :first_byte))
ORDER BY attempt.fencing, log_chunk.first_byte

-- name: log_extents
SELECT attempt.id AS attempt, attempt.fencing, CAST(MAX(log_chunk.first_byte + log_chunk.bytes) AS BIGINT) AS bytes
FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt
WHERE attempt.job = :job GROUP BY attempt.id, attempt.fencing ORDER BY attempt.fencing

-- name: add_prepared
INSERT INTO prepared (project, key, attempt, subject, numerics, trust, prefix, manifest, made_ms, used_ms)
VALUES (:project, :key, :attempt, :subject, :numerics, :trust, :prefix, :manifest, :now, :now)
ON CONFLICT (project, key, attempt) DO NOTHING

-- name: prepared_for
-- List prepared files that a job may use on a node: first those of its own attempts, then those that existed when its first attempt
-- began. So a later attempt gets the same files as the first one.
SELECT prepared.key, prepared.attempt, prepared.prefix, prepared.manifest, prepared.used_ms
FROM prepared JOIN attempt ON attempt.id = prepared.attempt
WHERE prepared.project = :project AND prepared.subject IN (:latents, :embeddings, :class_images)
  AND prepared.numerics IN ('', :numerics) AND prepared.trust >= :trust
  AND (attempt.job = :job
       OR prepared.made_ms <= (SELECT MIN(began.started_ms) FROM attempt AS began WHERE began.job = :job))
ORDER BY CASE WHEN attempt.job = :job THEN 0 ELSE 1 END, prepared.made_ms, prepared.attempt

-- name: use_prepared
UPDATE prepared SET used_ms = :now WHERE project = :project AND key = :key AND attempt = :attempt

-- name: prepared_unused
SELECT project, key, attempt, prefix, manifest, used_ms FROM prepared WHERE used_ms < :before ORDER BY used_ms LIMIT :limit

-- name: forget_prepared
-- Delete the row, unless a job was given the files since it was read.
DELETE FROM prepared WHERE project = :project AND key = :key AND attempt = :attempt AND used_ms = :seen

-- name: attempts_to_sweep
-- List attempts that ended so long ago that nothing more can arrive.
SELECT attempt.id, attempt.job, attempt.sweeps_asked, job.project FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.swept = 0 AND attempt.state <> 'live' AND attempt.ended_ms < :before
ORDER BY attempt.ended_ms, attempt.id LIMIT :limit

-- name: mark_swept
-- Mark the attempt, unless something of it was dropped since the sweep began.
UPDATE attempt SET swept = 1 WHERE id = :attempt AND sweeps_asked = :asked

-- name: sweep_again
-- Sweep the attempt again whose checkpoint is no longer referred to.
UPDATE attempt SET swept = 0, sweeps_asked = sweeps_asked + 1
WHERE id = (SELECT checkpoint.attempt FROM checkpoint WHERE checkpoint.id = :checkpoint)

-- name: sweep_attempt_again
-- Sweep an attempt again of which something other than a checkpoint is no longer referred to.
UPDATE attempt SET swept = 0, sweeps_asked = sweeps_asked + 1 WHERE id = :attempt

-- name: referred
-- List what the database refers to among an attempt's objects: checkpoints and prepared files by prefix and manifest, the rest by key.
SELECT checkpoint.prefix AS key, checkpoint.manifest FROM checkpoint
WHERE checkpoint.attempt = :attempt AND checkpoint.state = 'committed'
UNION ALL SELECT prepared.prefix AS key, prepared.manifest FROM prepared WHERE prepared.attempt = :attempt
UNION ALL SELECT artifact.key, '' AS manifest FROM artifact WHERE artifact.attempt = :attempt
UNION ALL SELECT artifact.thumbnail AS key, '' AS manifest FROM artifact WHERE artifact.attempt = :attempt AND artifact.thumbnail <> ''
UNION ALL SELECT log_chunk.key, '' AS manifest FROM log_chunk WHERE log_chunk.attempt = :attempt
