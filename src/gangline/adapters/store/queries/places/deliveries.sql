-- Deliveries: results that are copied to an address of their owner.

-- name: add_delivery
INSERT INTO delivery (job, address, state, done, because, server, turn_ends_ms, tries)
VALUES (:job, :address, 'waiting', '{}', '', '', 0, 0)

-- name: delivery
SELECT delivery.job, delivery.address, delivery.state, delivery.done, delivery.because, delivery.turn_ends_ms, delivery.tries,
       job.project, job.state AS job_state
FROM delivery JOIN job ON job.id = delivery.job WHERE delivery.job = :job

-- name: deliveries_to_make
-- List deliveries of jobs that have ended, except those in another server's turn.
SELECT delivery.job FROM delivery JOIN job ON job.id = delivery.job
WHERE delivery.state = 'waiting' AND job.ended_ms IS NOT NULL AND (delivery.turn_ends_ms < :now OR delivery.server = :server)
ORDER BY delivery.turn_ends_ms, delivery.job LIMIT 100

-- name: take_delivery
-- Take the turn: one server at a time copies a delivery.
UPDATE delivery SET server = :server, turn_ends_ms = :turn_ends_ms
WHERE job = :job AND (turn_ends_ms < :now OR server = :server)

-- name: advance_delivery
-- Record progress, only by the server whose turn it is.
UPDATE delivery SET done = :done, because = '', tries = 0, turn_ends_ms = :turn_ends_ms WHERE job = :job AND server = :server

-- name: end_delivery
-- End the turn, only by the server whose turn it is; the next one may not start before `:not_before_ms`.
UPDATE delivery SET state = :state, because = :because, tries = :tries, turn_ends_ms = :not_before_ms, server = ''
WHERE job = :job AND server = :server

-- name: remove_delivery
DELETE FROM delivery WHERE job = :job
