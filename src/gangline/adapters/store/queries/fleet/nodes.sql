-- Nodes: how they join, their state, and how they leave.

-- name: add_node
-- Add a node that joins without being rented.
INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities,
                  kinds, problems, proof_failed, price_micro_usd_per_hour, price_known, join_token, rented, missing, since_ms,
                  joined_ms, seen_ms, meter_ms)
VALUES (:id, :machine, :name, :pool, :state, :because, :gpu, :gpu_memory_gb, :trust, :numerics, :slots, :capabilities,
        :kinds, :problems, :proof_failed, :price_micro_usd_per_hour, :price_known, :join_token, 0, 0, :now, :now, :now, :now)

-- name: rent_node
-- Add the first node of a rental that a provider is asked for; both have this id.
INSERT INTO node (id, rental, offer, machine, name, number, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots,
                  capabilities, price_micro_usd_per_hour, price_known, rented, missing, since_ms, seen_ms, meter_ms)
SELECT :id, :id, :offer, '', :called || '-' || next.number, next.number, :pool, 'starting', :because, :gpu, :gpu_memory_gb, :trust, '', :slots,
       '{}', :price_micro_usd_per_hour, :price_known, 1, 0, :now, :now, :now
FROM (SELECT COALESCE(MAX(number), 0) + 1 AS number FROM node WHERE pool = :pool) AS next

-- name: move_rental
-- Add the next node of a rental, which its provider moved to another place. The schema refuses it while the rental has a node.
INSERT INTO node (id, rental, offer, instance, place, shown_machine, leaves, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics,
                  slots, capabilities, price_micro_usd_per_hour, price_known, rented, missing, since_ms, seen_ms, meter_ms)
SELECT :id, rental, offer, instance, :place, :shown_machine, :leaves, '', name, pool, 'starting', :because, gpu, gpu_memory_gb, trust, '',
       slots, '{}', price_micro_usd_per_hour, price_known, 1, 0, :now, :now, :now
FROM node WHERE id = :left

-- name: node_of_rental
SELECT id, instance, place, shown_machine, leaves, because, trust FROM node WHERE rental = :rental AND state <> 'gone'

-- name: place_node
-- Record the place that the provider shows for a node that nobody joined as yet, or that joined without one.
UPDATE node SET place = :place, shown_machine = :shown_machine WHERE id = :id AND (state = 'starting' OR place = '')

-- name: note_progress
UPDATE node SET progress = :progress WHERE id = :id

-- name: node_joined
-- The worker of a rented node joins. The state is the guard: of two workers with the rental's token, only the first joins.
UPDATE node SET place = CASE WHEN place = '' THEN :place ELSE place END, machine = :machine, state = :state, because = :because, gpu = :gpu, gpu_memory_gb = :gpu_memory_gb,
       numerics = :numerics, slots = :slots, capabilities = :capabilities, kinds = :kinds,
       problems = :problems, proof_failed = :proof_failed, joined_ms = :now, seen_ms = :now, meter_ms = :now
WHERE id = :id AND state = 'starting' AND place IN ('', :place)

-- name: node
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.gpu_memory_gb, node.trust,
       node.numerics, node.slots, node.kinds, node.problems, node.price_micro_usd_per_hour, node.price_known, node.rented, node.instance,
       node.rental, node.offer, node.place, node.progress, node.capabilities, COALESCE(node.proof_failed, 0) AS proof_failed, node.refused, node.since_ms, node.joined_ms, node.seen_ms, node.meter_ms, COALESCE(machine.rest_until_ms, 0) AS rest_until_ms,
       COALESCE(machine.quarantined_until_ms, 0) AS quarantined_until_ms,
       CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease WHERE lease.node = node.id) AS BIGINT) AS slots_taken
FROM node LEFT JOIN machine ON machine.id = node.machine
WHERE node.id = :id

-- name: nodes
-- List the nodes that are not gone.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.slots, node.trust,
       node.price_micro_usd_per_hour, node.price_known, node.joined_ms, node.seen_ms, node.progress,
       newest.gauges, newest.at_ms AS gauges_ms
FROM node LEFT JOIN node_gauges AS newest ON newest.node = node.id AND newest.place = 0
WHERE node.state <> 'gone'
ORDER BY node.since_ms, node.id

-- name: jobs_of_node
SELECT lease.attempt, lease.node, attempt.job, job.project, lease.phase, lease.step, lease.slots, lease.beat_ms, lease.memory_bytes
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
WHERE lease.node = :node ORDER BY attempt.job

-- name: jobs_of_nodes
SELECT lease.node, attempt.job, job.project, lease.phase, lease.step, lease.slots, lease.beat_ms
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
ORDER BY attempt.job

-- name: nodes_here
-- List all nodes that are not gone, whatever runs on them.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.gpu_memory_gb, node.trust,
       node.numerics, node.slots, node.slots AS slots_free, node.kinds, node.problems, node.price_micro_usd_per_hour,
       node.price_known, node.meter_ms, node.joined_ms, COALESCE(machine.rest_until_ms, 0) AS rest_until_ms,
       COALESCE(machine.quarantined_until_ms, 0) AS quarantined_until_ms
FROM node LEFT JOIN machine ON machine.id = node.machine
WHERE node.state <> 'gone'
ORDER BY node.since_ms, node.id

-- name: nodes_of_machine
SELECT id, pool, state, rented FROM node WHERE machine = :machine AND state <> 'gone'

-- name: rented_nodes
-- List the nodes of all pools for the autoscaler. The heartbeat of a node with a lease is that of the lease.
SELECT node.id, node.pool, COALESCE(node.rental, node.id) AS rental, node.place, node.shown_machine, node.leaves, node.offer, node.because, node.progress,
       COALESCE(node.proof_failed, 0) AS proof_failed, node.state, node.since_ms, node.instance, node.missing,
       node.seen_ms, node.meter_ms, node.gpu, node.gpu_memory_gb, node.trust, node.slots, node.kinds, node.numerics,
       node.slots - COALESCE(held.slots, 0) AS slots_free, held.beat_ms
FROM node LEFT JOIN (SELECT node, CAST(SUM(slots) AS BIGINT) AS slots, MAX(beat_ms) AS beat_ms FROM lease GROUP BY node) AS held
     ON held.node = node.id
WHERE node.rented = 1 AND node.state <> 'gone'
ORDER BY node.since_ms, node.id

-- name: rented_in_pool
SELECT COUNT(*) AS nodes, CAST(COALESCE(SUM(CASE WHEN state = 'draining' THEN 1 ELSE 0 END), 0) AS BIGINT) AS draining
FROM node WHERE pool = :pool AND rented = 1 AND state <> 'gone'

-- name: failed_starts
-- Find a node that was rented recently and is gone without having joined.
SELECT id FROM node
WHERE pool = :pool AND joined_ms IS NULL AND since_ms > :since AND state = 'gone' AND refused = 0
LIMIT 1

-- name: last_refusal
-- Find the node that the provider of a pool refused last.
SELECT offer, because, since_ms FROM node WHERE pool = :pool AND refused = 1 ORDER BY since_ms DESC, id DESC LIMIT 1

-- name: refuse_node
UPDATE node SET refused = 1 WHERE id = :id

-- name: failed_probes
-- Count the rented nodes of a pool that failed their probe since the last node that passed it.
SELECT COUNT(*) AS nodes, COALESCE(MAX(joined_ms), 0) AS last_ms FROM node
WHERE pool = :pool AND rented = 1 AND proof_failed = 1
  AND joined_ms > (SELECT COALESCE(MAX(fit.joined_ms), 0) FROM node AS fit WHERE fit.pool = :pool AND fit.proof_failed = 0)

-- name: failed_probes_of_offers
-- Count for each offer of a pool the rented nodes that failed their probe lately, since the last one of the offer that passed it.
SELECT offer, COUNT(*) AS nodes FROM node
WHERE pool = :pool AND rented = 1 AND proof_failed = 1 AND joined_ms > :since
  AND joined_ms > (SELECT COALESCE(MAX(fit.joined_ms), 0) FROM node AS fit
                   WHERE fit.pool = :pool AND fit.offer = node.offer AND fit.proof_failed = 0)
GROUP BY offer

-- name: kinds_of_pool
-- List the kinds of nodes that a provider delivered recently.
SELECT DISTINCT kinds FROM node WHERE pool = :pool AND joined_ms > :since AND rented = 1

-- name: shapes_of_nodes
-- List, once each, what decides which jobs the working nodes may take.
SELECT DISTINCT pool, gpu, gpu_memory_gb, trust, slots, kinds, numerics FROM node WHERE state IN ('ready', 'on_trial')

-- name: nodes_by_hand
-- List the working nodes that no provider bills.
SELECT id, pool, state, gpu, gpu_memory_gb, trust, slots, kinds, numerics, meter_ms,
       slots - CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease WHERE lease.node = node.id) AS BIGINT) AS slots_free
FROM node WHERE state IN ('ready', 'on_trial') AND rented = 0
ORDER BY id

-- name: silent_nodes
-- A node that is starting has never been heard of: the autoscaler gives it up.
SELECT id FROM node
WHERE state IN ('ready', 'on_trial', 'draining', 'quarantined') AND seen_ms < :before
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: node_seen
UPDATE node SET seen_ms = :now WHERE id = :id

-- name: meter_node
-- Record that the node is billed up to now, and when it was last heard of; only if no other server has billed it since it was read.
UPDATE node SET meter_ms = :now, seen_ms = CASE WHEN seen_ms < :heard THEN :heard ELSE seen_ms END
WHERE id = :id AND meter_ms = :seen

-- name: node_gone
-- Mark a node as gone, unless it has a lease: an attempt that it claimed in the meantime must end first.
UPDATE node SET state = 'gone', because = :because
WHERE id = :id AND state <> 'gone' AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: count_lost
UPDATE node SET lost = 1 WHERE id = :id

-- name: set_node_state
-- Change the state that the decision saw; another server, or the node itself, may have changed it since.
UPDATE node SET state = :state, because = :because WHERE id = :id AND state = :before

-- name: hold_node
-- Lock the row before a write that reads the node's leases, so that a concurrent claim commits either before or after that write.
UPDATE node SET seen_ms = seen_ms WHERE id = :id

-- name: drain_idle
-- Drain a node, unless it has a lease: a busy node is never drained for being idle.
UPDATE node SET state = 'draining', because = :because
WHERE id = :id AND state IN ('ready', 'on_trial') AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: drain_node
-- Drain a node, busy or not. One that drains already keeps its reason, and one that is gone stays gone.
UPDATE node SET state = 'draining', because = :because WHERE id = :id AND state IN ('ready', 'on_trial', 'quarantined')

-- name: free_nodes
-- List working nodes, except `:but`, with their slots that no training uses.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.gpu_memory_gb, node.trust,
       node.numerics, node.slots, node.kinds, node.problems, node.price_micro_usd_per_hour, node.price_known,
       node.meter_ms, node.joined_ms, node.rented,
       COALESCE(machine.rest_until_ms, 0) AS rest_until_ms,
       node.slots - CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease JOIN attempt ON attempt.id = lease.attempt
                          JOIN job ON job.id = attempt.job
                          WHERE lease.node = node.id AND job.kind <> 'sample') AS BIGINT) AS slots_free
FROM node LEFT JOIN machine ON machine.id = node.machine
WHERE node.state IN ('ready', 'on_trial') AND node.id <> :but

-- name: nodes_working
-- Count a pool's working nodes including quarantined ones, and among them those of other machines that are not in quarantine.
SELECT COUNT(*) AS nodes,
       CAST(COALESCE(SUM(CASE WHEN state <> 'quarantined' AND machine <> :machine THEN 1 ELSE 0 END), 0) AS BIGINT) AS others
FROM node WHERE pool = :pool AND state <> 'gone' AND state IN ('ready', 'on_trial', 'quarantined')

-- name: nodes_of_machine_since
SELECT COUNT(*) AS nodes FROM node WHERE machine = :machine AND joined_ms > :since

-- name: add_base
INSERT INTO node_base (node, base) VALUES (:node, :base) ON CONFLICT (node, base) DO NOTHING

-- name: slots_in_use
-- Sum the slots that training uses; rendering stops for it, so it does not count.
SELECT lease.node, CAST(SUM(lease.slots) AS BIGINT) AS slots
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
WHERE job.kind <> 'sample'
GROUP BY lease.node
