-- Every statement of the server, by name. `:name` is a parameter.
-- A write that carries a guard changes no row when somebody else moved on; the store then undoes the whole transaction.

-- name: credential
-- Whose secret it is.
SELECT credential.id, credential.role, credential.project, credential.pool, credential.node, credential.expires_ms,
       credential.revoked_ms, credential.used_ms, node.state AS node_state
FROM credential LEFT JOIN node ON node.id = credential.node
WHERE credential.hash = :hash

-- name: add_credential
INSERT INTO credential (id, hash, role, name, project, pool, node, made_ms, expires_ms)
VALUES (:id, :hash, :role, :name, :project, :pool, :node, :now, :expires_ms)
ON CONFLICT (hash) DO NOTHING

-- name: use_credential
UPDATE credential SET used_ms = :now WHERE id = :id

-- name: keys
-- Of a project; without one, all of them and the operators' too.
SELECT id, role, name, project, made_ms, expires_ms, revoked_ms, used_ms FROM credential
WHERE node IS NULL AND role <> 'join' AND (CAST(:project AS TEXT) IS NULL OR project = :project)
ORDER BY made_ms, id

-- name: revoke_key
-- A project's own; without one, any.
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now)
WHERE id = :id AND role NOT IN ('join', 'node') AND (CAST(:project AS TEXT) IS NULL OR project = :project)

-- name: join_tokens
SELECT id, name, pool, made_ms, expires_ms, revoked_ms, used_ms FROM credential
WHERE node IS NULL AND role = 'join'
ORDER BY made_ms, id

-- name: revoke_join_token
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now) WHERE id = :id AND role = 'join'

-- name: add_node
-- One that joins by hand.
INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities,
                  price_micro_usd_per_hour, rented, missing, since_ms, joined_ms, seen_ms, meter_ms)
VALUES (:id, :machine, :name, :pool, :state, :because, :gpu, :gpu_memory_gb, 0, :numerics, :slots, :capabilities,
        :price_micro_usd_per_hour, 0, 0, :now, :now, :now, :now)

-- name: rent_node
-- One that was asked of a provider; its worker will join as it.
INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities,
                  price_micro_usd_per_hour, rented, missing, since_ms, seen_ms, meter_ms)
VALUES (:id, '', :id, :pool, 'starting', :because, :gpu, :gpu_memory_gb, :trust, '', :slots, '{}',
        :price_micro_usd_per_hour, 1, 0, :now, :now, :now)

-- name: node_joined
-- The worker of a rented node, once.
UPDATE node SET machine = :machine, state = :state, because = :because, gpu = :gpu, gpu_memory_gb = :gpu_memory_gb,
       numerics = :numerics, slots = :slots, capabilities = :capabilities, joined_ms = :now, seen_ms = :now, meter_ms = :now
WHERE id = :id AND state = 'starting'

-- name: node
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.gpu_memory_gb, node.trust,
       node.numerics, node.slots, node.price_micro_usd_per_hour, node.rented, node.instance, node.since_ms, node.joined_ms,
       node.seen_ms, node.meter_ms, COALESCE(machine.rest_until_ms, 0) AS rest_until_ms,
       CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease WHERE lease.node = node.id) AS BIGINT) AS slots_taken
FROM node LEFT JOIN machine ON machine.id = node.machine
WHERE node.id = :id

-- name: nodes
-- Those that are here, and what each is working on.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.slots,
       node.price_micro_usd_per_hour, node.joined_ms, node.seen_ms, attempt.job, job.project, lease.phase
FROM node LEFT JOIN lease ON lease.node = node.id LEFT JOIN attempt ON attempt.id = lease.attempt
     LEFT JOIN job ON job.id = attempt.job
WHERE node.state <> 'gone'
ORDER BY node.since_ms, node.id

-- name: working_nodes
-- Those that get work, whoever uses their slots now.
SELECT id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, slots AS slots_free,
       price_micro_usd_per_hour, meter_ms, joined_ms
FROM node WHERE state IN ('ready', 'on_trial')
ORDER BY since_ms, id

-- name: nodes_of_machine
SELECT id, pool, state, rented FROM node WHERE machine = :machine AND state <> 'gone'

-- name: nodes_of_pool
-- As the autoscaler sees them. A node that holds a lease is heard of through it.
SELECT node.id, node.state, node.since_ms, node.instance, node.missing, node.rented, node.seen_ms, node.meter_ms,
       (SELECT MAX(lease.beat_ms) FROM lease WHERE lease.node = node.id) AS beat_ms
FROM node
WHERE node.pool = :pool AND node.state <> 'gone'
ORDER BY node.since_ms, node.id

-- name: rented_in_pool
SELECT COUNT(*) AS nodes, CAST(COALESCE(SUM(CASE WHEN state = 'draining' THEN 1 ELSE 0 END), 0) AS BIGINT) AS draining
FROM node WHERE pool = :pool AND rented = 1 AND state <> 'gone'

-- name: failed_starts
-- Nodes that were asked for of late, and are gone without having joined.
SELECT id FROM node WHERE pool = :pool AND joined_ms IS NULL AND since_ms > :since AND state = 'gone' LIMIT 1

-- name: silent_nodes
SELECT id FROM node
WHERE state IN ('ready', 'on_trial', 'draining', 'quarantined') AND seen_ms < :before
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: node_seen
UPDATE node SET seen_ms = :now WHERE id = :id

-- name: meter_node
-- Its bill is written up to now, and it was heard of; only if nobody else wrote on it since it was read.
UPDATE node SET meter_ms = :now, seen_ms = CASE WHEN seen_ms < :heard THEN :heard ELSE seen_ms END
WHERE id = :id AND meter_ms = :seen

-- name: node_gone
-- It holds nothing any more: what it claimed in between must end first.
UPDATE node SET state = 'gone', because = :because
WHERE id = :id AND state <> 'gone' AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: set_node_state
UPDATE node SET state = :state, because = :because WHERE id = :id AND state = :before

-- name: hold_node
-- Before a write that looks at the node's leases: whoever gives it one meanwhile goes first.
UPDATE node SET seen_ms = seen_ms WHERE id = :id

-- name: drain_idle
-- A busy node is never the one to go.
UPDATE node SET state = 'draining', because = :because
WHERE id = :id AND state IN ('ready', 'on_trial') AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: instance_to_end
-- What a node is rented as that is to leave and has nothing more to do.
SELECT pool, instance, because FROM node
WHERE id = :node AND rented = 1 AND instance IS NOT NULL AND state IN ('draining', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)

-- name: adopt
UPDATE node SET instance = :instance, missing = 0 WHERE id = :id AND instance IS NULL

-- name: count_missing
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
UPDATE instance SET settled = 1 WHERE id = :id AND settled = 0

-- name: known_bill
-- What the ledger says of a node's time so far.
SELECT CAST(COALESCE(SUM(ledger.micro_usd), 0) AS BIGINT) AS micro_usd FROM ledger
WHERE ledger.node = :node AND ledger.cause NOT IN ('storage', 'egress')

-- name: settled_instances
SELECT billed_from_ms, billed_to_ms FROM instance WHERE node = :node AND settled = 1

-- name: add_base
INSERT INTO node_base (node, base) VALUES (:node, :base) ON CONFLICT (node, base) DO NOTHING

-- name: know_machine
INSERT INTO machine (id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_until_ms, on_trial, because)
VALUES (:id, :pool, :now, 0, 0, 0, 0, 0, '')
ON CONFLICT (id) DO NOTHING

-- name: machine
SELECT id, pool, failures, rest_until_ms, quarantines, quarantined_ms, quarantined_until_ms, on_trial, because
FROM machine WHERE id = :id

-- name: machine_failed
UPDATE machine SET failures = failures + 1, rest_until_ms = :rest_until_ms WHERE id = :id

-- name: machine_went_well
UPDATE machine SET failures = 0, rest_until_ms = 0, on_trial = 0 WHERE id = :id

-- name: quarantine_machine
-- Once for what it did.
UPDATE machine SET quarantines = quarantines + 1, quarantined_ms = :now, quarantined_until_ms = :until_ms, on_trial = 1,
       because = :because
WHERE id = :id AND quarantines = :quarantines

-- name: alarm
UPDATE machine SET because = :because WHERE id = :id

-- name: quarantined_lately
SELECT COUNT(*) AS machines FROM machine WHERE pool = :pool AND quarantined_ms > :since AND id <> :id

-- name: nodes_working
SELECT COUNT(*) AS nodes FROM node WHERE pool = :pool AND state <> 'gone' AND state IN ('ready', 'on_trial', 'quarantined')

-- name: quarantines_over
-- Nodes of machines that have served their time.
SELECT node.id, node.machine FROM node JOIN machine ON machine.id = node.machine
WHERE node.state = 'quarantined' AND machine.quarantined_until_ms <= :now

-- name: add_strike
INSERT INTO strike (attempt, machine, job, workload, gpu, kind, quarters, at_ms)
VALUES (:attempt, :machine, :job, :workload, :gpu, :kind, :quarters, :now)

-- name: forgive_strikes
DELETE FROM strike WHERE kind = :kind AND attempt IN (SELECT id FROM attempt WHERE job = :job)

-- name: strikes
-- Those that are not paid for, each with its contrast: what went well on another machine of the class.
SELECT strike.kind, strike.workload, strike.quarters,
       EXISTS (SELECT 1 FROM pace WHERE pace.workload = strike.workload AND pace.gpu = strike.gpu
               AND pace.machine <> strike.machine) AS workload_elsewhere,
       EXISTS (SELECT 1 FROM attempt WHERE attempt.job = strike.job AND attempt.machine <> strike.machine
               AND (attempt.committed_step > 0 OR attempt.state = 'succeeded')) AS job_elsewhere
FROM strike JOIN machine ON machine.id = strike.machine
WHERE strike.machine = :machine AND strike.at_ms > :since AND strike.at_ms > COALESCE(machine.quarantined_ms, -1)

-- name: struck_machines
-- Those with strikes that are not paid for, and not in quarantine.
SELECT DISTINCT machine.id, machine.pool FROM strike JOIN machine ON machine.id = strike.machine
WHERE strike.at_ms > :since AND strike.at_ms > COALESCE(machine.quarantined_ms, -1) AND machine.quarantined_until_ms <= :now

-- name: set_pace
INSERT INTO pace (workload, gpu, machine, seconds_per_step, at_ms) VALUES (:workload, :gpu, :machine, :seconds_per_step, :now)
ON CONFLICT (workload, gpu, machine)
DO UPDATE SET seconds_per_step = COALESCE(excluded.seconds_per_step, pace.seconds_per_step), at_ms = excluded.at_ms

-- name: paces
-- Of the machines that were tried, as many as matter.
SELECT machine, seconds_per_step,
       EXISTS (SELECT 1 FROM node WHERE node.machine = pace.machine AND node.state IN ('ready', 'on_trial')) AS working
FROM pace WHERE workload = :workload AND gpu = :gpu AND seconds_per_step IS NOT NULL
ORDER BY machine LIMIT :limit

-- name: pace_of_gpu
-- The latest workload that is known of a class, on all of its machines.
SELECT workload, AVG(seconds_per_step) AS seconds_per_step FROM pace
WHERE gpu = :gpu AND seconds_per_step IS NOT NULL GROUP BY workload ORDER BY MAX(at_ms) DESC, workload LIMIT 1

-- name: lost_of_gpu
SELECT CAST(COALESCE(SUM(CASE WHEN state = 'interrupted' THEN 1 ELSE 0 END), 0) AS BIGINT) AS interruptions,
       CAST(COALESCE(SUM(ended_ms - started_ms), 0) AS BIGINT) AS ms
FROM attempt WHERE gpu = :gpu AND state <> 'live' AND ended_ms > :since

-- name: pace_at_job
-- How fast a machine is at such a job, where that is known.
SELECT pace.seconds_per_step, pace.workload, job.steps FROM job
JOIN pace ON pace.workload = job.workload AND pace.gpu = :gpu AND pace.machine = :machine
WHERE job.id = :job AND pace.seconds_per_step IS NOT NULL

-- name: machines_tried
-- Of the nodes that came to a pool last, how many were machines that had never come before.
SELECT COUNT(*) AS nodes,
       CAST(COALESCE(SUM(CASE WHEN machine.known_ms = latest.joined_ms THEN 1 ELSE 0 END), 0) AS BIGINT) AS new
FROM (SELECT machine, joined_ms FROM node WHERE pool = :pool AND joined_ms IS NOT NULL ORDER BY joined_ms DESC LIMIT :last) AS latest
     JOIN machine ON machine.id = latest.machine

-- name: foresee
-- What a pool's next claims reckon with: jobs that wait for each node, and the chance that the next machine is a new one.
INSERT INTO foresight (pool, waiting, new_share) VALUES (:pool, :waiting, :new_share)
ON CONFLICT (pool) DO UPDATE SET waiting = excluded.waiting, new_share = excluded.new_share

-- name: foreseen
SELECT waiting, new_share FROM foresight WHERE pool = :pool

-- name: nodes_of_machine_since
SELECT COUNT(*) AS nodes FROM node WHERE machine = :machine AND joined_ms > :since

-- name: add_ban
INSERT INTO ban (job, machine, because, at_ms) VALUES (:job, :machine, :because, :now)

-- name: bans
SELECT machine FROM ban WHERE job = :job

-- name: lift_bans
DELETE FROM ban WHERE job = :job

-- name: add_project
INSERT INTO project (id, share, usage, usage_ms, spent, reserved) VALUES (:id, 1, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING

-- name: project
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project WHERE id = :id

-- name: projects
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project ORDER BY id

-- name: set_project
UPDATE project SET share = :share, budget = :budget WHERE id = :id

-- name: waiting_projects
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project
WHERE (SELECT id FROM job WHERE job.project = project.id AND job.state = 'queued' AND job.fencing = 0 AND job.kind <> 'sample'
       ORDER BY priority DESC LIMIT 1) IS NOT NULL

-- name: reserve
-- Within the budget, or not at all.
UPDATE project SET reserved = reserved + :micro_usd
WHERE id = :id AND (budget IS NULL OR spent + reserved + :micro_usd <= budget)

-- name: enter
-- A claim: what it may spend is reserved within the budget, or not at all, and it counts as used.
UPDATE project SET reserved = reserved + :micro_usd, usage = :usage, usage_ms = :now
WHERE id = :id AND (budget IS NULL OR spent + reserved + :micro_usd <= budget)

-- name: spend
-- An attempt has ended: what it cost takes the place of what was reserved for it.
UPDATE project SET spent = spent + :micro_usd, usage = :usage, usage_ms = :now,
       reserved = reserved - :reserved
WHERE id = :id

-- name: blob
SELECT bytes FROM blob WHERE project = :project AND sha256 = :sha256

-- name: add_blob
INSERT INTO blob (project, sha256, bytes, made_ms) VALUES (:project, :sha256, :bytes, :now)
ON CONFLICT (project, sha256) DO NOTHING

-- name: name_base
INSERT INTO base (project, name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms)
VALUES (:project, :name, :base, :base_id, :vae, :vae_id, :family, :prediction_type, :licence, :because, :bytes, :now)
ON CONFLICT (project, name) DO NOTHING

-- name: bases
SELECT name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms FROM base
WHERE project = :project ORDER BY name

-- name: base
SELECT name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms FROM base
WHERE project = :project AND name = :name

-- name: forget_base
DELETE FROM base WHERE project = :project AND name = :name

-- name: begin_mirror
-- What failed before is tried again.
INSERT INTO mirror (project, base, role, repo, revision, state, because, files, bytes, done_files, done_bytes, begun, parts, server,
                    turn_ends_ms, tries)
VALUES (:project, :base, :role, :repo, :revision, 'fetching', '', :files, :bytes, 0, 0, '', '[]', '', 0, 0)
ON CONFLICT (project, base, role) DO UPDATE SET state = 'fetching', because = '', tries = 0, turn_ends_ms = 0
WHERE mirror.state = 'failed'

-- name: mirrors
SELECT project, base, role, repo, revision, state, because, files, bytes, done_files, done_bytes, begun, parts, tries FROM mirror
WHERE project = :project AND base = :base

-- name: mirrors_to_make
-- For names that are there still, and not in another server's turn.
SELECT project, base, role FROM mirror
WHERE state = 'fetching' AND (turn_ends_ms < :now OR server = :server)
  AND EXISTS (SELECT 1 FROM base AS named WHERE named.project = mirror.project AND mirror.base IN (named.base_id, named.vae_id))
ORDER BY turn_ends_ms, project, base, role LIMIT 100

-- name: take_mirror
-- One server at a time copies it.
UPDATE mirror SET server = :server, turn_ends_ms = :turn_ends_ms
WHERE project = :project AND base = :base AND role = :role AND (turn_ends_ms < :now OR server = :server)

-- name: advance_mirror
-- By the server whose turn it is.
UPDATE mirror SET files = :files, done_files = :done_files, done_bytes = :done_bytes, begun = :begun, parts = :parts,
       turn_ends_ms = :turn_ends_ms, because = '', tries = 0
WHERE project = :project AND base = :base AND role = :role AND server = :server

-- name: end_mirror
-- Of a turn, too: nobody begins another one before a moment.
UPDATE mirror SET state = :state, because = :because, tries = :tries, turn_ends_ms = :not_before_ms, server = ''
WHERE project = :project AND base = :base AND role = :role AND server = :server

-- name: add_job
INSERT INTO job (id, project, name, kind, spec, spec_hash, request, state, because, steps, save_s, priority, base, workload,
                 slots, input_bytes, checkpoint_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing,
                 attempts_failed, attempts_max, ready_ms, version, submitted_ms, queued_ms)
VALUES (:id, :project, :name, :kind, :spec, :spec_hash, :request, 'queued', :because, :steps, :save_s, :priority, :base,
        :workload, :slots, :input_bytes, 0, :gpu, :gpu_memory_gb, :pool, :trust, :exact, '', 0, 0, :attempts_max, :now,
        1, :now, :now)
ON CONFLICT DO NOTHING

-- name: followed
-- How far a job is, for those who follow it: its newest event, the newest piece of its log, what its node does.
SELECT job.id, job.state, job.because, job.fencing, lease.phase, lease.step, lease.loss, lease.seconds_per_step,
       (SELECT MAX(event.number) FROM event WHERE event.job = job.id) AS number,
       (SELECT MAX(log_chunk.first_byte) FROM log_chunk WHERE log_chunk.attempt = attempt.id) AS first_byte
FROM job LEFT JOIN attempt ON attempt.job = job.id AND attempt.fencing = job.fencing
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE job.id = :id

-- name: job_of_request
SELECT id, spec_hash FROM job WHERE project = :project AND request = :request

-- name: job
SELECT id, project, name, kind, spec, spec_hash, state, because, steps, priority, base, workload, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing,
       attempts_failed, attempts_max, ready_ms, version, submitted_ms, queued_ms, ended_ms
FROM job WHERE id = :id

-- name: job_of_attempt
-- Without what is long.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb
FROM job JOIN attempt ON attempt.job = job.id WHERE attempt.id = :attempt

-- name: held_job
-- The job of a live lease, and the attempt.
SELECT job.id, job.project, job.kind, job.spec_hash, job.steps, job.base, job.exact, attempt.machine, attempt.gpu,
       attempt.workload, lease.seconds_per_step, sampling.every_steps AS sample_every_steps, sampling.every_s AS sample_every_s,
       sampling.step AS sampled_step, sampling.at_ms AS sampled_ms
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
     LEFT JOIN sampling ON sampling.job = job.id
WHERE lease.attempt = :attempt AND lease.rank = :rank AND lease.node = :node AND lease.fencing = :fencing

-- name: jobs_page
-- Newest first, after the one that the last page ended with.
SELECT id, project, name, kind, spec_hash, state, because, steps, priority, base, fencing, attempts_failed, version,
       ready_ms, gpu, gpu_memory_gb, pool, trust, numerics, slots, input_bytes + checkpoint_bytes AS download_bytes,
       submitted_ms, queued_ms, ended_ms
FROM job
WHERE project = :project AND kind <> 'sample'
  AND (submitted_ms < :before_ms OR (submitted_ms = :before_ms AND id < :before_id))
ORDER BY submitted_ms DESC, id DESC
LIMIT :limit

-- name: interrupted_candidates
-- Training that was tried before, for a node that may have it; with money for it.
SELECT id, project, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics,
       EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base) AS held
FROM job
WHERE state = 'queued' AND fencing > 0 AND kind <> 'sample' AND ready_ms <= :now AND gpu_memory_gb <= :gpu_memory_gb AND slots <= :slots_free
  AND gpu IN ('', :gpu) AND pool IN ('', :pool) AND trust <= :trust AND numerics IN ('', :numerics)
  AND EXISTS (SELECT 1 FROM project WHERE project.id = job.project
              AND (budget IS NULL OR spent + reserved + :reserve * job.slots
                                     + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= budget))
  AND id NOT IN (SELECT ban.job FROM ban WHERE ban.machine = :machine)
ORDER BY priority DESC, queued_ms, id
LIMIT :limit

-- name: fresh_candidates
-- Training of a project that was never tried, for a node that may have it; with money for it.
SELECT id, project, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics,
       EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base) AS held
FROM job
WHERE project = :project AND state = 'queued' AND fencing = 0 AND kind <> 'sample' AND gpu_memory_gb <= :gpu_memory_gb
  AND slots <= :slots_free AND gpu IN ('', :gpu) AND pool IN ('', :pool) AND trust <= :trust
  AND EXISTS (SELECT 1 FROM project WHERE project.id = job.project
              AND (budget IS NULL OR spent + reserved + :reserve * job.slots
                                     + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= budget))
ORDER BY priority DESC, submitted_ms, id
LIMIT :limit

-- name: sample_candidates
-- Pictures to render, those of steps only for a node that may; with money for them. Who lacks the base leaves them for a while to a
-- node that has it and nothing to do.
SELECT id, project, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics,
       EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base) AS held
FROM job
WHERE state = 'queued' AND kind = 'sample' AND ready_ms <= :now
  AND (:steps = 1 OR EXISTS (SELECT 1 FROM sample WHERE sample.job = job.id AND sample.checkpoint IS NULL))
  AND gpu_memory_gb <= :gpu_memory_gb AND gpu IN ('', :gpu)
  AND pool IN ('', :pool) AND trust <= :trust
  AND EXISTS (SELECT 1 FROM project WHERE project.id = job.project
              AND (budget IS NULL OR spent + reserved + :reserve * job.slots
                                     + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= budget))
  AND id NOT IN (SELECT ban.job FROM ban WHERE ban.machine = :machine)
  AND (queued_ms < :before
       OR EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base)
       OR NOT EXISTS (SELECT 1 FROM node_base JOIN node ON node.id = node_base.node
                      WHERE node_base.base = job.base AND node.state IN ('ready', 'on_trial')
                      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)))
ORDER BY queued_ms, id
LIMIT :limit

-- name: demand
-- Queued jobs that a node of this offer could take now, as many as matter; with money for them.
SELECT job.id, job.project, job.gpu, job.gpu_memory_gb, job.trust, job.slots, job.ready_ms,
       job.input_bytes + job.checkpoint_bytes AS download_bytes,
       project.budget - project.spent - project.reserved AS left
FROM job JOIN project ON project.id = job.project
WHERE job.state = 'queued' AND job.kind <> 'sample' AND job.ready_ms <= :now AND job.gpu_memory_gb <= :gpu_memory_gb AND job.trust <= :trust
  AND job.gpu IN ('', :gpu) AND job.slots <= :slots AND job.pool IN ('', :pool)
  AND (project.budget IS NULL OR project.spent + project.reserved + :reserve * job.slots
                                 + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= project.budget)
LIMIT :limit

-- name: stuck
-- Those of them that no node here may take: banned, or too large for those that are here.
SELECT job.id, job.project, job.gpu, job.gpu_memory_gb, job.trust, job.slots, job.ready_ms,
       job.input_bytes + job.checkpoint_bytes AS download_bytes,
       project.budget - project.spent - project.reserved AS left
FROM job JOIN project ON project.id = job.project
WHERE job.state = 'queued' AND job.kind <> 'sample' AND job.ready_ms <= :now AND job.gpu_memory_gb <= :gpu_memory_gb AND job.trust <= :trust
  AND job.gpu IN ('', :gpu) AND job.slots <= :slots AND job.pool IN ('', :pool)
  AND (project.budget IS NULL OR project.spent + project.reserved + :reserve * job.slots
                                 + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= project.budget)
  AND (job.fencing > 0 OR job.gpu_memory_gb > :smallest_gb OR job.gpu <> '' OR job.slots > 1 OR job.trust > 0)
  AND NOT EXISTS (SELECT 1 FROM node WHERE node.state IN ('ready', 'on_trial') AND node.gpu_memory_gb >= job.gpu_memory_gb
                  AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
                  AND job.numerics IN ('', node.numerics) AND job.slots <= node.slots
                  AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id AND ban.machine = node.machine))
LIMIT :limit

-- name: banned_jobs
-- Queued for long although ready: machines here could have them but for a ban, and no other could.
SELECT job.id, job.version FROM job
WHERE job.state = 'queued' AND job.fencing > 0 AND job.queued_ms < :before AND job.ready_ms < :before
  AND job.id IN (SELECT job FROM ban)
  AND (SELECT MIN(CASE WHEN EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id AND ban.machine = node.machine) THEN 1 ELSE 0 END)
       FROM node WHERE node.state IN ('ready', 'on_trial') AND node.gpu_memory_gb >= job.gpu_memory_gb
       AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
       AND job.numerics IN ('', node.numerics)) = 1
LIMIT 100

-- name: queued_for_long
-- And nothing here could run them, bans aside. Pictures are given up by `late_samples`.
SELECT id, project, state, version, fencing, attempts_failed, attempts_max, slots, gpu, gpu_memory_gb, pool, trust, numerics
FROM job
WHERE state = 'queued' AND kind <> 'sample' AND queued_ms < :before
  AND NOT EXISTS (SELECT 1 FROM node WHERE node.state <> 'gone' AND node.gpu_memory_gb >= job.gpu_memory_gb
                  AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
                  AND job.numerics IN ('', node.numerics) AND job.slots <= node.slots)
ORDER BY queued_ms, id LIMIT 100

-- name: queue_length
-- As many as matter.
SELECT COUNT(*) AS jobs FROM (SELECT id FROM job WHERE state = 'queued' AND kind <> 'sample' LIMIT :limit) AS waiting

-- name: take_job
-- The claim: only if the job is still as it was seen.
UPDATE job SET state = 'running', because = :because, fencing = fencing + 1, version = version + 1
WHERE id = :id AND version = :version

-- name: add_attempt
INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state,
                     because, slots, price_micro_usd_per_hour, from_step, step, beat_ms, started_ms)
SELECT :id, job.id, :node, :machine, :pool, :gpu, :gpu_memory_gb, job.workload, :fencing, '', 0, 'live', :because, :slots,
       :price_micro_usd_per_hour, :from_step, :from_step, :now, :now
FROM job WHERE job.id = :job

-- name: add_lease
-- Only on a node that works and has the slots free.
INSERT INTO lease (attempt, rank, node, fencing, slots, price_micro_usd_per_hour, started_ms, expires_ms, beat_ms, phase,
                   step, stepped_ms, reserved, downloaded_bytes, stop, stop_kind)
SELECT :attempt, :rank, node.id, :fencing, :slots, :price_micro_usd_per_hour, CAST(:now AS BIGINT), :expires_ms, :now,
       'starting', :from_step, :now, :reserved, 0, '', ''
FROM node
WHERE node.id = :node AND node.state IN ('ready', 'on_trial')
  AND node.slots >= :slots + CAST((SELECT COALESCE(SUM(held.slots), 0) FROM lease AS held WHERE held.node = node.id) AS BIGINT)

-- name: renew_lease
-- A heartbeat. A holder whose lease is overdue but not yet taken away may renew it.
UPDATE lease SET expires_ms = :expires_ms, beat_ms = :now, phase = :phase, step = :step,
       loss = COALESCE(:loss, loss), seconds_per_step = COALESCE(:seconds_per_step, seconds_per_step),
       training_ms = CASE WHEN :training_ms < started_ms THEN started_ms
                          WHEN training_ms IS NULL OR training_ms > :training_ms THEN :training_ms ELSE training_ms END,
       stepped_ms = CASE WHEN :step > step THEN :now ELSE stepped_ms END
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing
RETURNING attempt, stop, reserved, downloaded_bytes, price_micro_usd_per_hour, started_ms

-- name: extend_reservation
UPDATE lease SET reserved = reserved + :micro_usd WHERE attempt = :attempt AND reserved = :seen

-- name: ask_to_stop
-- The node hears of it with its next heartbeat. The first reason stays.
UPDATE lease SET stop = :because, stop_kind = :kind, stop_ms = :now WHERE attempt = :attempt AND stop = ''

-- name: ask_to_pause
-- The owner's wish goes before any other reason to stop.
UPDATE lease SET stop = :because, stop_kind = 'paused', stop_ms = COALESCE(stop_ms, :now) WHERE attempt = :attempt

-- name: unpause_lease
UPDATE lease SET stop = 'resumed by its owner', stop_kind = '' WHERE attempt = :attempt

-- name: count_download
UPDATE lease SET downloaded_bytes = downloaded_bytes + :bytes
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing AND downloaded_bytes = :seen

-- name: hold_lease
-- The guard of every other write of a worker: it holds the live lease.
UPDATE lease SET beat_ms = beat_ms
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: lease
SELECT attempt, stop, reserved, downloaded_bytes, price_micro_usd_per_hour, started_ms FROM lease
WHERE attempt = :attempt AND rank = :rank AND node = :node AND fencing = :fencing

-- name: live_leases
-- What the watchdog and the comparison of speeds look at.
SELECT lease.attempt, lease.phase, lease.step, lease.seconds_per_step, lease.training_ms, lease.stepped_ms, lease.stop,
       attempt.node, attempt.job, attempt.machine, attempt.pool, attempt.workload, attempt.gpu, attempt.started_ms,
       attempt.committed_ms, job.steps, job.save_s, node.rented, node.state AS node_state
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job JOIN node ON node.id = lease.node
WHERE lease.rank = 0

-- name: moves
-- How often a job gave way to a faster machine.
SELECT COUNT(*) AS moves FROM attempt WHERE job = :job AND kind = 'outpaced'

-- name: overdue_leases
SELECT lease.attempt, lease.expires_ms FROM lease WHERE lease.expires_ms < :now ORDER BY lease.expires_ms, lease.attempt

-- name: unheeded_stops
-- Attempts that were asked to stop, and did not in time.
SELECT attempt, stop, stop_kind FROM lease WHERE stop <> '' AND stop_ms < :before ORDER BY stop_ms, attempt

-- name: leases_of_node
SELECT attempt FROM lease WHERE node = :node ORDER BY attempt

-- name: seize_overdue_lease
-- The server's right to end an attempt: only while its lease is overdue.
DELETE FROM lease
WHERE attempt = :attempt AND expires_ms < :now AND downloaded_bytes = :downloaded AND reserved = :reserved

-- name: drop_lease
-- Of an attempt that ends for another reason. What is kept of it and billed is as it was seen.
DELETE FROM lease
WHERE attempt = :attempt AND beat_ms = :beat_ms AND downloaded_bytes = :downloaded AND reserved = :reserved

-- name: end_attempt
-- With what its lease knew last.
UPDATE attempt SET state = :state, kind = :kind, because = :because, ended_ms = :now, step = :step, loss = :loss,
       seconds_per_step = :seconds_per_step, training_ms = :training_ms, beat_ms = :beat_ms
WHERE id = :attempt

-- name: ending
-- A live attempt with all that its end touches: its lease, its job and the project's purse, its node and the machine.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, attempt.pool, attempt.gpu, attempt.gpu_memory_gb,
       attempt.workload, attempt.fencing, attempt.state, attempt.kind, attempt.slots, attempt.price_micro_usd_per_hour,
       attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms,
       lease.step, lease.loss, lease.seconds_per_step, lease.training_ms, lease.beat_ms, lease.rank, lease.stop, lease.stop_kind,
       lease.reserved, lease.downloaded_bytes,
       job.id AS job_id, job.project AS job_project, job.state AS job_state, job.fencing AS job_fencing,
       job.version AS job_version, job.attempts_failed AS job_attempts_failed, job.attempts_max AS job_attempts_max,
       job.gpu_memory_gb AS job_gpu_memory_gb, job.kind AS job_kind, job.base AS job_base,
       project.id AS purse_id, project.share AS purse_share, project.usage AS purse_usage,
       project.usage_ms AS purse_usage_ms, project.budget AS purse_budget, project.spent AS purse_spent,
       project.reserved AS purse_reserved,
       node.id AS node_id, node.machine AS node_machine, node.name AS node_name, node.pool AS node_pool,
       node.state AS node_state, node.because AS node_because, node.gpu AS node_gpu,
       node.gpu_memory_gb AS node_gpu_memory_gb, node.trust AS node_trust, node.numerics AS node_numerics,
       node.slots AS node_slots, node.price_micro_usd_per_hour AS node_price_micro_usd_per_hour,
       node.rented AS node_rented, node.joined_ms AS node_joined_ms, node.meter_ms AS node_meter_ms,
       machine.rest_until_ms AS node_rest_until_ms, machine.failures, machine.on_trial,
       CAST((SELECT COALESCE(SUM(held.slots), 0) FROM lease AS held WHERE held.node = node.id) AS BIGINT)
           AS node_slots_taken
FROM attempt JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0 JOIN job ON job.id = attempt.job
     JOIN project ON project.id = job.project JOIN node ON node.id = attempt.node
     JOIN machine ON machine.id = attempt.machine
WHERE attempt.id = :id

-- name: attempt
-- A live one with what its lease knows.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, node.name AS node_name, attempt.pool, attempt.gpu,
       attempt.gpu_memory_gb, attempt.workload, attempt.fencing, attempt.state, attempt.kind, attempt.because, attempt.slots,
       attempt.price_micro_usd_per_hour, attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms,
       COALESCE(lease.step, attempt.step) AS step,
       COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       COALESCE(lease.training_ms, attempt.training_ms) AS training_ms, COALESCE(lease.beat_ms, attempt.beat_ms) AS beat_ms,
       lease.stop, lease.stop_kind, COALESCE(lease.reserved, 0) AS reserved,
       COALESCE(lease.downloaded_bytes, 0) AS downloaded_bytes
FROM attempt JOIN node ON node.id = attempt.node
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.id = :id

-- name: attempts
-- Of a job, in order; a live one with what its lease knows.
SELECT attempt.id, attempt.job, attempt.node, attempt.machine, node.name AS node_name, attempt.gpu, attempt.gpu_memory_gb,
       attempt.fencing, attempt.state, attempt.kind, attempt.because, attempt.slots, attempt.price_micro_usd_per_hour,
       attempt.from_step, attempt.committed_step, attempt.started_ms, attempt.ended_ms,
       COALESCE(lease.step, attempt.step) AS step, COALESCE(lease.loss, attempt.loss) AS loss,
       COALESCE(lease.seconds_per_step, attempt.seconds_per_step) AS seconds_per_step,
       COALESCE(lease.training_ms, attempt.training_ms) AS training_ms,
       COALESCE(lease.beat_ms, attempt.beat_ms) AS beat_ms, lease.phase, lease.stop, lease.stop_kind,
       CAST((SELECT SUM(micro_usd) FROM ledger WHERE ledger.job = attempt.job AND ledger.attempt = attempt.id) AS BIGINT)
           AS micro_usd
FROM attempt JOIN node ON node.id = attempt.node
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE attempt.job = :job ORDER BY attempt.fencing

-- name: earlier_attempts
-- The newest first, as many as any rule looks back.
SELECT id, job, node, machine, gpu, gpu_memory_gb, fencing, state, kind, slots, price_micro_usd_per_hour, from_step, step,
       committed_step, seconds_per_step, started_ms, training_ms, beat_ms, ended_ms
FROM attempt WHERE job = :job AND fencing < :fencing ORDER BY fencing DESC LIMIT 50

-- name: advance_attempt
-- A checkpoint was committed.
UPDATE attempt SET committed_step = :step, committed_ms = :now WHERE id = :attempt

-- name: pin_numerics
-- Where the job must stay exact, its first checkpoint decides where it may go on.
UPDATE job SET numerics = (SELECT node.numerics FROM node WHERE node.id = :node) WHERE id = :id

-- name: measure_checkpoint
-- What the next attempt downloads beside the job's inputs.
UPDATE job SET checkpoint_bytes = COALESCE((SELECT bytes FROM checkpoint WHERE checkpoint.job = job.id AND state = 'committed'
                                            ORDER BY step DESC LIMIT 1), 0)
WHERE id = :id

-- name: set_job_state
-- Only if nobody else moved the job on since it was read.
UPDATE job SET state = :state, because = :because, attempts_failed = :attempts_failed, version = version + 1,
       gpu_memory_gb = :gpu_memory_gb, ready_ms = :ready_ms, queued_ms = :now,
       ended_ms = CASE WHEN :state IN ('succeeded', 'failed', 'canceled') THEN CAST(:now AS BIGINT) ELSE NULL END
WHERE id = :id AND version = :version

-- name: say_why
-- A move of its own: who moves the job on at the same time looks again, and hears of the owner's wish.
UPDATE job SET because = :because, version = version + 1 WHERE id = :id AND version = :version

-- name: ticks
SELECT ticked_ms, back_ms, ticker, turn_ends_ms FROM service WHERE id = 1

-- name: tick
-- One server at a time, until its turn is over. A gap before it was an outage, whoever was away.
UPDATE service SET back_ms = CASE WHEN :now - ticked_ms > :gap_ms THEN :now ELSE back_ms END, ticked_ms = :now,
       ticker = :server, turn_ends_ms = :turn_ends_ms
WHERE id = 1 AND (ticker = :server OR turn_ends_ms < :now)

-- name: add_checkpoint
INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms)
VALUES (:id, :job, :attempt, :step, 'committed', '', :verified, :bytes, :prefix, :manifest, :now)
ON CONFLICT (attempt, step) DO NOTHING

-- name: checkpoints
-- The committed ones of a job, newest first: among equal steps the younger attempt's.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.state, checkpoint.verified,
       checkpoint.bytes, checkpoint.prefix, checkpoint.manifest, checkpoint.committed_ms, attempt.node, job.project,
       EXISTS (SELECT 1 FROM sample JOIN job AS shown ON shown.id = sample.job
               WHERE sample.checkpoint = checkpoint.id AND shown.ended_ms IS NULL) AS pinned
FROM checkpoint JOIN attempt ON attempt.id = checkpoint.attempt JOIN job ON job.id = checkpoint.job
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
ORDER BY checkpoint.step DESC, attempt.fencing DESC

-- name: checkpoints_to_verify
-- The newest of each job, where the object store did not attest it; who waits for longest comes first.
SELECT checkpoint.id, checkpoint.job, checkpoint.attempt, checkpoint.step, checkpoint.prefix, checkpoint.manifest
FROM checkpoint
WHERE checkpoint.verified = 0 AND checkpoint.state = 'committed'
  AND NOT EXISTS (SELECT 1 FROM checkpoint AS newer WHERE newer.job = checkpoint.job AND newer.state = 'committed'
                  AND newer.step > checkpoint.step)
ORDER BY checkpoint.committed_ms, checkpoint.id LIMIT :limit

-- name: verify_checkpoint
-- Its bytes were read back.
UPDATE checkpoint SET verified = 1 WHERE id = :id

-- name: jobs_to_prune
-- Jobs with more committed checkpoints than are kept.
SELECT job FROM checkpoint WHERE state = 'committed' GROUP BY job HAVING COUNT(*) > :kept

-- name: reject_checkpoint
UPDATE checkpoint SET state = 'rejected', because = :because WHERE id = :id AND job = :job AND state = 'committed'

-- name: restart_attempt
-- After a rejection: it goes on from the newest checkpoint that is left.
UPDATE attempt SET from_step = COALESCE((SELECT MAX(checkpoint.step) FROM checkpoint
                                         WHERE checkpoint.job = attempt.job AND checkpoint.state = 'committed'), 0)
WHERE id = :attempt

-- name: prune_checkpoint
UPDATE checkpoint SET state = 'pruned', because = :because WHERE id = :id AND state = 'committed'

-- name: upload
SELECT key, begun, bytes, sha256, parts FROM upload WHERE key = :key

-- name: keep_upload
-- Instead of the one that was seen.
INSERT INTO upload (key, attempt, begun, bytes, sha256, parts, made_ms)
VALUES (:key, :attempt, :begun, :bytes, :sha256, :parts, :now)
ON CONFLICT (key) DO UPDATE SET begun = excluded.begun, bytes = excluded.bytes, sha256 = excluded.sha256, parts = excluded.parts,
    made_ms = excluded.made_ms
WHERE upload.begun = :seen

-- name: drop_upload
DELETE FROM upload WHERE key = :key AND begun = :begun

-- name: uploads_of_attempt
SELECT key, begun FROM upload WHERE attempt = :attempt

-- name: uploads_left
-- Of users, begun long ago.
SELECT key, begun FROM upload WHERE attempt = '' AND made_ms < :before ORDER BY made_ms LIMIT :limit

-- name: attempts_to_sweep
-- Ended for so long that nothing more can come.
SELECT attempt.id, attempt.job, job.project FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.swept = 0 AND attempt.state <> 'live' AND attempt.ended_ms < :before
ORDER BY attempt.ended_ms, attempt.id LIMIT :limit

-- name: mark_swept
UPDATE attempt SET swept = 1 WHERE id = :attempt

-- name: sweep_again
-- What wrote a checkpoint that is not referred to any more.
UPDATE attempt SET swept = 0 WHERE id = (SELECT checkpoint.attempt FROM checkpoint WHERE checkpoint.id = :checkpoint)

-- name: referred
-- What is referred to of all that an attempt wrote: checkpoints by their folder and manifest, the rest by its key.
SELECT checkpoint.prefix AS key, checkpoint.manifest FROM checkpoint
WHERE checkpoint.attempt = :attempt AND checkpoint.state = 'committed'
UNION ALL SELECT prepared.prefix AS key, prepared.manifest FROM prepared WHERE prepared.attempt = :attempt
UNION ALL SELECT artifact.key, '' AS manifest FROM artifact WHERE artifact.attempt = :attempt
UNION ALL SELECT log_chunk.key, '' AS manifest FROM log_chunk WHERE log_chunk.attempt = :attempt

-- name: add_prepared
INSERT INTO prepared (project, key, attempt, subject, numerics, trust, prefix, manifest, made_ms, used_ms)
VALUES (:project, :key, :attempt, :subject, :numerics, :trust, :prefix, :manifest, :now, :now)
ON CONFLICT (project, key, attempt) DO NOTHING

-- name: prepared_for
-- What a job may use on a node: what its own attempts made goes first, then what was there when the job began. So an attempt that
-- comes later is given what the first was given.
SELECT prepared.key, prepared.attempt, prepared.prefix, prepared.manifest, prepared.used_ms
FROM prepared JOIN attempt ON attempt.id = prepared.attempt
WHERE prepared.project = :project AND prepared.subject IN (:latents, :embeddings, :class_images)
  AND prepared.numerics IN ('', :numerics) AND prepared.trust >= :trust
  AND (attempt.job = :job
       OR prepared.made_ms <= (SELECT MIN(began.started_ms) FROM attempt AS began WHERE began.job = :job))
ORDER BY CASE WHEN attempt.job = :job THEN 0 ELSE 1 END, prepared.made_ms, prepared.attempt

-- name: use_prepared
UPDATE prepared SET used_ms = :now WHERE project = :project AND key = :key AND attempt = :attempt

-- name: prepared_unused
SELECT project, key, attempt, prefix, manifest, used_ms FROM prepared WHERE used_ms < :before ORDER BY used_ms LIMIT :limit

-- name: forget_prepared
-- Unless a job was given it meanwhile.
DELETE FROM prepared WHERE project = :project AND key = :key AND attempt = :attempt AND used_ms = :seen

-- name: add_artifact
-- Pictures may have been handed in before.
INSERT INTO artifact (job, path, attempt, key, bytes, sha256, made_ms)
VALUES (:job, :path, :attempt, :key, :bytes, :sha256, :now)
ON CONFLICT (job, path) DO NOTHING

-- name: artifacts
SELECT path, attempt, key, bytes, sha256 FROM artifact WHERE job = :job ORDER BY path

-- name: stored
-- What a job keeps in the object store, and since when.
SELECT checkpoint.bytes, checkpoint.committed_ms AS since_ms FROM checkpoint
WHERE checkpoint.job = :job AND checkpoint.state = 'committed'
UNION ALL
SELECT artifact.bytes, COALESCE(artifact.made_ms, job.ended_ms) AS since_ms
FROM artifact JOIN job ON job.id = artifact.job WHERE artifact.job = :job

-- name: add_sampling
INSERT INTO sampling (job, every_steps, every_s, step, at_ms, here) VALUES (:job, :every_steps, :every_s, 0, :now, 0)

-- name: sampled
-- Pictures of this step were asked for.
UPDATE sampling SET step = :step, at_ms = :now, here = :here WHERE job = :job

-- name: to_render_here
-- Whether the node that trains is asked for pictures of this step, and none have come.
SELECT job FROM sampling WHERE job = :job AND step = :step AND here = 1
  AND NOT EXISTS (SELECT 1 FROM artifact WHERE artifact.job = :job AND artifact.path = :path)

-- name: add_sample
INSERT INTO sample (job, parent, checkpoint, step) VALUES (:job, :parent, :checkpoint, :step)

-- name: sample
SELECT parent, step, checkpoint FROM sample WHERE job = :job

-- name: open_samples
-- Of a training job, the newest first: what is still to be rendered, or being rendered.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb,
       sample.step
FROM sample JOIN job ON job.id = sample.job
WHERE sample.parent = :parent AND job.ended_ms IS NULL
ORDER BY sample.step DESC, job.submitted_ms DESC, job.id DESC

-- name: late_samples
-- Pictures that no node came for: of steps, and of results.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb,
       job.submitted_ms
FROM job JOIN sample ON sample.job = job.id
WHERE job.state = 'queued' AND job.kind = 'sample' AND job.submitted_ms < CASE WHEN sample.checkpoint IS NULL THEN CAST(:results_before AS BIGINT) ELSE :before END
ORDER BY job.queued_ms, job.id LIMIT 100

-- name: samples_of
-- The jobs that render pictures of a training job, and what they have cost.
SELECT job.id, job.state, job.because, sample.checkpoint,
       CAST((SELECT COALESCE(SUM(micro_usd), 0) FROM ledger WHERE ledger.job = job.id) AS BIGINT) AS micro_usd
FROM sample JOIN job ON job.id = sample.job WHERE sample.parent = :job
ORDER BY sample.step, job.id

-- name: pictures
-- How many there are of a training job.
SELECT COUNT(*) AS pictures FROM artifact WHERE job = :job AND path LIKE 'samples/%seed-%.png'

-- name: last_training
-- When a node last had something to train.
SELECT attempt.ended_ms FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.node = :node AND attempt.state <> 'live' AND job.kind <> 'sample'
ORDER BY attempt.ended_ms DESC LIMIT 1

-- name: in_the_way
-- Pictures that are being rendered where training could go on that waits, and that no free node took meanwhile.
SELECT lease.attempt, lease.node, attempt.job
FROM job JOIN attempt ON attempt.job = job.id AND attempt.fencing = job.fencing
     JOIN lease ON lease.attempt = attempt.id JOIN node ON node.id = lease.node
WHERE job.state = 'running' AND job.kind = 'sample' AND lease.stop = '' AND node.state IN ('ready', 'on_trial')
  AND EXISTS (SELECT 1 FROM job AS waiting
              WHERE waiting.state = 'queued' AND waiting.kind <> 'sample' AND waiting.queued_ms < :before AND waiting.ready_ms < :before
              AND waiting.gpu_memory_gb <= node.gpu_memory_gb AND waiting.gpu IN ('', node.gpu)
              AND waiting.pool IN ('', node.pool) AND waiting.trust <= node.trust
              AND waiting.numerics IN ('', node.numerics) AND waiting.slots <= node.slots
              AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = waiting.id AND ban.machine = node.machine))
ORDER BY lease.started_ms DESC, lease.attempt

-- name: free_nodes
-- Those that work and have slots that no training uses, but for one.
SELECT node.id, node.machine, node.name, node.pool, node.state, node.because, node.gpu, node.gpu_memory_gb, node.trust,
       node.numerics, node.slots, node.price_micro_usd_per_hour, node.meter_ms, node.joined_ms, node.rented,
       COALESCE(machine.rest_until_ms, 0) AS rest_until_ms,
       node.slots - CAST((SELECT COALESCE(SUM(lease.slots), 0) FROM lease JOIN attempt ON attempt.id = lease.attempt
                          JOIN job ON job.id = attempt.job
                          WHERE lease.node = node.id AND job.kind <> 'sample') AS BIGINT) AS slots_free
FROM node LEFT JOIN machine ON machine.id = node.machine
WHERE node.state IN ('ready', 'on_trial') AND node.id <> :but

-- name: add_log_chunk
INSERT INTO log_chunk (attempt, first_byte, bytes, key) VALUES (:attempt, :first_byte, :bytes, :key)
ON CONFLICT (attempt, first_byte) DO NOTHING

-- name: log_chunks
SELECT attempt.fencing, log_chunk.attempt, log_chunk.first_byte, log_chunk.bytes, log_chunk.key
FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt
WHERE attempt.job = :job
  AND (attempt.fencing > :fencing OR (attempt.fencing = :fencing AND log_chunk.first_byte >= :first_byte))
ORDER BY attempt.fencing, log_chunk.first_byte

-- name: add_event
INSERT INTO event (job, number, at_ms, kind, attempt, node, because)
SELECT :job, COALESCE(MAX(number), 0) + 1, :now, :kind, :attempt, :node, :because FROM event WHERE job = :job

-- name: events
SELECT number, at_ms, kind, attempt, node, because FROM event WHERE job = :job AND number > :after ORDER BY number

-- name: add_cost
INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd)
VALUES (:node, :attempt, :cause, :from_ms, :to_ms, :job, :project, :micro_usd)

-- name: add_metric
-- A batch that goes on where the one before ended. Any other came twice, or too late.
INSERT INTO metric (attempt, step, at_ms, points)
SELECT CAST(:attempt AS TEXT), CAST(:step AS BIGINT), CAST(:now AS BIGINT), CAST(:points AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM metric AS newer WHERE newer.attempt = :attempt AND newer.step >= :step)

-- name: metrics
-- Of all attempts of a job, in order; of one that measured nothing, where it went on from.
SELECT attempt.fencing, attempt.from_step, metric.at_ms, metric.points
FROM attempt LEFT JOIN metric ON metric.attempt = attempt.id
WHERE attempt.job = :job ORDER BY attempt.fencing, metric.step

-- name: begin_tracking
INSERT INTO tracked (job, tracker, step, ended, because) VALUES (:job, :tracker, 0, 0, '')
ON CONFLICT (job, tracker) DO NOTHING

-- name: to_track
-- The jobs that a tracker is to be told of, and how far each is for good.
SELECT tracked.job, tracked.step, tracked.because, job.state,
       (SELECT MAX(checkpoint.step) FROM checkpoint WHERE checkpoint.job = job.id AND checkpoint.state = 'committed') AS committed
FROM tracked JOIN job ON job.id = tracked.job
WHERE tracked.tracker = :tracker AND tracked.ended = 0
ORDER BY tracked.job

-- name: trackers_of
SELECT tracker, step, ended, because FROM tracked WHERE job = :job ORDER BY tracker

-- name: pictures_to_track
-- Those of a job that a tracker was not shown.
SELECT artifact.path, artifact.key FROM artifact
WHERE artifact.job = :job AND artifact.path LIKE 'samples/%' AND artifact.bytes <= :bytes_max
  AND (artifact.path LIKE '%.png' OR artifact.path LIKE '%.jpg' OR artifact.path LIKE '%.jpeg' OR artifact.path LIKE '%.webp')
  AND NOT EXISTS (SELECT 1 FROM tracked_picture AS shown
                  WHERE shown.job = artifact.job AND shown.tracker = :tracker AND shown.path = artifact.path)
ORDER BY artifact.path LIMIT :limit

-- name: tracked
-- It was told up to a step; only if nobody else told it since.
UPDATE tracked SET step = :step, because = '' WHERE job = :job AND tracker = :tracker AND step = :seen

-- name: picture_tracked
INSERT INTO tracked_picture (job, tracker, path) VALUES (:job, :tracker, :path) ON CONFLICT (job, tracker, path) DO NOTHING

-- name: track_again
-- Pictures came, perhaps after the end of what they show.
UPDATE tracked SET ended = 0 WHERE job = :job

-- name: end_tracking
UPDATE tracked SET ended = 1, because = '' WHERE job = :job AND tracker = :tracker

-- name: say_why_untracked
UPDATE tracked SET because = :because WHERE job = :job AND tracker = :tracker
