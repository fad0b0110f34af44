-- Attempts and the leases that fence them.

-- name: renew_lease
-- Record a heartbeat. The holder of an overdue lease may renew it as long as it was not taken away. If a trainer restarts within its
-- attempt, its first step gets the full time again, counted from when it trains. The loss that metrics have of a step stays.
UPDATE lease SET expires_ms = :expires_ms, beat_ms = :now, phase = :phase, step = :step,
       phase_ms = CASE WHEN phase <> :phase THEN :now ELSE phase_ms END,
       loss = CASE WHEN :step = step THEN COALESCE(loss, :loss) ELSE COALESCE(:loss, loss) END,
       seconds_per_step = COALESCE(:seconds_per_step, seconds_per_step),
       memory_bytes = COALESCE(CAST(:memory_bytes AS BIGINT), memory_bytes),
       training_ms = CASE WHEN :training_ms < started_ms THEN started_ms
                          WHEN training_ms IS NULL OR training_ms > :training_ms THEN :training_ms ELSE training_ms END,
       stepped_ms = CASE WHEN :step > step OR phase <> 'training' THEN :now ELSE stepped_ms END
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing
RETURNING attempt, stop, reserved, downloaded_bytes, price_micro_usd_per_hour, started_ms, phase_ms,
          CAST((SELECT COUNT(*) FROM attempt AS own JOIN wish ON wish.job = own.job WHERE own.id = lease.attempt) AS BIGINT) AS wishes

-- name: add_phase
-- Record that an attempt went into another phase, while it has its lease. A beat that is repeated within the same millisecond adds nothing.
INSERT INTO attempt_phase (attempt, at_ms, phase)
SELECT attempt, phase_ms, phase FROM lease WHERE attempt = :attempt
ON CONFLICT (attempt, at_ms) DO NOTHING

-- name: phases_of_job
-- List when each attempt of a job went into which phase.
SELECT attempt_phase.attempt, attempt_phase.at_ms, attempt_phase.phase
FROM attempt JOIN attempt_phase ON attempt_phase.attempt = attempt.id
WHERE attempt.job = :job ORDER BY attempt.fencing, attempt_phase.at_ms

-- name: count_steps
-- Record how many steps a command says that it has.
UPDATE job SET steps = :steps WHERE id = (SELECT job FROM attempt WHERE id = :attempt) AND kind = 'command'

-- name: extend_reservation
-- Extend the reservation that was read: of two requests that saw the same one, the second reads again, so that no dollar is reserved
-- twice.
UPDATE lease SET reserved = reserved + :micro_usd WHERE attempt = :attempt AND reserved = :seen

-- name: ask_to_stop
-- Ask the attempt to stop; the node gets this with its next heartbeat. The first reason stays.
UPDATE lease SET stop = :because, stop_kind = :kind, stop_ms = :now WHERE attempt = :attempt AND stop = ''

-- name: ask_to_pause
-- Ask the attempt to pause: the owner's wish overrides any other reason to stop.
UPDATE lease SET stop = :because, stop_kind = 'paused', stop_ms = COALESCE(stop_ms, :now) WHERE attempt = :attempt

-- name: unpause_lease
-- The node still saves and returns the job, but its stop is no longer a pause, so the job is queued again.
UPDATE lease SET stop = :because, stop_kind = '' WHERE attempt = :attempt

-- name: count_download
-- Count downloaded bytes on the lease that `lease_of` names, so that a lost lease is not billed. Of two requests at once the second
-- reads again.
UPDATE lease SET downloaded_bytes = downloaded_bytes + :bytes
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing AND downloaded_bytes = :seen

-- name: hold_lease
-- Guard every other write of a worker: it must hold the live lease. Each is a sign of life, and metrics and checkpoints may be newer than
-- the last heartbeat. Metrics that are sent again, or come too late, change nothing.
UPDATE lease SET beat_ms = CASE WHEN :now > beat_ms THEN :now ELSE beat_ms END,
       loss = CASE WHEN :step >= step AND NOT EXISTS (SELECT 1 FROM metric WHERE metric.attempt = lease.attempt AND metric.step >= :step)
                   THEN COALESCE(:loss, loss) ELSE loss END,
       stepped_ms = CASE WHEN :step > step THEN :now ELSE stepped_ms END,
       step = CASE WHEN :step > step THEN :step ELSE step END
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: lease
SELECT attempt, stop, reserved, downloaded_bytes, price_micro_usd_per_hour, started_ms FROM lease
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: live_leases
-- List leases for the watchdog and for the comparison of paces. What has a lease is live, and its job runs: the states name the indexes.
SELECT lease.attempt, lease.phase, lease.step, lease.seconds_per_step, lease.training_ms, lease.stepped_ms, lease.stop,
       lease.memory_bytes, attempt.gpu_memory_gb,
       attempt.node, attempt.job, attempt.machine, attempt.pool, attempt.workload, attempt.gpu, attempt.started_ms,
       attempt.committed_ms, job.kind AS job_kind, job.steps, job.save_s, node.rented, node.state AS node_state
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job JOIN node ON node.id = lease.node
WHERE lease.rank = 0 AND attempt.state = 'live' AND job.state = 'running'

-- name: overdue_leases
SELECT lease.attempt, lease.expires_ms FROM lease WHERE lease.expires_ms < :now ORDER BY lease.expires_ms, lease.attempt

-- name: unheeded_stops
-- List attempts that were asked to stop and have not done so in time.
SELECT attempt, stop, stop_kind FROM lease WHERE stop <> '' AND stop_ms < :before ORDER BY stop_ms, attempt

-- name: leases_of_node
SELECT attempt FROM lease WHERE node = :node ORDER BY attempt

-- name: seize_overdue_lease
-- Take the lease from its node, which ends the attempt; only while the lease is overdue.
DELETE FROM lease
WHERE attempt = :attempt AND expires_ms < :now AND downloaded_bytes = :downloaded AND reserved = :reserved

-- name: drop_lease
-- Delete the lease of an attempt that ends for another reason, only if it is as it was read: so what is recorded and billed is exact.
DELETE FROM lease
WHERE attempt = :attempt AND beat_ms = :beat_ms AND downloaded_bytes = :downloaded AND reserved = :reserved

-- name: end_attempt
-- Record the end, with the last values of the lease.
UPDATE attempt SET state = :state, kind = :kind, because = :because, ended_ms = :now, step = :step, loss = :loss,
       seconds_per_step = :seconds_per_step, training_ms = :training_ms, beat_ms = :beat_ms
WHERE id = :attempt

-- name: take_last_step
-- Record how far an attempt came whose job has succeeded: its last heartbeat was before its last step.
UPDATE attempt SET step = :step WHERE id = :attempt

-- name: ending
-- Read a live attempt with all that its end changes: its lease, its job, the project's budget, its node and the machine.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, attempt.pool, attempt.gpu, attempt.gpu_memory_gb,
       attempt.workload, attempt.fencing, attempt.state, attempt.kind, attempt.slots, attempt.price_micro_usd_per_hour,
       attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms,
       lease.step, lease.loss, lease.seconds_per_step, lease.training_ms, lease.beat_ms, lease.rank, lease.stop, lease.stop_kind,
       lease.reserved, lease.downloaded_bytes,
       job.id AS job_id, job.project AS job_project, job.state AS job_state, job.fencing AS job_fencing,
       job.version AS job_version, job.attempts_failed AS job_attempts_failed, job.attempts_max AS job_attempts_max,
       job.gpu_memory_gb AS job_gpu_memory_gb, job.kind AS job_kind, job.base AS job_base, job.steps AS job_steps,
       project.id AS purse_id, project.share AS purse_share, project.usage AS purse_usage,
       project.usage_ms AS purse_usage_ms, project.budget AS purse_budget, project.spent AS purse_spent,
       project.reserved AS purse_reserved,
       node.id AS node_id, node.machine AS node_machine, node.name AS node_name, node.pool AS node_pool,
       node.state AS node_state, node.because AS node_because, node.gpu AS node_gpu,
       node.gpu_memory_gb AS node_gpu_memory_gb, node.trust AS node_trust, node.numerics AS node_numerics,
       node.slots AS node_slots, node.price_micro_usd_per_hour AS node_price_micro_usd_per_hour,
       node.price_known AS node_price_known,
       node.kinds AS node_kinds, node.problems AS node_problems,
       node.rented AS node_rented, node.joined_ms AS node_joined_ms, node.meter_ms AS node_meter_ms,
       machine.rest_until_ms AS node_rest_until_ms, machine.quarantined_until_ms AS node_quarantined_until_ms, machine.failures, machine.on_trial,
       CAST((SELECT COALESCE(SUM(held.slots), 0) FROM lease AS held WHERE held.node = node.id) AS BIGINT)
           AS node_slots_taken,
       CAST((SELECT COUNT(*) FROM wish WHERE wish.job = job.id) AS BIGINT) AS wishes
FROM attempt JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0 JOIN job ON job.id = attempt.job
     JOIN project ON project.id = job.project JOIN node ON node.id = attempt.node
     JOIN machine ON machine.id = attempt.machine
WHERE attempt.id = :id

-- name: attempt
-- Read an attempt; a live one has the values of its lease.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, node.name AS node_name, attempt.pool, attempt.gpu,
       attempt.gpu_memory_gb, attempt.workload, attempt.fencing, attempt.state, attempt.kind, attempt.because, attempt.slots,
       attempt.price_micro_usd_per_hour, attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms,
       COALESCE(lease.step, attempt.step) AS step,
       COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       COALESCE(lease.training_ms, attempt.training_ms) AS training_ms, COALESCE(lease.beat_ms, attempt.beat_ms) AS beat_ms,
       lease.stop, lease.stop_kind, COALESCE(lease.reserved, 0) AS reserved,
       COALESCE(lease.downloaded_bytes, 0) AS downloaded_bytes
FROM attempt JOIN node ON node.id = attempt.node
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.id = :id

-- name: attempts
-- List the attempts of a job in order; a live one has the values of its lease.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, node.name AS node_name, attempt.gpu, attempt.gpu_memory_gb,
       node.numerics, attempt.fencing, attempt.state, attempt.kind, attempt.because, attempt.slots, attempt.price_micro_usd_per_hour, attempt.price_known,
       attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms, attempt.saving,
       COALESCE(lease.step, attempt.step) AS step, COALESCE(lease.loss, attempt.loss) AS loss,
       COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       COALESCE(lease.training_ms, attempt.training_ms) AS training_ms,
       COALESCE(lease.beat_ms, attempt.beat_ms) AS beat_ms, lease.phase, lease.stop, lease.stop_kind,
       CAST((SELECT SUM(micro_usd) FROM ledger WHERE ledger.job = attempt.job AND ledger.attempt = attempt.id) AS BIGINT)
           AS micro_usd
FROM attempt JOIN node ON node.id = attempt.node
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.job = :job ORDER BY attempt.fencing

-- name: attempts_paused
-- List the attempts of a job that ended as its owner paused it: no interruption lost their time.
SELECT attempt FROM event WHERE job = :job AND state = 'paused' AND attempt IS NOT NULL

-- part: was_interrupted
-- Whether an attempt ended by an interruption: its node fell silent or handed the job back, and not as the job's owner paused it.
attempt.state IN ('interrupted', 'released')
AND attempt.id NOT IN (SELECT event.attempt FROM event WHERE event.job = attempt.job AND event.state = 'paused' AND event.attempt IS NOT NULL)

-- name: earlier_attempts
-- List earlier attempts, newest first, as many as any rule needs.
SELECT id, job, node, machine, gpu, gpu_memory_gb, fencing, state, kind, slots, price_micro_usd_per_hour, from_step, step,
       committed_step, seconds_per_step, started_ms, training_ms, beat_ms, ended_ms
FROM attempt WHERE job = :job AND fencing < :fencing ORDER BY fencing DESC LIMIT 50

-- name: advance_attempt
-- Record a committed checkpoint.
UPDATE attempt SET committed_step = :step, committed_ms = :now WHERE id = :attempt

-- name: set_saving
-- Record how often the attempt saves, and why.
UPDATE attempt SET saving = :saving WHERE id = :attempt

-- name: restart_attempt
-- After a rejection, resume from the newest checkpoint that is left.
UPDATE attempt SET from_step = COALESCE((SELECT MAX(checkpoint.step) FROM checkpoint
                                         WHERE checkpoint.job = attempt.job AND checkpoint.state = 'committed'), 0)
WHERE id = :attempt

-- name: attempts_of_node
-- List the last attempts of a node, with what each has cost: up to now if it has not ended, as its lines of the ledger come with its end.
SELECT attempt.id, attempt.job, job.name, job.project, attempt.state, attempt.because, attempt.from_step,
       COALESCE(lease.step, attempt.step) AS step, COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       attempt.started_ms, attempt.ended_ms,
       CAST(CASE WHEN lease.attempt IS NOT NULL THEN lease.price_micro_usd_per_hour * (CAST(:now AS BIGINT) - lease.started_ms) / 3600000
                 ELSE (SELECT COALESCE(SUM(ledger.micro_usd), 0) FROM ledger
                       WHERE ledger.job = attempt.job AND ledger.attempt = attempt.id) END AS BIGINT) AS micro_usd,
       attempt.price_known
FROM attempt JOIN job ON job.id = attempt.job LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.node = :node
ORDER BY attempt.started_ms DESC, attempt.id DESC LIMIT :limit
