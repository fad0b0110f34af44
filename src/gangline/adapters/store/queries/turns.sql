-- Which of several servers runs the tick, and when the service was down.

-- name: ticks
SELECT ticked_ms, back_ms, ticker, turn_ends_ms FROM service WHERE id = 1

-- name: tick
-- Take or extend the turn: one server at a time, until its turn is over. A gap before it was an outage, whichever server was down.
UPDATE service SET back_ms = CASE WHEN :now - ticked_ms > :gap_ms THEN :now ELSE back_ms END, ticked_ms = :now,
       ticker = :server, turn_ends_ms = :turn_ends_ms
WHERE id = 1 AND (ticker = :server OR turn_ends_ms < :now)

-- name: hold_turn
-- Do what follows in the turn of this server, and no other server does anything in its own meanwhile.
UPDATE service SET ticker = ticker WHERE id = 1 AND ticker = :server AND turn_ends_ms >= :now
