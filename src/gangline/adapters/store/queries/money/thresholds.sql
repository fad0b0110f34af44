-- Amounts of money of whose crossing there is a notice, and the crossings.

-- name: cost_thresholds
-- `endpoints` is how many would get a notice now.
SELECT id, project, pool, per, micro_usd, percents, forecast, zone, notify, made_ms,
       (SELECT COUNT(*) FROM endpoint WHERE endpoint.project = cost_threshold.notify AND {hears_of_thresholds}) AS endpoints
FROM cost_threshold
WHERE :project = '' OR project = :project
ORDER BY made_ms, id

-- name: set_threshold
-- Add a threshold, or change the one of the same costs and time.
INSERT INTO cost_threshold (id, project, pool, per, micro_usd, percents, forecast, zone, notify, made_ms)
VALUES (:id, :project, :pool, :per, :micro_usd, :percents, :forecast, :zone, :notify, :now)
ON CONFLICT (project, pool, per) DO UPDATE SET micro_usd = excluded.micro_usd, percents = excluded.percents, forecast = excluded.forecast,
                                               zone = excluded.zone, notify = excluded.notify

-- name: remove_threshold
DELETE FROM cost_threshold WHERE id = :id

-- name: crossings
-- List the notices of a threshold in a day or month, as long as it had this amount.
SELECT percent, forecast, at_ms, because FROM cost_crossing
WHERE threshold = :threshold AND from_ms = :from_ms AND limit_micro_usd = :limit
ORDER BY at_ms, percent

-- name: add_crossing
-- Record a crossing with the next number of the project that gets the notice, once, and only as long as the threshold is as it was read and an endpoint
-- gets the notice: until there is one, it waits.
INSERT INTO cost_crossing (threshold, from_ms, limit_micro_usd, percent, forecast, at_ms, micro_usd, name, because, project, fact)
SELECT cost_threshold.id, :from_ms, :limit, :percent, :forecast, :now, :micro_usd, :name, :because, project.id, project.facts + 1
FROM cost_threshold JOIN project ON project.id = cost_threshold.notify
WHERE cost_threshold.id = :threshold AND cost_threshold.micro_usd = :limit AND cost_threshold.notify = :notify
  AND EXISTS (SELECT 1 FROM endpoint WHERE endpoint.project = cost_threshold.notify AND {hears_of_thresholds})
ON CONFLICT (threshold, from_ms, limit_micro_usd, percent, forecast) DO NOTHING

-- name: fan_out_crossing
-- Add a crossing that has just been recorded, and is not counted yet, for each endpoint that receives it.
INSERT INTO notice (endpoint, fact, job, state, due_ms)
SELECT endpoint.id, cost_crossing.fact, NULL, 'waiting', :now
FROM project JOIN cost_crossing ON cost_crossing.project = project.id AND cost_crossing.fact > project.facts
     JOIN endpoint ON endpoint.project = project.id
WHERE project.id = :notify AND {hears_of_thresholds}

-- part: hears_of_thresholds
endpoint.state = 'active'
AND EXISTS (SELECT 1 FROM endpoint_event AS chosen WHERE chosen.endpoint = endpoint.id AND chosen.kind = 'cost threshold')

-- name: count_crossing
UPDATE project SET facts = facts + 1 WHERE id = :notify

-- name: forget_crossings
DELETE FROM cost_crossing WHERE at_ms < :before

-- name: pool_known
-- Return whether a pool of this name is there, or was: nodes that join by hand make one by their names for it.
SELECT CASE WHEN EXISTS (SELECT 1 FROM pool WHERE name = :pool) OR EXISTS (SELECT 1 FROM node WHERE pool = :pool)
            OR EXISTS (SELECT 1 FROM credential WHERE pool = :pool) THEN 1 ELSE 0 END AS known
