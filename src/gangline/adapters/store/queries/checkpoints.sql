-- Checkpoints: committed, verified, rejected, pruned.

-- name: add_checkpoint
INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms)
VALUES (:id, :job, :attempt, :step, 'committed', '', :verified, :bytes, :prefix, :manifest, :now)
ON CONFLICT (attempt, step) DO NOTHING

-- name: checkpoints
-- List the committed checkpoints of a job, newest first; among equal steps the later attempt's is first.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.state, checkpoint.verified,
       checkpoint.bytes, checkpoint.prefix, checkpoint.manifest, checkpoint.committed_ms, checkpoint.heirs, attempt.node, job.project,
       (checkpoint.pinned = 1
        OR EXISTS (SELECT 1 FROM job AS heir WHERE heir.begins_from = checkpoint.job AND heir.ended_ms IS NULL)
        OR EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
                   WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL)) AS pinned
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt JOIN job ON job.id = checkpoint.job
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: commits_of_job
-- List every checkpoint that attempts of a job committed, those that are deleted or were rejected among them.
SELECT checkpoint.attempt, checkpoint.step, checkpoint.committed_ms
FROM attempt JOIN checkpoint ON checkpoint.attempt = attempt.id
WHERE attempt.job = :job ORDER BY checkpoint.committed_ms, checkpoint.step

-- name: checkpoints_to_verify
-- List the newest checkpoint of each job if the object store did not attest it; the longest waiting is first.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.prefix, checkpoint.manifest
FROM checkpoint
WHERE checkpoint.verified = 0 AND checkpoint.state = 'committed'
  AND NOT EXISTS (SELECT 1 FROM checkpoint AS newer WHERE newer.job = checkpoint.job AND newer.state = 'committed'
                  AND newer.step > checkpoint.step)
ORDER BY checkpoint.committed_ms, checkpoint.id LIMIT :limit

-- name: verify_checkpoint
-- Record that its bytes were read back.
UPDATE checkpoint SET verified = 1 WHERE id = :id

-- name: jobs_to_prune
-- List jobs with more committed checkpoints than are kept; pinned ones do not count.
SELECT job FROM checkpoint WHERE state = 'committed' AND pinned = 0 GROUP BY job HAVING COUNT(*) > :kept

-- name: reject_checkpoint
-- Reject a checkpoint of the job, or of the job from which it was to start.
UPDATE checkpoint SET state = 'rejected', because = :because
WHERE id = :id AND state = 'committed' AND (job = :job OR job = (SELECT begins_from FROM job AS heir WHERE heir.id = :job))

-- name: bequeath_checkpoints
-- Count another job that will start from these; the count is the guard of `prune_checkpoint`.
UPDATE checkpoint SET heirs = heirs + 1 WHERE job = :job AND state = 'committed'

-- name: bequeath_step
-- Count another job that will start from this one alone, while it is committed.
UPDATE checkpoint SET heirs = heirs + 1 WHERE job = :job AND step = :step AND state = 'committed'

-- name: gone_checkpoints
-- List the checkpoints of a job that are not kept any more, and why; newest first.
SELECT step, state, because FROM checkpoint WHERE job = :job AND state <> 'committed' ORDER BY step DESC, id

-- name: prune_checkpoint
-- Prune the checkpoint, unless since it was read its owner has pinned it or another job was submitted to start from it.
UPDATE checkpoint SET state = 'pruned', because = :because
WHERE id = :id AND state = 'committed' AND pinned = 0 AND heirs = :heirs
