-- Every statement of the server, by name. `:name` is a parameter.
-- A write that carries a guard changes no row when somebody else moved on; the store then undoes the whole transaction.

-- name: token
-- Whose token it is.
SELECT token.role, token.project, token.node, node.machine, node.state AS node_state
FROM token LEFT JOIN node ON node.id = token.node
WHERE token.hash = :hash

-- name: add_token
INSERT INTO token (hash, role, project, node, made_ms) VALUES (:hash, :role, :project, :node, :now)
ON CONFLICT (hash) DO NOTHING

-- name: add_node
INSERT INTO node (id, machine, name, pool, state, slots, capabilities, price_micro_usd_per_hour, joined_ms, seen_ms)
VALUES (:id, :machine, :name, :pool, 'ready', :slots, :capabilities, :price_micro_usd_per_hour, :now, :now)

-- name: node
SELECT id, machine, name, pool, state, slots, price_micro_usd_per_hour, seen_ms FROM node WHERE id = :id

-- name: nodes
-- Those that are here, and what each is working on.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.slots, node.price_micro_usd_per_hour,
       node.joined_ms, node.seen_ms, attempt.job, lease.phase
FROM node LEFT JOIN lease ON lease.node = node.id LEFT JOIN attempt ON attempt.id = lease.attempt
WHERE node.state <> 'gone'
ORDER BY node.joined_ms, node.id

-- name: silent_nodes
-- A node that holds a lease is heard of through it.
SELECT id FROM node
WHERE state <> 'gone' AND seen_ms < :before AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: node_seen
UPDATE node SET seen_ms = :now WHERE id = :id AND state <> 'gone'

-- name: node_gone
UPDATE node SET state = 'gone' WHERE id = :id AND state <> 'gone'

-- name: node_silent_gone
-- Only if it is silent still.
UPDATE node SET state = 'gone'
WHERE id = :id AND state <> 'gone' AND seen_ms < :before
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: slots_taken
SELECT COALESCE(SUM(slots), 0) AS slots FROM lease WHERE node = :node

-- name: blob
SELECT bytes FROM blob WHERE project = :project AND sha256 = :sha256

-- name: add_blob
INSERT INTO blob (project, sha256, bytes, made_ms) VALUES (:project, :sha256, :bytes, :now)
ON CONFLICT (project, sha256) DO NOTHING

-- name: add_job
INSERT INTO job (id, project, name, kind, spec, spec_hash, request, state, because, steps, fencing, attempts_failed,
                 version, submitted_ms, queued_ms)
VALUES (:id, :project, :name, :kind, :spec, :spec_hash, :request, 'queued', :because, :steps, 0, 0, 1, :now, :now)
ON CONFLICT DO NOTHING

-- name: job_of_request
SELECT id, spec_hash FROM job WHERE project = :project AND request = :request

-- name: job
SELECT id, project, name, kind, spec, spec_hash, state, because, steps, fencing, attempts_failed, version,
       submitted_ms, queued_ms, ended_ms
FROM job WHERE id = :id

-- name: jobs_page
-- Newest first, after the one that the last page ended with.
SELECT id, project, name, kind, spec_hash, state, because, steps, fencing, attempts_failed, version,
       submitted_ms, queued_ms, ended_ms
FROM job
WHERE project = :project
  AND (submitted_ms < :before_ms OR (submitted_ms = :before_ms AND id < :before_id))
ORDER BY submitted_ms DESC, id DESC
LIMIT :limit

-- name: candidates
-- Jobs that a node may take: those that were interrupted before fresh ones, then by age.
SELECT id, project, spec, fencing, version, attempts_failed, queued_ms
FROM job WHERE state = 'queued'
ORDER BY CASE WHEN fencing > 0 THEN 0 ELSE 1 END, submitted_ms, id
LIMIT :limit

-- name: queue_length
SELECT COUNT(*) AS jobs FROM job WHERE state = 'queued'

-- name: take_job
-- The claim: only if the job is still as it was seen.
UPDATE job SET state = 'running', because = :because, fencing = fencing + 1, version = version + 1
WHERE id = :id AND version = :version AND state = 'queued'

-- name: add_attempt
INSERT INTO attempt (id, job, node, machine, fencing, state, because, slots, price_micro_usd_per_hour,
                     from_step, step, beat_ms, started_ms)
VALUES (:id, :job, :node, :machine, :fencing, 'live', :because, :slots, :price_micro_usd_per_hour,
        :from_step, :from_step, :now, :now)

-- name: add_lease
-- Only on a node that is here and has the slots free.
INSERT INTO lease (attempt, rank, node, fencing, slots, expires_ms, beat_ms, phase, step)
SELECT :attempt, :rank, node.id, :fencing, :slots, :expires_ms, :now, 'starting', :from_step
FROM node
WHERE node.id = :node AND node.state = 'ready'
  AND node.slots >= :slots + (SELECT COALESCE(SUM(held.slots), 0) FROM lease AS held WHERE held.node = node.id)

-- name: renew_lease
-- A heartbeat. A holder whose lease is overdue but not yet taken away may renew it.
UPDATE lease SET expires_ms = :expires_ms, beat_ms = :now, phase = :phase, step = :step,
       loss = COALESCE(:loss, loss), seconds_per_step = COALESCE(:seconds_per_step, seconds_per_step),
       training_ms = CASE WHEN training_ms IS NULL AND :has_trained = 1 THEN :now ELSE training_ms END
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: hold_lease
-- The guard of every other write of a worker: it holds the live lease.
UPDATE lease SET beat_ms = beat_ms
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: lease
SELECT lease.attempt, lease.rank, lease.node, lease.fencing, lease.expires_ms, lease.beat_ms, lease.phase, lease.step,
       lease.loss, lease.seconds_per_step, lease.training_ms, attempt.job
FROM lease JOIN attempt ON attempt.id = lease.attempt
WHERE lease.attempt = :attempt AND lease.rank = :rank AND lease.node = :node AND lease.fencing = :fencing

-- name: overdue_leases
SELECT lease.attempt, lease.node, lease.expires_ms FROM lease WHERE lease.expires_ms < :now ORDER BY lease.expires_ms

-- name: leases_of_node
SELECT lease.attempt, lease.node, lease.expires_ms FROM lease WHERE lease.node = :node

-- name: seize_overdue_lease
-- The server's right to end an attempt: only while its lease is overdue.
DELETE FROM lease WHERE attempt = :attempt AND expires_ms < :now

-- name: give_up_lease
-- The holder's right to end its own attempt.
DELETE FROM lease WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: drop_leases
-- Of an attempt that another guard of the same transaction has ended.
DELETE FROM lease WHERE attempt = :attempt

-- name: copy_last_beat
-- What the lease knew last, kept with the attempt before the lease goes.
UPDATE attempt SET step = lease.step, loss = lease.loss, seconds_per_step = lease.seconds_per_step,
       training_ms = lease.training_ms, beat_ms = lease.beat_ms
FROM lease WHERE attempt.id = :attempt AND lease.attempt = attempt.id AND lease.rank = 0

-- name: end_attempt
UPDATE attempt SET state = :state, because = :because, ended_ms = :now WHERE id = :attempt AND state = 'live'

-- name: attempt
SELECT id, job, node, machine, fencing, state, because, slots, price_micro_usd_per_hour, from_step, step, loss,
       seconds_per_step, training_ms, beat_ms, started_ms, ended_ms
FROM attempt WHERE id = :id

-- name: attempts
-- Of a job, in order; a live one with what its lease knows.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, node.name AS node_name, attempt.fencing, attempt.state,
       attempt.because, attempt.slots, attempt.price_micro_usd_per_hour, attempt.from_step, attempt.started_ms, attempt.ended_ms,
       COALESCE(lease.step, attempt.step) AS step, COALESCE(lease.loss, attempt.loss) AS loss,
       COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       COALESCE(lease.training_ms, attempt.training_ms) AS training_ms,
       COALESCE(lease.beat_ms, attempt.beat_ms) AS beat_ms, lease.phase,
       (SELECT SUM(micro_usd) FROM ledger WHERE ledger.attempt = attempt.id) AS micro_usd
FROM attempt JOIN node ON node.id = attempt.node
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.job = :job ORDER BY attempt.fencing

-- name: set_job_state
-- Only if nobody else moved the job on since it was read.
UPDATE job SET state = :state, because = :because, attempts_failed = :attempts_failed, version = version + 1,
       queued_ms = CASE WHEN :state = 'queued' THEN :now ELSE queued_ms END,
       ended_ms = CASE WHEN :state IN ('succeeded', 'failed', 'canceled') THEN :now ELSE NULL END
WHERE id = :id AND version = :version

-- name: add_checkpoint
INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms)
VALUES (:id, :job, :attempt, :step, 'committed', '', :verified, :bytes, :prefix, :manifest, :now)
ON CONFLICT (attempt, step) DO NOTHING

-- name: checkpoints
-- The committed ones of a job, newest first: among equal steps the younger attempt's.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.state, checkpoint.verified,
       checkpoint.bytes, checkpoint.prefix, checkpoint.manifest, checkpoint.committed_ms
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: jobs_to_prune
-- Jobs with more committed checkpoints than are kept.
SELECT job FROM checkpoint WHERE state = 'committed' GROUP BY job HAVING COUNT(*) > :kept

-- name: reject_checkpoint
UPDATE checkpoint SET state = 'rejected', because = :because WHERE id = :id AND job = :job AND state = 'committed'

-- name: restart_attempt
-- After a rejection: it goes on from the newest checkpoint that is left.
UPDATE attempt SET from_step = COALESCE((SELECT MAX(checkpoint.step) FROM checkpoint
                                         WHERE checkpoint.job = attempt.job AND checkpoint.state = 'committed'), 0)
WHERE id = :attempt

-- name: prune_checkpoint
UPDATE checkpoint SET state = 'pruned', because = :because WHERE id = :id AND state = 'committed'

-- name: add_artifact
INSERT INTO artifact (job, path, attempt, key, bytes, sha256) VALUES (:job, :path, :attempt, :key, :bytes, :sha256)

-- name: artifacts
SELECT path, attempt, key, bytes, sha256 FROM artifact WHERE job = :job ORDER BY path

-- name: add_log_chunk
INSERT INTO log_chunk (attempt, first_byte, bytes, key) VALUES (:attempt, :first_byte, :bytes, :key)
ON CONFLICT (attempt, first_byte) DO NOTHING

-- name: log_chunks
SELECT attempt.fencing, log_chunk.attempt, log_chunk.first_byte, log_chunk.bytes, log_chunk.key
FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt
WHERE attempt.job = :job
  AND (attempt.fencing > :fencing OR (attempt.fencing = :fencing AND log_chunk.first_byte >= :first_byte))
ORDER BY attempt.fencing, log_chunk.first_byte

-- name: add_event
INSERT INTO event (job, number, at_ms, kind, attempt, node, because)
SELECT :job, COALESCE(MAX(number), 0) + 1, :now, :kind, :attempt, :node, :because FROM event WHERE job = :job

-- name: events
SELECT number, at_ms, kind, attempt, node, because FROM event WHERE job = :job AND number > :after ORDER BY number

-- name: add_cost
INSERT INTO ledger (attempt, cause, job, node, from_ms, to_ms, micro_usd)
VALUES (:attempt, :cause, :job, :node, :from_ms, :to_ms, :micro_usd)
