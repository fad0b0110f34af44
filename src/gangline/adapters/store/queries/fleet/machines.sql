-- Machines behind the nodes: failures, quarantines, and jobs that are banned from them.

-- name: know_machine
-- Its pool is the one that it joined last, in which it is judged.
INSERT INTO machine (id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_until_ms, on_trial, because)
VALUES (:id, :pool, :now, 0, 0, 0, 0, 0, '')
ON CONFLICT (id) DO UPDATE SET pool = excluded.pool

-- name: know_card
-- A card stays with the machine in which it came first.
INSERT INTO machine_card (card, machine, at_ms) VALUES (:card, :machine, :now) ON CONFLICT (card) DO NOTHING

-- name: machine_of_card
SELECT machine FROM machine_card WHERE card = :card

-- name: machine_tally
-- Count how the attempts of a machine ended lately, by pool.
SELECT pool, state, CASE WHEN kind <> '' THEN 1 ELSE 0 END AS blamed, COUNT(*) AS attempts FROM attempt
WHERE machine = :machine AND state <> 'live' AND ended_ms > :since
GROUP BY pool, state, CASE WHEN kind <> '' THEN 1 ELSE 0 END

-- name: machine_losses
-- List the attempts that a machine lost lately, or lost to another one, newest first.
SELECT attempt.ended_ms AS at_ms, attempt.pool, node.name AS node, attempt.job, job.project, attempt.state, attempt.because
FROM attempt JOIN job ON job.id = attempt.job JOIN node ON node.id = attempt.node
WHERE attempt.machine = :machine AND attempt.state <> 'live' AND attempt.ended_ms > :since
  AND (attempt.state IN ('failed', 'interrupted') OR attempt.kind <> '')
ORDER BY attempt.ended_ms DESC, attempt.id LIMIT :limit

-- name: machines_by_losses
-- List machines with attempts lately, or a quarantine: those that lost most first.
SELECT machine.id, machine.known_ms, machine.quarantines, machine.quarantined_ms, machine.quarantined_until_ms, machine.on_trial, machine.because,
       lately.attempts, lately.lost, lately.pools, lately.last_ms
FROM machine JOIN (SELECT machine, COUNT(*) AS attempts, COUNT(DISTINCT pool) AS pools, MAX(ended_ms) AS last_ms,
                          CAST(SUM(CASE WHEN state IN ('failed', 'interrupted') OR kind <> '' THEN 1 ELSE 0 END) AS BIGINT) AS lost
                   FROM attempt WHERE state <> 'live' AND ended_ms > :since GROUP BY machine) AS lately ON lately.machine = machine.id
ORDER BY lately.lost DESC, machine.quarantines DESC, machine.id LIMIT :limit

-- name: machine
SELECT id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_ms, quarantined_until_ms, on_trial, because
FROM machine WHERE id = :id

-- name: machine_failed
UPDATE machine SET failures = failures + 1, rest_until_ms = :rest_until_ms WHERE id = :id

-- name: machine_went_well
-- One success ends a trial and the count of failures in a row; strikes stay until they are too old.
UPDATE machine SET failures = 0, rest_until_ms = 0, on_trial = 0 WHERE id = :id

-- name: quarantine_machine
-- The time is the guard: one quarantine for each decision. Those that are too old are left out of the count.
UPDATE machine SET quarantines = :quarantines, quarantined_ms = :now, quarantined_until_ms = :until_ms, on_trial = 1,
       because = :because
WHERE id = :id AND COALESCE(quarantined_ms, -1) = :judged_ms

-- name: try_machine
-- Put the machine on trial without a quarantine. The time is the guard: once for each decision.
UPDATE machine SET quarantined_ms = :now, on_trial = 1, rest_until_ms = :rest_until_ms, because = :because
WHERE id = :id AND COALESCE(quarantined_ms, -1) = :judged_ms

-- name: release_machine
-- An operator trusts the machine again: strikes so far count no more, as after a quarantine.
UPDATE machine SET quarantined_ms = :now, quarantined_until_ms = :now, on_trial = 0, failures = 0, rest_until_ms = 0, because = ''
WHERE id = :id

-- name: put_on_trial
UPDATE machine SET on_trial = 1 WHERE id = :id

-- name: alarm
UPDATE machine SET because = :because WHERE id = :id

-- name: quarantined_lately
-- Count recent quarantines; machines that were put on trial without one do not count.
SELECT COUNT(*) AS machines FROM machine
WHERE pool = :pool AND quarantined_ms > :since AND quarantined_until_ms > quarantined_ms AND id <> :id

-- name: quarantines_over
-- List nodes of machines whose quarantine is over. A node that failed its probe is not listed: it has to pass one first.
SELECT node.id, node.machine FROM node JOIN machine ON machine.id = node.machine
WHERE node.state = 'quarantined' AND node.proof_failed = 0 AND machine.quarantined_until_ms <= :now

-- name: add_strike
INSERT INTO strike (attempt, machine, job, workload, gpu, kind, quarters, at_ms)
VALUES (:attempt, :machine, :job, :workload, :gpu, :kind, :quarters, :now)

-- name: strikes_of_job
SELECT strike.attempt, strike.kind, strike.quarters, strike.at_ms FROM attempt JOIN strike ON strike.attempt = attempt.id
WHERE attempt.job = :job ORDER BY strike.at_ms, strike.attempt

-- name: bans_of_job
SELECT machine, because, at_ms FROM ban WHERE job = :job ORDER BY at_ms, machine

-- name: forgive_strikes
-- Delete the strikes that a job has caused: it turned out to be at fault itself.
DELETE FROM strike WHERE kind = :kind AND attempt IN (SELECT id FROM attempt WHERE job = :job)

-- name: strikes
-- List strikes since the last quarantine, each with its contrast: whether another machine did the same well.
SELECT strike.kind, strike.workload, job.project, strike.quarters, strike.job, strike.at_ms,
       EXISTS (SELECT 1 FROM pace WHERE pace.workload = strike.workload AND pace.gpu = strike.gpu
               AND pace.machine <> strike.machine) AS workload_elsewhere,
       EXISTS (SELECT 1 FROM pace WHERE pace.workload = strike.workload AND pace.machine <> strike.machine) AS workload_anywhere,
       EXISTS (SELECT 1 FROM attempt WHERE attempt.job = strike.job AND attempt.machine <> strike.machine
               AND (attempt.committed_step > 0 OR attempt.state = 'succeeded')) AS job_elsewhere
FROM strike JOIN machine ON machine.id = strike.machine JOIN job ON job.id = strike.job
WHERE strike.machine = :machine AND strike.at_ms > :since AND strike.at_ms > COALESCE(machine.quarantined_ms, -1)
ORDER BY strike.at_ms, strike.attempt

-- name: struck_machines
-- List machines with strikes since their last quarantine that are not in quarantine.
SELECT DISTINCT machine.id, machine.pool FROM strike JOIN machine ON machine.id = strike.machine
WHERE strike.at_ms > :since AND strike.at_ms > COALESCE(machine.quarantined_ms, -1) AND machine.quarantined_until_ms <= :now

-- name: add_ban
INSERT INTO ban (job, machine, because, at_ms) VALUES (:job, :machine, :because, :now)

-- name: lift_bans
DELETE FROM ban WHERE job = :job
