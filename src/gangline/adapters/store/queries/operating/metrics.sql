-- What the metrics of a server count. Those of a span are asked for once from the beginning, and then for what is new.

-- name: count_jobs_by_state
-- Count the jobs that are listed.
SELECT state, COUNT(*) AS jobs FROM job WHERE kind <> 'sample' AND removed_ms IS NULL GROUP BY state

-- name: waiting_jobs
-- Count the queued jobs that a node may take, without those that wait for their photos or their experiment.
SELECT COUNT(*) AS jobs FROM job WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample'

-- name: oldest_waiting
-- Read since when the job waits that a node may take and that has waited longest.
SELECT queued_ms FROM job WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample' ORDER BY queued_ms LIMIT 1

-- name: nodes_by_state
SELECT pool, state, rented, COUNT(*) AS nodes, CAST(SUM(slots) AS BIGINT) AS slots FROM node
WHERE state <> 'gone' GROUP BY pool, state, rented

-- name: leases_held
-- Count the leases of attempts, and those whose time is over.
SELECT COUNT(*) AS leases, COALESCE(SUM(CASE WHEN expires_ms < :now THEN 1 ELSE 0 END), 0) AS overdue FROM lease WHERE rank = 0

-- name: billed_instances
-- Count by pool the instances that their provider was seen to bill, and whose end was not seen; without a pool those of rentals that are not
-- known, as after a backup was restored.
SELECT COALESCE(node.pool, '') AS pool, COUNT(*) AS instances FROM instance LEFT JOIN node ON node.id = instance.node
WHERE instance.settled = 0 AND instance.billed_to_ms IS NULL GROUP BY COALESCE(node.pool, '')

-- name: starts_that_failed
-- Count by pool the rented nodes that are gone without having joined.
SELECT pool, COUNT(*) AS nodes FROM node WHERE joined_ms IS NULL AND rented = 1 AND state = 'gone' GROUP BY pool

-- name: notices_waiting
-- Count the notices that are not sent yet, and read since when the most overdue one should have been: one whose receiver asked to wait, or whose
-- people are not to be disturbed, is not.
SELECT COALESCE(SUM(waiting.notices), 0) AS notices,
       MIN(CASE WHEN endpoint.hold_until_ms > :now THEN NULL WHEN endpoint.hold_until_ms > waiting.due_ms THEN endpoint.hold_until_ms
                ELSE waiting.due_ms END) AS due_ms
FROM (SELECT endpoint, COUNT(*) AS notices, MIN(due_ms) AS due_ms FROM notice WHERE state = 'waiting' GROUP BY endpoint) AS waiting
     JOIN endpoint ON endpoint.id = waiting.endpoint
WHERE endpoint.state = 'active'

-- name: attempts_ended_in
SELECT pool, state, kind, COUNT(*) AS attempts FROM attempt
WHERE state <> 'live' AND ended_ms >= :since AND ended_ms < :until GROUP BY pool, state, kind

-- name: checkpoints_committed_in
SELECT COUNT(*) AS checkpoints, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM checkpoint
WHERE committed_ms >= :since AND committed_ms < :until

-- name: costs_of_pools_in
-- Sum the lines of the ledger that ended in a span, by pool and cause. Costs and credits are summed apart, as neither sum ever falls.
SELECT COALESCE(node.pool, '') AS pool, summed.cause, CAST(SUM(summed.ms) AS BIGINT) AS ms,
       CAST(SUM(summed.micro_usd) AS BIGINT) AS micro_usd, CAST(SUM(summed.credits) AS BIGINT) AS credit_micro_usd
FROM (SELECT node AS id, cause, SUM(to_ms - from_ms) AS ms, SUM(CASE WHEN micro_usd > 0 THEN micro_usd ELSE 0 END) AS micro_usd,
             SUM(CASE WHEN micro_usd < 0 THEN -micro_usd ELSE 0 END) AS credits FROM ledger
      WHERE to_ms >= :since AND to_ms < :until GROUP BY node, cause) AS summed
     LEFT JOIN node ON node.id = summed.id
GROUP BY COALESCE(node.pool, ''), summed.cause

-- name: stored_bytes
-- Sum what the object store has, by kind, as far as there is a row for it.
SELECT 'uploads' AS kind, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM blob
UNION ALL SELECT 'checkpoints', CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM checkpoint WHERE state = 'committed'
UNION ALL SELECT 'results', CAST(COALESCE(SUM(bytes + thumbnail_bytes), 0) AS BIGINT) FROM artifact
UNION ALL SELECT 'logs', CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM log_chunk
