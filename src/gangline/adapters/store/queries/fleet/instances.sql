-- Instances that are rented from a provider, and their bills.

-- name: instance_to_end
-- Read the instance of a rented node that is to leave and has no lease.
SELECT pool, instance, place, state, because, COALESCE(proof_failed, 0) AS proof_failed FROM node
WHERE id = :node AND rented = 1 AND instance IS NOT NULL AND state IN ('draining', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: adopt
-- Record the node's instance. A node keeps the one that it has, so of two servers that see the same orphan only one adopts it.
UPDATE node SET instance = :instance, missing = 0 WHERE id = :id AND instance IS NULL

-- name: count_missing
-- Count absences in a row: a provider's list may lack an instance once although it still runs.
UPDATE node SET missing = CASE WHEN :listed = 1 THEN 0 ELSE missing + 1 END WHERE id = :id

-- name: open_instances
-- List the instances of all pools whose end was not seen.
SELECT id, node FROM instance WHERE billed_to_ms IS NULL

-- name: ended_instances
-- List the instances that ended recently.
SELECT id, node, billed_to_ms FROM instance WHERE billed_to_ms >= :since

-- name: see_instance
-- The id has the rental's name before the provider's own id, which another provider may give to another instance.
INSERT INTO instance (id, node, billed_from_ms, billed_to_ms, settled) VALUES (:id, :node, :billed_from_ms, :billed_to_ms, 0)
-- An end that is seen after one was assumed is the right one, and is settled again.
ON CONFLICT (id) DO UPDATE SET billed_to_ms = excluded.billed_to_ms,
    settled = CASE WHEN instance.billed_to_ms = excluded.billed_to_ms THEN instance.settled ELSE 0 END

-- name: bills_of_gone_nodes
-- List the open bills of a pool's rentals whose nodes are gone, and when the last of these was.
SELECT instance.id, instance.billed_from_ms,
       COALESCE((SELECT MAX(member.meter_ms) FROM node AS member WHERE member.rental = node.id), node.meter_ms) AS gone_ms
FROM instance JOIN node ON node.id = instance.node
WHERE instance.billed_to_ms IS NULL AND node.pool = :pool
  AND NOT EXISTS (SELECT 1 FROM node AS later WHERE later.rental = node.id AND later.state <> 'gone')

-- name: end_unseen
-- End a bill by what we know ourselves. An end that a list has shown meanwhile stays.
UPDATE instance SET billed_to_ms = :billed_to_ms WHERE id = :id AND billed_to_ms IS NULL

-- name: add_unbilled
-- Record a span that the provider does not bill. One that overlaps a known one is the same, as another server or a later look saw it.
INSERT INTO unbilled (instance, from_ms, to_ms)
SELECT :instance, :from_ms, :to_ms
WHERE NOT EXISTS (SELECT 1 FROM unbilled
                  WHERE unbilled.instance = :instance AND unbilled.from_ms < :to_ms AND unbilled.to_ms > :from_ms)

-- name: unbilled_lately
-- List the spans of instances whose bill is not settled.
SELECT unbilled.instance, unbilled.from_ms, unbilled.to_ms FROM unbilled JOIN instance ON instance.id = unbilled.instance
WHERE instance.settled = 0

-- name: unbilled
SELECT from_ms, to_ms FROM unbilled WHERE instance = :instance

-- name: instances_to_settle
-- List instances of rentals whose nodes are gone, once all their instances have ended: then nothing more is billed. An instance has the
-- name of its rental, which is that of the rental's first node.
SELECT instance.id, instance.node, instance.billed_from_ms, instance.billed_to_ms,
       node.joined_ms, node.price_micro_usd_per_hour, node.instance,
       CASE WHEN EXISTS (SELECT 1 FROM ledger WHERE ledger.node = node.id AND ledger.cause = 'start-up' AND ledger.attempt = instance.id)
            THEN 1 ELSE 0 END AS has_start_up
FROM instance JOIN node ON node.id = instance.node
WHERE instance.settled = 0 AND node.state = 'gone'
  AND NOT EXISTS (SELECT 1 FROM node AS later WHERE later.rental = node.id AND later.state <> 'gone')
  AND NOT EXISTS (SELECT 1 FROM instance AS other WHERE other.node = node.id AND other.billed_to_ms IS NULL)

-- name: settle
-- The flag is the guard of the ledger lines in the same transaction: an instance's bill is settled once, whichever server is first.
UPDATE instance SET settled = 1 WHERE id = :id AND settled = 0

-- name: known_bill
-- Sum what the ledger has so far for the time of all nodes of the rental.
SELECT CAST(COALESCE(SUM(ledger.micro_usd), 0) AS BIGINT) AS micro_usd FROM ledger
WHERE ledger.node IN (SELECT :rental UNION SELECT id FROM node WHERE rental = :rental) AND ledger.cause NOT IN ('storage', 'egress')

-- name: settled_instances
SELECT id, billed_from_ms, billed_to_ms FROM instance WHERE node = :node AND settled = 1

-- name: instances_of_rental
SELECT id, billed_from_ms, billed_to_ms, settled FROM instance WHERE node = :rental ORDER BY billed_from_ms, id

-- name: time_of_rental
-- Sum the time of all nodes of the rental by its cause.
SELECT cause, CAST(SUM(to_ms - from_ms) AS BIGINT) AS ms, CAST(SUM(micro_usd) AS BIGINT) AS micro_usd, MIN(from_ms) AS first_ms
FROM ledger
WHERE ledger.node IN (SELECT :rental UNION SELECT id FROM node WHERE rental = :rental) AND ledger.cause NOT IN ('storage', 'egress')
GROUP BY cause ORDER BY first_ms, cause

-- name: nodes_of_rental_here
SELECT id FROM node WHERE rental = :rental AND state <> 'gone'
