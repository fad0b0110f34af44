-- Notices: one fact for one endpoint, from the transaction that numbers the fact until it is delivered or given up.

-- name: fan_out
-- Add the facts that have just been numbered, and are not counted yet, for each endpoint that receives them.
INSERT INTO notice (endpoint, fact, job, state, due_ms)
SELECT endpoint.id, event.fact, event.job, 'waiting', :now
FROM endpoint JOIN project ON project.id = endpoint.project
     JOIN event ON event.project = endpoint.project AND event.fact > project.facts AND event.at_ms >= endpoint.active_ms
WHERE endpoint.state = 'active'
  AND EXISTS (SELECT 1 FROM endpoint_event AS chosen
              WHERE chosen.endpoint = endpoint.id AND chosen.kind = event.kind AND chosen.state IN ('', event.state))

-- name: due_endpoints
-- List the endpoints for which a notice is due, by their ids.
SELECT id, project, channel, name, sealed, interval_ms, quiet, version, secret, secret_key, old_secret, old_secret_key, old_until_ms, delivered_ms
FROM endpoint
WHERE state = 'active' AND hold_until_ms <= :now
  AND EXISTS (SELECT 1 FROM notice WHERE notice.endpoint = endpoint.id AND notice.state = 'waiting' AND notice.due_ms <= :now)
ORDER BY id

-- name: due_notices
-- List the notices of an endpoint that are due, with their facts: those that have waited longest first.
SELECT notice.fact AS fact, notice.tries, notice.due_ms AS due_ms, event.at_ms, event.job, event.kind, event.state, event.attempt, event.node, event.because, job.name, job.kind AS job_kind
FROM notice JOIN event ON event.project = :project AND event.fact = notice.fact JOIN job ON job.id = event.job
WHERE notice.endpoint = :endpoint AND notice.state = 'waiting' AND notice.due_ms <= :now
UNION ALL
SELECT notice.fact, notice.tries, notice.due_ms, crossing.at_ms, '', 'cost threshold', '', NULL, NULL, crossing.because, crossing.name, ''
FROM notice JOIN cost_crossing AS crossing ON crossing.project = :project AND crossing.fact = notice.fact
WHERE notice.endpoint = :endpoint AND notice.state = 'waiting' AND notice.due_ms <= :now AND notice.job IS NULL
ORDER BY due_ms, fact LIMIT :most

-- name: notice_tried
-- Record a try of the notices of one message, except those for which another server has recorded one since this one began, and those that are to be sent
-- again since then.
UPDATE notice SET state = :state, tries = :tried, due_ms = :due_ms, because = :because, tried_ms = :now,
                  ended_ms = CASE WHEN :state = 'waiting' THEN NULL ELSE CAST(:now AS BIGINT) END
WHERE endpoint = :endpoint AND fact >= :first AND fact <= :last AND state = 'waiting' AND tries = :tries AND due_ms >= :due_from AND due_ms <= :due_until

-- name: notices
-- List the notices of an endpoint, newest fact first.
SELECT notice.fact AS fact, notice.job, notice.state, notice.tries, notice.due_ms, notice.because, notice.tried_ms, notice.ended_ms,
       event.kind, event.state AS job_state, event.at_ms
FROM notice JOIN event ON event.project = :project AND event.fact = notice.fact
WHERE notice.endpoint = :endpoint AND notice.fact < :before
UNION ALL
SELECT notice.fact, '', notice.state, notice.tries, notice.due_ms, notice.because, notice.tried_ms, notice.ended_ms,
       'cost threshold', '', crossing.at_ms
FROM notice JOIN cost_crossing AS crossing ON crossing.project = :project AND crossing.fact = notice.fact
WHERE notice.endpoint = :endpoint AND notice.fact < :before AND notice.job IS NULL
ORDER BY fact DESC LIMIT :most

-- name: drop_waiting
UPDATE notice SET state = 'dropped', because = :because, ended_ms = :now WHERE endpoint = :endpoint AND state = 'waiting'

-- name: overfull_endpoints
SELECT endpoint FROM notice WHERE state = 'waiting' GROUP BY endpoint HAVING COUNT(*) > :most ORDER BY endpoint

-- name: drop_oldest
-- Drop those that wait for an endpoint, except the newest ones.
UPDATE notice SET state = 'dropped', because = :because, ended_ms = :now
WHERE endpoint = :endpoint AND state = 'waiting'
  AND fact <= (SELECT newer.fact FROM notice AS newer WHERE newer.endpoint = :endpoint AND newer.state = 'waiting'
               ORDER BY newer.fact DESC LIMIT 1 OFFSET :most)

-- name: replay_notice
UPDATE notice SET state = 'waiting', tries = 0, due_ms = :now, because = '', ended_ms = NULL WHERE endpoint = :endpoint AND fact = :fact

-- name: replay_facts
-- Send the facts that an endpoint receives again, or for the first time; return them.
INSERT INTO notice (endpoint, fact, job, state, due_ms)
SELECT endpoint.id AS endpoint, event.fact AS fact, event.job AS job, 'waiting' AS state, CAST(:now AS BIGINT) AS due_ms
FROM endpoint JOIN event ON event.project = endpoint.project AND event.fact > :after AND event.at_ms >= :since_ms
     JOIN project ON project.id = endpoint.project AND event.fact <= project.facts
WHERE endpoint.id = :endpoint AND endpoint.state = 'active'
  AND EXISTS (SELECT 1 FROM endpoint_event AS chosen
              WHERE chosen.endpoint = endpoint.id AND chosen.kind = event.kind AND chosen.state IN ('', event.state))
UNION ALL
SELECT endpoint.id, crossing.fact, NULL, 'waiting', CAST(:now AS BIGINT)
FROM endpoint JOIN cost_crossing AS crossing ON crossing.project = endpoint.project AND crossing.fact > :after AND crossing.at_ms >= :since_ms
WHERE endpoint.id = :endpoint AND {hears_of_thresholds}
ORDER BY fact LIMIT :most
ON CONFLICT (endpoint, fact) DO UPDATE SET state = 'waiting', tries = 0, due_ms = excluded.due_ms, because = '', ended_ms = NULL
RETURNING fact

-- name: forget_notices
-- Shorten the log of deliveries, a part at a time.
DELETE FROM notice WHERE (endpoint, fact) IN
    (SELECT old.endpoint, old.fact FROM notice AS old WHERE old.ended_ms < :before ORDER BY old.ended_ms LIMIT :most)
RETURNING fact

-- name: forget_orphans
-- Delete notices that wait to be sent although the job of their fact was deleted in the moment in which they were added, or by an older server.
DELETE FROM notice WHERE (endpoint, fact) IN
    (SELECT lost.endpoint, lost.fact FROM notice AS lost JOIN endpoint ON endpoint.id = lost.endpoint
     WHERE lost.state = 'waiting' AND lost.job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM event WHERE event.project = endpoint.project AND event.fact = lost.fact) LIMIT :most)

-- name: remove_notices_of_endpoint
DELETE FROM notice WHERE endpoint = :endpoint
