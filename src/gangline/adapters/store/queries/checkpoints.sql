-- Checkpoints: committed, verified, rejected, pruned.

-- name: add_checkpoint
INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms)
VALUES (:id, :job, :attempt, :step, 'committed', '', :verified, :bytes, :prefix, :manifest, :now)
ON CONFLICT (attempt, step) DO NOTHING

-- name: checkpoints
-- The committed ones of a job, newest first: among equal steps the younger attempt's.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.state, checkpoint.verified,
       checkpoint.bytes, checkpoint.prefix, checkpoint.manifest, checkpoint.committed_ms, checkpoint.heirs, attempt.node, job.project,
       (checkpoint.pinned = 1
        OR EXISTS (SELECT 1 FROM job AS heir WHERE heir.begins_from = checkpoint.job AND heir.ended_ms IS NULL)
        OR EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
                   WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL)) AS pinned
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt JOIN job ON job.id = checkpoint.job
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: checkpoints_to_verify
-- The newest of each job, where the object store did not attest it; who waits for longest comes first.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.prefix, checkpoint.manifest
FROM checkpoint
WHERE checkpoint.verified = 0 AND checkpoint.state = 'committed'
  AND NOT EXISTS (SELECT 1 FROM checkpoint AS newer WHERE newer.job = checkpoint.job AND newer.state = 'committed'
                  AND newer.step > checkpoint.step)
ORDER BY checkpoint.committed_ms, checkpoint.id LIMIT :limit

-- name: verify_checkpoint
-- Its bytes were read back.
UPDATE checkpoint SET verified = 1 WHERE id = :id

-- name: jobs_to_prune
-- Jobs with more committed checkpoints than are kept, besides pinned ones.
SELECT job FROM checkpoint WHERE state = 'committed' AND pinned = 0 GROUP BY job HAVING COUNT(*) > :kept

-- name: reject_checkpoint
-- Also by a job that was to begin from it.
UPDATE checkpoint SET state = 'rejected', because = :because
WHERE id = :id AND state = 'committed' AND (job = :job OR job = (SELECT begins_from FROM job AS heir WHERE heir.id = :job))

-- name: bequeath_checkpoints
-- Another job is to begin from those of this one.
UPDATE checkpoint SET heirs = heirs + 1 WHERE job = :job AND state = 'committed'

-- name: prune_checkpoint
-- Unless its owner has pinned it meanwhile, or another job is to begin from it.
UPDATE checkpoint SET state = 'pruned', because = :because
WHERE id = :id AND state = 'committed' AND pinned = 0 AND heirs = :heirs
