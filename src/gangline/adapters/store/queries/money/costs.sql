-- What a span of time cost: sums of the ledger's lines, of one project or of all ('').

-- name: costs
-- Sum the costs of a span by a key that follows from the node and the project, and by cause. The keys that cost most have places from 1 on, up to
-- `limit`; all others are summed with place 0, and `keys` is the number of all.
WITH of_node AS (
    SELECT piece.node, piece.cause, piece.project, SUM({cost_of_piece}) AS micro_usd FROM {pieces_by_node} GROUP BY 1, 2, 3),
summed AS (
    SELECT CASE :by WHEN 'project' THEN of_node.project WHEN 'node' THEN of_node.node WHEN 'pool' THEN COALESCE(node.pool, '')
                    WHEN 'gpu' THEN {gpu_of_node} ELSE of_node.cause END AS of_key,
           of_node.cause, SUM(of_node.micro_usd) AS micro_usd
    FROM of_node LEFT JOIN node ON :by IN ('pool', 'gpu') AND node.id = of_node.node
    GROUP BY 1, 2),
{ranked_costs}

-- name: costs_of_jobs
-- Sum the costs of a span by job and by cause, as above.
WITH summed AS (
    SELECT piece.job AS of_key, piece.cause, SUM({cost_of_piece}) AS micro_usd FROM {pieces_of_ledger} GROUP BY 1, 2),
{ranked_costs}

-- name: costs_of_users
-- Sum the costs of a span by user and by cause, as above.
WITH of_job AS (
    SELECT piece.job, piece.cause, SUM({cost_of_piece}) AS micro_usd FROM {pieces_of_ledger} GROUP BY 1, 2),
summed AS (
    SELECT {user_of_job} AS of_key, of_job.cause, SUM(of_job.micro_usd) AS micro_usd
    FROM of_job LEFT JOIN job AS asked ON asked.id = of_job.job
    GROUP BY 1, 2),
{ranked_costs}

-- part: ranked_costs
ranked AS (SELECT of_key, ROW_NUMBER() OVER (ORDER BY SUM(micro_usd) DESC, of_key) AS place FROM summed GROUP BY of_key)
SELECT CASE WHEN ranked.place <= :limit THEN ranked.place ELSE 0 END AS place,
       CASE WHEN ranked.place <= :limit THEN ranked.of_key ELSE '' END AS of_key, summed.cause,
       MAX(COALESCE(job.name, named.name, credential.name, '')) AS name, CAST(SUM(summed.micro_usd) AS BIGINT) AS micro_usd,
       (SELECT COUNT(*) FROM ranked) AS keys
FROM summed JOIN ranked ON ranked.of_key = summed.of_key
     LEFT JOIN job ON :by = 'job' AND ranked.place <= :limit AND job.id = ranked.of_key
     LEFT JOIN node AS named ON :by = 'node' AND ranked.place <= :limit AND named.id = ranked.of_key
     LEFT JOIN credential ON :by = 'user' AND ranked.place <= :limit AND credential.id = ranked.of_key
GROUP BY 1, 2, 3
ORDER BY 1, 3

-- name: costs_of_days
-- Sum the costs of a span by day and by cause, where days begin `offset` before those of UTC: in a span of one offset. `day` counts from 1970. A
-- line of several days is cut, as often as it has days.
WITH RECURSIVE dated AS (
    SELECT piece.cause, piece.from_ms, piece.to_ms, piece.micro_usd, piece.begin_ms, piece.end_ms,
           (piece.begin_ms + CAST(:offset AS BIGINT)) / 86400000 AS first,
           (CASE WHEN piece.end_ms > piece.begin_ms THEN piece.end_ms - 1 ELSE piece.begin_ms END + CAST(:offset AS BIGINT)) / 86400000 AS last
    FROM {pieces_of_ledger}),
cut AS (
    SELECT cause, from_ms, to_ms, micro_usd, begin_ms, end_ms, first AS day, last FROM dated WHERE first < last
    UNION ALL
    SELECT cause, from_ms, to_ms, micro_usd, begin_ms, end_ms, day + 1, last FROM cut WHERE day < last)
SELECT day, cause, CAST(SUM(micro_usd) AS BIGINT) AS micro_usd
FROM (SELECT piece.first AS day, piece.cause, {cost_of_piece} AS micro_usd FROM dated AS piece WHERE piece.first = piece.last
      UNION ALL
      SELECT piece.day, piece.cause, {cost_of_piece}
      FROM (SELECT day, cause, from_ms, to_ms, micro_usd,
                   CASE WHEN begin_ms > day * 86400000 - :offset THEN begin_ms ELSE day * 86400000 - :offset END AS begin_ms,
                   CASE WHEN end_ms < (day + 1) * 86400000 - :offset THEN end_ms ELSE (day + 1) * 86400000 - :offset END AS end_ms
            FROM cut) AS piece) AS costs
GROUP BY day, cause
ORDER BY day, cause

-- name: span_of_ledger
-- Read when the first line began and the last one ended; NULL without a line.
SELECT MIN(from_ms) AS from_ms, MAX(to_ms) AS to_ms FROM ledger WHERE :project = '' OR project = :project

-- name: unpriced_in_span
-- Return whether an attempt of unknown price had a node in the span.
SELECT EXISTS (SELECT 1 FROM attempt JOIN job ON job.id = attempt.job
               WHERE attempt.price_known = 0 AND attempt.started_ms < :until AND COALESCE(attempt.ended_ms, :until) >= :since
                 AND (:project = '' OR job.project = :project)) AS unpriced

-- name: running_costs
-- Sum what the time of live attempts would cost if they ended now: the ledger has it once they end.
SELECT CAST(COALESCE(SUM(lease.price_micro_usd_per_hour * (CAST(:now AS BIGINT) - lease.started_ms) / 3600000), 0) AS BIGINT) AS micro_usd
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
WHERE lease.rank = 0 AND (:project = '' OR job.project = :project)

-- name: fleet_spending
-- Sum what the nodes of each pool cost an hour, what their free slots cost, and what nodes cost that have not joined yet.
SELECT pool, COUNT(*) AS nodes, CAST(SUM(slots) AS BIGINT) AS slots, CAST(SUM(free) AS BIGINT) AS slots_free,
       CAST(SUM(CASE WHEN price_known = 0 THEN 1 ELSE 0 END) AS BIGINT) AS unpriced,
       CAST(SUM(price_micro_usd_per_hour) AS BIGINT) AS per_hour,
       CAST(SUM(CASE WHEN state = 'starting' THEN 0 ELSE price_micro_usd_per_hour * free / slots END) AS BIGINT) AS idle_per_hour,
       CAST(SUM(CASE WHEN state = 'starting' THEN price_micro_usd_per_hour ELSE 0 END) AS BIGINT) AS starting_per_hour
FROM (SELECT node.pool, node.state, node.slots, node.price_known,
             CASE WHEN node.price_known = 1 THEN node.price_micro_usd_per_hour ELSE 0 END AS price_micro_usd_per_hour,
             CASE WHEN node.state = 'starting' THEN 0
                  ELSE node.slots - CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease WHERE lease.node = node.id) AS BIGINT) END AS free
      FROM node WHERE node.state <> 'gone') AS here
GROUP BY pool
ORDER BY pool

-- name: open_budgets
-- List the newest experiments with a budget that have not ended.
SELECT id FROM experiment
WHERE ended_ms IS NULL AND budget IS NOT NULL AND (:project = '' OR project = :project)
ORDER BY made_ms DESC, id DESC LIMIT :limit

-- part: pieces_of_ledger
-- The part of each line that lies in the span. A line without time is of its moment.
(SELECT node, job, project, cause, from_ms, to_ms, micro_usd,
        CASE WHEN from_ms > :since THEN from_ms ELSE CAST(:since AS BIGINT) END AS begin_ms,
        CASE WHEN to_ms < :until THEN to_ms ELSE CAST(:until AS BIGINT) END AS end_ms
 FROM ledger
 WHERE to_ms >= :since AND from_ms < :until AND (to_ms > :since OR from_ms >= :since) AND (:project = '' OR project = :project)) AS piece

-- part: pieces_by_node
-- The same, read in the order of an index that has all of it: sorting the lines of a span would take ten times as long. The unary plus keeps SQLite from
-- the index by time.
(SELECT node, project, cause, from_ms, to_ms, micro_usd,
        CASE WHEN from_ms > :since THEN from_ms ELSE CAST(:since AS BIGINT) END AS begin_ms,
        CASE WHEN to_ms < :until THEN to_ms ELSE CAST(:until AS BIGINT) END AS end_ms
 FROM ledger
 WHERE +to_ms >= :since AND from_ms < :until AND (+to_ms > :since OR from_ms >= :since) AND (:project = '' OR project = :project)) AS piece

-- part: gpu_of_node
-- The GPU class of the node: 'none' where it has no GPU, 'unknown' where the node is not known any more, and '' for what no node did.
CASE WHEN of_node.node = '' THEN '' WHEN node.id IS NULL THEN 'unknown' WHEN node.gpu = '' THEN 'none' ELSE node.gpu END

-- part: user_of_job
-- The key that asked for the job: 'unknown' where nobody wrote that down, and '' for what no job caused.
CASE WHEN of_job.job = '' THEN '' ELSE COALESCE(asked.owner, 'unknown') END

-- part: cost_of_piece
-- The difference of a running total over the line's time, so that the pieces of a line cost exactly as much as the line. It counts whole seconds:
-- the remainder times the time of the line would not fit into 64 bits in milliseconds.
CASE WHEN piece.end_ms >= piece.to_ms THEN piece.micro_usd
     ELSE piece.micro_usd / ((piece.to_ms - piece.from_ms) / 1000 + 1) * ((piece.end_ms - piece.from_ms) / 1000)
          + piece.micro_usd % ((piece.to_ms - piece.from_ms) / 1000 + 1) * ((piece.end_ms - piece.from_ms) / 1000)
            / ((piece.to_ms - piece.from_ms) / 1000 + 1) END
- CASE WHEN piece.begin_ms <= piece.from_ms THEN 0
       ELSE piece.micro_usd / ((piece.to_ms - piece.from_ms) / 1000 + 1) * ((piece.begin_ms - piece.from_ms) / 1000)
            + piece.micro_usd % ((piece.to_ms - piece.from_ms) / 1000 + 1) * ((piece.begin_ms - piece.from_ms) / 1000)
              / ((piece.to_ms - piece.from_ms) / 1000 + 1) END

-- part: interruptions_since
-- The attempts, but of rendering, that were interrupted since a moment. The first condition names the index.
FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.state <> 'live' AND attempt.ended_ms >= :since AND {was_interrupted} AND job.kind <> 'sample'

-- name: interruptions_in_span
SELECT COUNT(*) AS interruptions {interruptions_since} AND attempt.ended_ms < :until AND (:project = '' OR job.project = :project)

-- name: interruptions_of_pools
-- Count them by the pool of their node, and those of them whose node fell silent.
SELECT attempt.pool, COUNT(*) AS interruptions, SUM(CASE WHEN attempt.state = 'interrupted' THEN 1 ELSE 0 END) AS silent
{interruptions_since} GROUP BY attempt.pool

-- name: spent_of_scopes
-- Sum what each project and pool cost in a span, and read when the first of it began.
SELECT of_node.project, COALESCE(node.pool, '') AS pool, CAST(SUM(of_node.micro_usd) AS BIGINT) AS micro_usd, MIN(of_node.first_ms) AS first_ms
FROM (SELECT piece.node, piece.project, SUM({cost_of_piece}) AS micro_usd, MIN(piece.begin_ms) AS first_ms
      FROM {pieces_of_ledger} GROUP BY 1, 2) AS of_node LEFT JOIN node ON node.id = of_node.node
GROUP BY 1, 2

-- name: cost_known
-- Return whether a project and a pool had cost something at a moment. The unary plus lets SQLite read an index that has all of it.
SELECT CASE WHEN EXISTS (SELECT 1 FROM ledger WHERE +to_ms <= :at AND (:project = '' OR project = :project)
                           AND (:pool = '' OR EXISTS (SELECT 1 FROM node WHERE node.id = ledger.node AND node.pool = :pool)))
            THEN 1 ELSE 0 END AS known

-- name: running_of_scopes
-- Sum what the ledger does not have yet: what live attempts, free slots and nodes that start would cost from a moment on if they ended now, and
-- what they cost an hour. `since` is at most `now`.
SELECT project, pool, CAST(SUM(price * (CAST(:now AS BIGINT) - begin_ms) / 3600000) AS BIGINT) AS micro_usd, CAST(SUM(price) AS BIGINT) AS per_hour,
       MIN(begin_ms) AS first_ms
FROM (SELECT job.project, attempt.pool, lease.price_micro_usd_per_hour AS price,
             CASE WHEN lease.started_ms > :since THEN lease.started_ms ELSE CAST(:since AS BIGINT) END AS begin_ms
      FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
      WHERE lease.rank = 0 AND (:project = '' OR job.project = :project)
      UNION ALL
      SELECT '', node.pool,
             node.price_micro_usd_per_hour
             * (node.slots - CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease WHERE lease.node = node.id) AS BIGINT)) / node.slots,
             CASE WHEN node.meter_ms > :since THEN node.meter_ms ELSE CAST(:since AS BIGINT) END
      FROM node WHERE node.state <> 'gone' AND node.price_known = 1 AND :project = '') AS here
WHERE begin_ms <= :now
GROUP BY 1, 2
