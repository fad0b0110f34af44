-- Projects with their shares and budgets, and the ledger.

-- name: add_project
INSERT INTO project (id, share, usage, usage_ms, spent, reserved) VALUES (:id, 1, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING

-- name: project
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project WHERE id = :id

-- name: projects
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project ORDER BY id

-- name: set_project
UPDATE project SET share = :share, budget = :budget WHERE id = :id

-- name: reserve
-- Reserve the whole amount within the budget, or nothing.
UPDATE project SET reserved = reserved + :micro_usd
WHERE id = :id AND (budget IS NULL OR spent + reserved + :micro_usd <= budget)

-- name: enter
-- Charge a claim: reserve what it may spend within the budget, or nothing, and count it as usage. With a budget, a node of unknown price
-- is refused, since the budget could not be kept.
UPDATE project SET reserved = reserved + :micro_usd, usage = :usage, usage_ms = :now
WHERE id = :id AND (budget IS NULL OR (:price_known = 1 AND spent + reserved + :micro_usd <= budget))

-- name: spend
-- Replace an ended attempt's reservation by its cost.
UPDATE project SET spent = spent + :micro_usd, usage = :usage, usage_ms = :now,
       reserved = reserved - :reserved
WHERE id = :id

-- name: add_cost
INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd)
VALUES (:node, :attempt, :cause, :from_ms, :to_ms, :job, :project, :micro_usd)

-- name: ledger_of_job
SELECT attempt, cause, from_ms, to_ms, micro_usd FROM ledger WHERE job = :job ORDER BY from_ms, attempt, cause

-- name: expenses_of_attempts
-- Sum what each attempt of a job took to begin, and what of its work was lost.
SELECT attempt, cause, CAST(SUM(micro_usd) AS BIGINT) AS micro_usd FROM ledger
WHERE job = :job AND cause IN ('download', 'redone steps') GROUP BY attempt, cause

-- name: unpriced
-- Return whether a project ever had an attempt of unknown price.
SELECT EXISTS (SELECT 1 FROM attempt JOIN job ON job.id = attempt.job
               WHERE attempt.price_known = 0 AND job.project = :project) AS unpriced
