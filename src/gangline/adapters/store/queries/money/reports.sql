-- What a set of jobs took: sums of their attempts and of their lines of the ledger. Each statement is asked about some jobs or nodes at a time.

-- name: reported_jobs
SELECT job.id, job.project, job.name, job.kind, job.state, job.because, COALESCE(job.ended_step, job.steps) AS steps,
       job.submitted_ms, job.ended_ms
FROM {listed_ids}
    JOIN job ON job.id = listed.id
ORDER BY listed.place

-- name: every_job
-- List all jobs of all projects, those that render pictures and those that were deleted among them.
SELECT id FROM job ORDER BY submitted_ms, id

-- name: tries_of_jobs
-- Read what each job's attempts came to. A step is redone if an attempt reported it and the next one began before it. The first
-- attempt has the least number, which need not be 1: a restore of the database gives another one.
SELECT job, SUM(CASE WHEN state = 'live' THEN 1 ELSE 0 END) AS live, SUM(CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END) AS succeeded,
       SUM(CASE WHEN state = 'failed' THEN 1 ELSE 0 END) AS failed, SUM(CASE WHEN state = 'interrupted' THEN 1 ELSE 0 END) AS interrupted,
       SUM(CASE WHEN state = 'released' THEN 1 ELSE 0 END) AS released, SUM(CASE WHEN state = 'canceled' THEN 1 ELSE 0 END) AS canceled,
       SUM(CASE WHEN price_known = 0 THEN 1 ELSE 0 END) AS unpriced,
       CAST(COALESCE(SUM(ended_ms - started_ms), 0) AS BIGINT) AS node_ms,
       MIN(CASE WHEN fencing = least THEN started_ms END) AS first_started_ms, MIN(CASE WHEN fencing = least THEN state END) AS first_state,
       CAST(SUM(CASE WHEN step > next_from THEN step - next_from ELSE 0 END) AS BIGINT) AS steps_redone
FROM (SELECT attempt.job, attempt.fencing, attempt.state, attempt.price_known, attempt.started_ms, attempt.ended_ms, attempt.step,
             LEAD(attempt.from_step, 1, attempt.step) OVER (PARTITION BY attempt.job ORDER BY attempt.fencing) AS next_from,
             MIN(attempt.fencing) OVER (PARTITION BY attempt.job) AS least
      FROM {listed_ids}
          JOIN attempt ON attempt.job = listed.id) AS tried
GROUP BY job

-- name: expenses_of_jobs
-- Sum each job's lines of the ledger by cause.
SELECT ledger.job, ledger.cause, CAST(SUM(ledger.to_ms - ledger.from_ms) AS BIGINT) AS ms, CAST(SUM(ledger.micro_usd) AS BIGINT) AS micro_usd
FROM {listed_ids}
    JOIN ledger ON ledger.job = listed.id
GROUP BY ledger.job, ledger.cause

-- name: tries_by_node
-- Sum what jobs' attempts did on each node. `slot_ms` is the time that they had its slots.
SELECT attempt.node, attempt.gpu, attempt.pool, attempt.state, COUNT(*) AS attempts,
       CAST(COALESCE(SUM((attempt.ended_ms - attempt.started_ms) * attempt.slots), 0) AS BIGINT) AS slot_ms,
       MAX(attempt.ended_ms) AS ended_ms
FROM {listed_ids}
    JOIN attempt ON attempt.job = listed.id
GROUP BY attempt.node, attempt.gpu, attempt.pool, attempt.state

-- name: expenses_by_gpu
-- Sum jobs' lines of the ledger by the GPU class and the pool of the node, and by cause.
SELECT attempt.gpu, attempt.pool, ledger.cause, CAST(SUM(ledger.to_ms - ledger.from_ms) AS BIGINT) AS ms,
       CAST(SUM(ledger.micro_usd) AS BIGINT) AS micro_usd
FROM {listed_ids}
    JOIN ledger ON ledger.job = listed.id
    JOIN attempt ON attempt.id = ledger.attempt
GROUP BY attempt.gpu, attempt.pool, ledger.cause

-- name: overhead_of_nodes
-- Sum the lines of these nodes that are of no job and began in a span of time, by cause.
SELECT ledger.node, COALESCE(node.gpu, '') AS gpu, COALESCE(node.pool, '') AS pool, ledger.cause,
       CAST(SUM(ledger.to_ms - ledger.from_ms) AS BIGINT) AS ms, CAST(SUM(ledger.micro_usd) AS BIGINT) AS micro_usd
FROM {listed_ids}
    JOIN ledger ON ledger.node = listed.id
    LEFT JOIN node ON node.id = ledger.node
WHERE ledger.job = '' AND ledger.from_ms >= :from_ms AND ledger.from_ms <= :to_ms
GROUP BY ledger.node, node.gpu, node.pool, ledger.cause

-- name: overhead_of_all
-- Sum all lines that are of no job, by node and cause.
SELECT ledger.node, COALESCE(node.gpu, '') AS gpu, COALESCE(node.pool, '') AS pool, ledger.cause,
       CAST(SUM(ledger.to_ms - ledger.from_ms) AS BIGINT) AS ms, CAST(SUM(ledger.micro_usd) AS BIGINT) AS micro_usd
FROM ledger
    LEFT JOIN node ON node.id = ledger.node
WHERE ledger.job = ''
GROUP BY ledger.node, node.gpu, node.pool, ledger.cause

-- name: work_of_nodes
-- Sum the time that attempts of any job had slots of these nodes; they began in a span of time.
SELECT attempt.node, CAST(COALESCE(SUM((attempt.ended_ms - attempt.started_ms) * attempt.slots), 0) AS BIGINT) AS slot_ms
FROM {listed_ids}
    JOIN attempt ON attempt.node = listed.id
WHERE attempt.started_ms >= :from_ms AND attempt.started_ms <= :to_ms
GROUP BY attempt.node

-- name: bars_of_jobs
-- List the attempts of jobs, as a timeline shows them.
SELECT attempt.job, attempt.id, attempt.machine, attempt.state, attempt.because, attempt.started_ms, attempt.ended_ms
FROM {listed_ids}
    JOIN attempt ON attempt.job = listed.id
ORDER BY attempt.started_ms, attempt.id
