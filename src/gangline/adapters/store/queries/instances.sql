-- What is rented of a provider, and what it bills for that.

-- name: instance_to_end
-- What a node is rented as that is to leave and has nothing more to do.
SELECT pool, instance, because FROM node
WHERE id = :node AND rented = 1 AND instance IS NOT NULL AND state IN ('draining', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: adopt
-- A node keeps the instance that it has. Of two servers that see the same orphan one adopts it.
UPDATE node SET instance = :instance, missing = 0 WHERE id = :id AND instance IS NULL

-- name: count_missing
-- A provider's list may lack an instance once without its being gone, so absences in a row are counted.
UPDATE node SET missing = CASE WHEN :listed = 1 THEN 0 ELSE missing + 1 END WHERE id = :id

-- name: known_instances
-- Those that were not seen to end, and those that ended of late.
SELECT id, billed_to_ms FROM instance WHERE billed_to_ms IS NULL
UNION ALL SELECT id, billed_to_ms FROM instance WHERE billed_to_ms >= :since

-- name: see_instance
INSERT INTO instance (id, node, billed_from_ms, billed_to_ms, settled) VALUES (:id, :node, :billed_from_ms, :billed_to_ms, 0)
ON CONFLICT (id) DO UPDATE SET billed_to_ms = excluded.billed_to_ms

-- name: instances_to_settle
-- All of a node's have ended, and the node too, so that nothing more is written on it.
SELECT instance.id, instance.node, instance.billed_from_ms, instance.billed_to_ms,
       node.joined_ms, node.price_micro_usd_per_hour, node.instance
FROM instance JOIN node ON node.id = instance.node
WHERE instance.settled = 0 AND node.state = 'gone'
  AND NOT EXISTS (SELECT 1 FROM instance AS other WHERE other.node = node.id AND other.billed_to_ms IS NULL)

-- name: settle
-- The flag is the guard of the ledger lines beside it: an instance's bill is settled once, whichever server comes first.
UPDATE instance SET settled = 1 WHERE id = :id AND settled = 0

-- name: known_bill
-- What the ledger says of a node's time so far.
SELECT CAST(COALESCE(SUM(ledger.micro_usd), 0) AS BIGINT) AS micro_usd FROM ledger
WHERE ledger.node = :node AND ledger.cause NOT IN ('storage', 'egress')

-- name: settled_instances
SELECT billed_from_ms, billed_to_ms FROM instance WHERE node = :node AND settled = 1
