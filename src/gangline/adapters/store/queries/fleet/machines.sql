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

-- part: record
-- The attempts since then that are in the record of a machine, each with its fate there. Failures whose kind is among `job_kinds` are left out,
-- as these are not held against the machine, and so is what was canceled or handed back for no fault.
(
    SELECT id, machine, pool, node, job, state, because, ended_ms,
           CASE WHEN state = 'succeeded' THEN 'succeeded' WHEN state IN ('failed', 'interrupted') THEN 'lost' ELSE 'moved' END AS fate
    FROM attempt
    WHERE state <> 'live' AND ended_ms > :since AND (state IN ('succeeded', 'failed', 'interrupted') OR kind <> '')
      AND :job_kinds NOT LIKE '%,' || kind || ',%') AS record

-- name: machine_tally
-- Count how the attempts of a machine ended lately, by pool.
SELECT pool, fate, COUNT(*) AS attempts FROM {record} WHERE machine = :machine GROUP BY pool, fate

-- name: machine_losses
-- List the attempts that a machine lost lately, or lost to another one, newest first.
SELECT record.ended_ms AS at_ms, record.pool, node.name AS node, record.job, job.project, record.state, record.because
FROM {record} JOIN job ON job.id = record.job JOIN node ON node.id = record.node
WHERE record.machine = :machine AND record.fate IN ('lost', 'moved')
ORDER BY record.ended_ms DESC, record.id LIMIT :limit

-- name: machines_by_losses
-- List machines with attempts lately, or in quarantine: those that lost most first.
SELECT machine.id, machine.known_ms, machine.quarantines, machine.quarantined_ms, machine.quarantined_until_ms, machine.on_trial, machine.because,
       COALESCE(lately.attempts, 0) AS attempts, COALESCE(lately.lost, 0) AS lost, COALESCE(lately.moved, 0) AS moved,
       COALESCE(lately.pools, 0) AS pools, lately.last_ms
FROM machine LEFT JOIN (SELECT machine, COUNT(*) AS attempts, COUNT(DISTINCT pool) AS pools, MAX(ended_ms) AS last_ms,
                               CAST(SUM(CASE WHEN fate = 'lost' THEN 1 ELSE 0 END) AS BIGINT) AS lost,
                               CAST(SUM(CASE WHEN fate = 'moved' THEN 1 ELSE 0 END) AS BIGINT) AS moved
                        FROM {record} GROUP BY machine) AS lately ON lately.machine = machine.id
WHERE lately.machine IS NOT NULL OR machine.quarantined_until_ms > :now
ORDER BY lost DESC, moved DESC, machine.quarantines DESC, machine.id LIMIT :limit

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
