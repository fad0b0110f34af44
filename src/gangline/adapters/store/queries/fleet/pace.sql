-- Paces of machines at workloads, and the likely pace of a pool's next node.

-- name: set_pace
INSERT INTO pace (workload, gpu, machine, seconds_per_step, at_ms) VALUES (:workload, :gpu, :machine, :seconds_per_step, :now)
ON CONFLICT (workload, gpu, machine)
DO UPDATE SET seconds_per_step = COALESCE(excluded.seconds_per_step, pace.seconds_per_step), at_ms = excluded.at_ms

-- name: paces
-- List the paces of machines that were tried, up to a limit.
SELECT machine, seconds_per_step,
       EXISTS (SELECT 1 FROM node WHERE node.machine = pace.machine AND node.state IN ('ready', 'on_trial')) AS working
FROM pace WHERE workload = :workload AND gpu = :gpu AND seconds_per_step IS NOT NULL
ORDER BY machine LIMIT :limit

-- name: paces_at_work
-- List the same for every workload that runs on a class of GPU now, with the limit for each. Its last machine is found once for each group.
SELECT pace.workload, pace.gpu, pace.machine, pace.seconds_per_step,
       pace.machine IN (SELECT machine FROM node WHERE state IN ('ready', 'on_trial')) AS working
FROM (SELECT workload, gpu,
             (SELECT MAX(machine) FROM (SELECT machine FROM pace
                                        WHERE workload = attempt.workload AND gpu = attempt.gpu AND seconds_per_step IS NOT NULL
                                        ORDER BY machine LIMIT :limit) AS compared) AS last_machine
      FROM attempt WHERE state = 'live' GROUP BY workload, gpu) AS running
     JOIN pace ON pace.workload = running.workload AND pace.gpu = running.gpu AND pace.machine <= running.last_machine
WHERE pace.seconds_per_step IS NOT NULL

-- name: class_paces
-- List the mean pace of each class of GPU at the workloads that were measured last.
SELECT workload, gpu, AVG(seconds_per_step) AS seconds_per_step FROM pace
WHERE seconds_per_step IS NOT NULL AND at_ms > :since GROUP BY workload, gpu ORDER BY MAX(at_ms) DESC, workload, gpu LIMIT :limit

-- name: billed_on_offers
-- Sum up, for each offer, how long its nodes are and were billed lately; how many of them joined, and for how long all were starting.
SELECT node.pool, node.offer, CAST(SUM(COALESCE(billed.to_ms, CAST(:now AS BIGINT)) - billed.from_ms) AS BIGINT) AS ms,
       CAST(SUM(CASE WHEN node.joined_ms IS NULL THEN 0 ELSE 1 END) AS BIGINT) AS boots,
       CAST(SUM(CASE WHEN COALESCE(node.joined_ms, billed.to_ms, CAST(:now AS BIGINT)) > billed.from_ms
                     THEN COALESCE(node.joined_ms, billed.to_ms, CAST(:now AS BIGINT)) - billed.from_ms ELSE 0 END) AS BIGINT) AS boots_ms
FROM (SELECT node, billed_from_ms AS from_ms, billed_to_ms AS to_ms FROM instance WHERE billed_to_ms IS NULL
      UNION ALL SELECT node, billed_from_ms, billed_to_ms FROM instance WHERE billed_to_ms > :since) AS billed
     JOIN node ON node.id = billed.node
GROUP BY node.pool, node.offer

-- name: lost_on_offers
-- Count, for each offer, the nodes that were lost lately.
SELECT pool, offer, COUNT(*) AS lost FROM node WHERE lost = 1 AND since_ms > :since GROUP BY pool, offer

-- name: starts_on_offers
-- Sum up, for each offer, the time until the first step of the attempts that ended lately.
SELECT node.pool, node.offer, COUNT(*) AS starts, CAST(SUM(attempt.training_ms - attempt.started_ms) AS BIGINT) AS starts_ms
FROM attempt JOIN node ON node.id = attempt.node
WHERE attempt.state <> 'live' AND attempt.ended_ms > :since AND attempt.training_ms IS NOT NULL AND node.rented = 1
GROUP BY node.pool, node.offer

-- name: interruptions_on_offers
-- Sum up, for each offer, how long attempts lasted that are live or ended lately, and count those that were interrupted.
SELECT node.pool, node.offer, CAST(SUM(run.lost) AS BIGINT) AS lost, CAST(SUM(run.ms) AS BIGINT) AS ms
FROM (SELECT node, CASE WHEN state = 'interrupted' THEN 1 ELSE 0 END AS lost, ended_ms - started_ms AS ms
      FROM attempt WHERE state <> 'live' AND ended_ms > :since
      UNION ALL SELECT node, 0, CAST(:now AS BIGINT) - started_ms FROM lease WHERE rank = 0) AS run
     JOIN node ON node.id = run.node
GROUP BY node.pool, node.offer

-- name: pace_at_job
-- Read the pace of a machine at such a job, if it is known.
SELECT pace.seconds_per_step, pace.workload, job.steps FROM job
JOIN pace ON pace.workload = job.workload AND pace.gpu = :gpu AND pace.machine = :machine
WHERE job.id = :job AND pace.seconds_per_step IS NOT NULL

-- name: moves
-- Count how often a job was moved to a faster machine.
SELECT COUNT(*) AS moves FROM attempt WHERE job = :job AND kind = 'outpaced'

-- name: machines_tried
-- Count, among the last nodes of a pool, those whose machine was new.
SELECT COUNT(*) AS nodes,
       CAST(COALESCE(SUM(CASE WHEN machine.known_ms = latest.joined_ms THEN 1 ELSE 0 END), 0) AS BIGINT) AS new
FROM (SELECT machine, joined_ms FROM node WHERE pool = :pool AND joined_ms IS NOT NULL ORDER BY joined_ms DESC LIMIT :last) AS latest
     JOIN machine ON machine.id = latest.machine

-- name: foresee
-- Store what the pool's next claims use: the work that waits for each node, and the chance that the next machine is a new one.
INSERT INTO foresight (pool, waiting, new_share) VALUES (:pool, :waiting, :new_share)
ON CONFLICT (pool) DO UPDATE SET waiting = excluded.waiting, new_share = excluded.new_share

-- name: foreseen
SELECT waiting, new_share FROM foresight WHERE pool = :pool

-- name: paces_of_workload
-- List paces on every GPU class, up to a limit.
SELECT gpu, seconds_per_step FROM pace WHERE workload = :workload AND seconds_per_step IS NOT NULL
ORDER BY gpu, machine LIMIT :limit
