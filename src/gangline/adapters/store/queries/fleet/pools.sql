-- Pools that operators make.

-- name: pools
SELECT name, id, driver, provider, settings, secret, nodes_min, nodes_max, offers, price_max_micro_usd_per_hour, trust, state, version,
       changed_ms, seen, seen_ms
FROM pool ORDER BY name

-- name: pool
SELECT name, id, driver, provider, settings, secret, nodes_min, nodes_max, offers, price_max_micro_usd_per_hour, trust, state, version,
       changed_ms, seen, seen_ms
FROM pool WHERE name = :name

-- name: add_pool
-- Of two servers that add one name, the first makes it.
INSERT INTO pool (name, id, driver, provider, settings, secret, nodes_min, nodes_max, offers, price_max_micro_usd_per_hour, trust, state,
                  version, changed_ms)
VALUES (:name, :id, :driver, :provider, :settings, :secret, :nodes_min, :nodes_max, :offers, :price_max_micro_usd_per_hour, :trust, 'active',
        1, :now)
ON CONFLICT (name) DO NOTHING

-- name: set_pool
-- Change what the decision saw; somebody else may have changed it since.
UPDATE pool SET settings = :settings, secret = :secret, nodes_min = :nodes_min, nodes_max = :nodes_max, offers = :offers,
       price_max_micro_usd_per_hour = :price_max_micro_usd_per_hour, trust = :trust, version = version + 1, changed_ms = :now
WHERE name = :name AND version = :version

-- name: set_pool_state
-- A pool that is being removed stays so.
UPDATE pool SET state = :state, version = version + 1, changed_ms = :now WHERE name = :name AND state <> 'removing'

-- name: look_at_pool
-- Ask the server that has its turn to look at the provider now.
UPDATE pool SET changed_ms = :now WHERE name = :name

-- name: see_pool
-- Keep what the provider's driver said; the time stays that of its last answer while it gives none.
UPDATE pool SET seen = :seen, seen_ms = COALESCE(:answered_ms, seen_ms) WHERE name = :name

-- name: changed_pools
SELECT name FROM pool WHERE changed_ms > :since LIMIT 1

-- name: forget_pool
-- Forget a pool that is to be removed, once none of its nodes is left and every bill of its instances is settled.
DELETE FROM pool
WHERE name = :name AND state = 'removing'
  AND NOT EXISTS (SELECT 1 FROM node WHERE node.pool = pool.name AND node.rented = 1 AND node.state <> 'gone')
  AND NOT EXISTS (SELECT 1 FROM instance JOIN node ON node.id = instance.node WHERE node.pool = pool.name AND instance.settled = 0)

-- name: leases_of_pool
SELECT lease.attempt, lease.node, attempt.job FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN node ON node.id = lease.node
WHERE node.pool = :pool AND node.rented = 1

-- name: nodes_to_drain
-- List the nodes of a pool that may still get work.
SELECT id, state FROM node WHERE pool = :pool AND rented = 1 AND state IN ('starting', 'ready', 'on_trial')

-- name: unseen_rentals
-- Find a rental of a pool that its provider did not refuse, and was never seen to bill: it may still come.
SELECT id FROM node
WHERE pool = :pool AND rented = 1 AND refused = 0 AND COALESCE(rental, id) = id
  AND NOT EXISTS (SELECT 1 FROM instance WHERE instance.node = node.id)
LIMIT 1

-- name: nodes_of_pool_here
SELECT COALESCE(rental, id) AS rental, name FROM node WHERE pool = :pool AND rented = 1 AND state <> 'gone' ORDER BY id
