-- Claims: the jobs that a node may take, the claim itself, and jobs that wait although no node may take them.

-- name: waiting_projects
-- List projects with a training job that no node has tried yet.
SELECT id, share, usage, usage_ms, budget, spent, reserved FROM project
WHERE (SELECT id FROM job WHERE job.project = project.id AND job.state = 'queued' AND job.fencing = 0 AND job.fetching = 0
         AND job.kind <> 'sample'
       ORDER BY priority DESC LIMIT 1) IS NOT NULL

-- name: interrupted_candidates
-- List training jobs that had an attempt before and that this node may take within the project's budget.
SELECT id, project, kind, wanted, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics, begins_from,
       EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base) AS held
FROM job
WHERE state = 'queued' AND fencing > 0 AND fetching = 0 AND kind <> 'sample' AND ready_ms <= :now AND gpu_memory_gb <= :gpu_memory_gb AND slots <= :slots_free
  AND gpu IN ('', :gpu) AND pool IN ('', :pool) AND trust <= :trust AND numerics IN ('', :numerics)
  AND :kinds LIKE '%,' || wanted || ',%'
  AND EXISTS (SELECT 1 FROM project WHERE project.id = job.project
              AND (budget IS NULL OR spent + reserved + :reserve * job.slots
                                     + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= budget))
  AND id NOT IN (SELECT ban.job FROM ban WHERE ban.machine = :machine)
ORDER BY priority DESC, queued_ms, id
LIMIT :limit

-- name: fresh_candidates
-- List a project's training jobs without an attempt that this node may take within the budget. PostgreSQL takes it for likely that a node
-- may take a job because of COALESCE: else it would expect to find next to none, and read and sort all that wait instead of the first few.
SELECT id, project, kind, wanted, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics, begins_from,
       EXISTS (SELECT 1 FROM node_base WHERE node_base.node = :node AND node_base.base = job.base) AS held
FROM job
WHERE project = :project AND state = 'queued' AND fencing = 0 AND fetching = 0 AND kind <> 'sample'
  AND COALESCE(gpu_memory_gb <= :gpu_memory_gb AND slots <= :slots_free AND gpu IN ('', :gpu) AND pool IN ('', :pool)
               AND trust <= :trust AND :kinds LIKE '%,' || wanted || ',%', FALSE)
  AND EXISTS (SELECT 1 FROM project WHERE project.id = job.project
              AND (budget IS NULL OR spent + reserved + :reserve * job.slots
                                     + CAST(:egress AS DOUBLE PRECISION) * (job.input_bytes + job.checkpoint_bytes) <= budget))
ORDER BY priority DESC, submitted_ms, id
LIMIT :limit

-- name: sample_candidates
-- List jobs that render images and that this node may take within the budget; images of steps only if `:steps` is 1. A node that lacks
-- the base leaves the job for a while to an idle node that has it.
SELECT id, project, kind, wanted, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics, begins_from,
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
                      AND node.kinds LIKE '%,' || job.wanted || ',%'
                      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)))
ORDER BY queued_ms, id
LIMIT :limit

-- name: take_job
-- Claim the job, only if its version is the one that was read.
UPDATE job SET state = 'running', because = :because, fencing = fencing + 1, version = version + 1
WHERE id = :id AND version = :version

-- name: add_attempt
INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state,
                     because, slots, price_micro_usd_per_hour, price_known, from_step, step, beat_ms, started_ms)
SELECT :id, job.id, :node, :machine, :pool, :gpu, :gpu_memory_gb, job.workload, :fencing, '', 0, 'live', :because, :slots,
       :price_micro_usd_per_hour, :price_known, :from_step, :from_step, :now, :now
FROM job WHERE job.id = :job

-- name: add_lease
-- Add the lease, only if the node is working and has enough free slots; a node on trial gets one lease at a time.
INSERT INTO lease (attempt, rank, node, fencing, slots, price_micro_usd_per_hour, started_ms, expires_ms, beat_ms, phase,
                   step, stepped_ms, reserved, downloaded_bytes, stop, stop_kind)
SELECT :attempt, :rank, node.id, :fencing, :slots, :price_micro_usd_per_hour, CAST(:now AS BIGINT), :expires_ms, :now,
       'starting', :from_step, :now, :reserved, 0, '', ''
FROM node
WHERE node.id = :node AND node.state IN ('ready', 'on_trial')
  AND (node.state = 'ready' OR NOT EXISTS (SELECT 1 FROM lease AS held WHERE held.node = node.id))
  AND node.slots >= :slots + CAST((SELECT COALESCE(SUM(held.slots), 0) FROM lease AS held WHERE held.node = node.id) AS BIGINT)

-- name: needs
-- Count the waiting jobs by what they need of a node. A job that is banned from every working node which could take it is `barred`. Those are
-- few and counted apart, because the rest is then counted in the order of its index, without sorting.
SELECT counted.*, project.budget - project.spent - project.reserved AS left
FROM (WITH barred AS (
          SELECT id FROM job
          WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample' AND ready_ms <= :now
            AND fencing > 0 AND id IN (SELECT job FROM ban)
            AND NOT EXISTS (SELECT 1 FROM node
                            WHERE node.state IN ('ready', 'on_trial') AND node.gpu_memory_gb >= job.gpu_memory_gb
                              AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
                              AND job.numerics IN ('', node.numerics) AND job.slots <= node.slots
                              AND node.kinds LIKE '%,' || job.wanted || ',%'
                              AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id AND ban.machine = node.machine)))
      SELECT project, wanted, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics, 0 AS barred, COUNT(*) AS jobs,
             MIN(ready_ms) AS since_ms, CAST(AVG(CAST(steps AS DOUBLE PRECISION)) AS DOUBLE PRECISION) AS steps, AVG(save_s) AS save_s,
             CAST(AVG(CAST(input_bytes + checkpoint_bytes AS DOUBLE PRECISION)) AS DOUBLE PRECISION) AS download_bytes,
             MIN(input_bytes + checkpoint_bytes) AS least_bytes
      FROM job
      WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample' AND ready_ms <= :now AND id NOT IN (SELECT id FROM barred)
      GROUP BY project, wanted, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics
      UNION ALL
      SELECT project, wanted, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics, 1, COUNT(*),
             MIN(ready_ms), CAST(AVG(CAST(steps AS DOUBLE PRECISION)) AS DOUBLE PRECISION), AVG(save_s),
             CAST(AVG(CAST(input_bytes + checkpoint_bytes AS DOUBLE PRECISION)) AS DOUBLE PRECISION),
             MIN(input_bytes + checkpoint_bytes)
      FROM job WHERE id IN (SELECT id FROM barred)
      GROUP BY project, wanted, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics) AS counted
     JOIN project ON project.id = counted.project
ORDER BY counted.since_ms, counted.project, counted.workload

-- name: work_of_job
-- Read what a job needs of a node, as `needs` counts it.
SELECT job.project, job.wanted, job.workload, job.gpu, job.gpu_memory_gb, job.trust, job.slots, job.pool, '' AS numerics, 1 AS jobs,
       job.ready_ms AS since_ms, job.steps, job.save_s, job.input_bytes + job.checkpoint_bytes AS download_bytes,
       job.input_bytes + job.checkpoint_bytes AS least_bytes, project.budget - project.spent - project.reserved AS left
FROM job JOIN project ON project.id = job.project WHERE job.id = :job

-- name: queued_since
-- Find a job that training could begin and that came after the last look.
SELECT id FROM job WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample' AND queued_ms > :since LIMIT 1

-- name: banned_jobs
-- List jobs that are ready and have waited for long, because every machine that could take them is banned. A job that fits no node at
-- all is not listed. Both questions end at the first node that answers them.
SELECT job.id, job.version FROM job
WHERE job.state = 'queued' AND job.fencing > 0 AND job.fetching = 0 AND job.queued_ms < :before AND job.ready_ms < :before
  AND job.id IN (SELECT job FROM ban)
  AND NOT EXISTS (SELECT 1 FROM node WHERE node.state IN ('ready', 'on_trial') AND node.gpu_memory_gb >= job.gpu_memory_gb
                  AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
                  AND job.numerics IN ('', node.numerics) AND node.kinds LIKE '%,' || job.wanted || ',%'
                  AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id AND ban.machine = node.machine))
  AND EXISTS (SELECT 1 FROM node AS able WHERE able.state IN ('ready', 'on_trial') AND able.gpu_memory_gb >= job.gpu_memory_gb
              AND job.gpu IN ('', able.gpu) AND job.pool IN ('', able.pool) AND job.trust <= able.trust
              AND job.numerics IN ('', able.numerics) AND able.kinds LIKE '%,' || job.wanted || ',%')
LIMIT 100

-- name: queued_for_long
-- List jobs that have waited for long and that no node could run, apart from bans. `late_samples` gives up jobs that render images.
SELECT id, project, kind, wanted, state, version, fencing, attempts_failed, attempts_max, slots, gpu, gpu_memory_gb, pool, trust, numerics
FROM job
WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample' AND queued_ms < :before
  AND NOT EXISTS (SELECT 1 FROM node WHERE node.state <> 'gone' AND node.gpu_memory_gb >= job.gpu_memory_gb
                  AND job.gpu IN ('', node.gpu) AND job.pool IN ('', node.pool) AND job.trust <= node.trust
                  AND job.numerics IN ('', node.numerics) AND job.slots <= node.slots
                  AND node.kinds LIKE '%,' || job.wanted || ',%')
ORDER BY queued_ms, id LIMIT 100

-- name: queue_length
-- Count queued jobs, up to a limit.
SELECT COUNT(*) AS jobs FROM (SELECT id FROM job WHERE state = 'queued' AND kind <> 'sample' LIMIT :limit) AS waiting

-- name: jobs_before
-- Count the jobs ahead of a fresh job: fresh ones of its project with at least its priority, and all interrupted ones. Each count has a
-- limit.
SELECT (SELECT COUNT(*) FROM (SELECT id FROM job WHERE project = :project AND state = 'queued' AND fencing = 0 AND fetching = 0
                              AND kind <> 'sample' AND priority >= :priority LIMIT :limit) AS fresh)
     + (SELECT COUNT(*) FROM (SELECT id FROM job WHERE state = 'queued' AND fencing > 0 AND fetching = 0 AND kind <> 'sample'
                              LIMIT :limit) AS again) AS jobs

-- name: queue_counts
-- Count the waiting jobs of each project by what they wait for: a node again, a node for the first time, or neither yet.
SELECT project.id, project.share, project.usage, project.usage_ms, project.budget, project.spent, project.reserved,
       waiting.again, waiting.fresh, waiting.unready
FROM (SELECT project, CAST(SUM(CASE WHEN fetching = 0 AND fencing > 0 THEN 1 ELSE 0 END) AS BIGINT) AS again,
             CAST(SUM(CASE WHEN fetching = 0 AND fencing = 0 THEN 1 ELSE 0 END) AS BIGINT) AS fresh,
             CAST(SUM(CASE WHEN fetching = 0 THEN 0 ELSE 1 END) AS BIGINT) AS unready
      FROM job WHERE state = 'queued' AND kind <> 'sample' GROUP BY project) AS waiting
     JOIN project ON project.id = waiting.project

-- name: queue_groups
-- Count the waiting jobs of one project, or of all (''), by what decides why they wait. Jobs that machines are banned from are counted one by one.
SELECT project, kind, wanted, gpu, gpu_memory_gb, pool, trust, numerics, slots, fetching, fencing, COUNT(*) AS jobs, MIN(id) AS id,
       0 AS version, MAX(priority) AS priority, MIN(queued_ms) AS queued_ms, MIN(ready_ms) AS ready_ms, MIN(download_bytes) AS download_bytes,
       '' AS base, '' AS begins_from
FROM (SELECT job.id, job.project, job.kind, job.wanted, job.gpu, job.gpu_memory_gb, job.pool, job.trust, job.numerics, job.slots, job.fetching,
             job.priority, job.queued_ms, job.ready_ms, job.input_bytes + job.checkpoint_bytes AS download_bytes,
             CASE WHEN job.fencing > 0 THEN 1 ELSE 0 END AS fencing, CASE WHEN job.ready_ms > :now THEN 1 ELSE 0 END AS later,
             CASE WHEN job.fencing > 0 AND EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id) THEN job.id ELSE '' END AS banned,
             COALESCE(run.experiment, '') AS experiment
      FROM job LEFT JOIN experiment_run AS run ON job.fetching = 2 AND run.job = job.id
      WHERE job.state = 'queued' AND job.kind <> 'sample' AND (:project = '' OR job.project = :project)) AS waiting
GROUP BY project, kind, wanted, gpu, gpu_memory_gb, pool, trust, numerics, slots, fetching, fencing, later, banned, experiment
ORDER BY COUNT(*) DESC, MIN(queued_ms), MIN(id) LIMIT :limit

-- name: jobs_of_queue_group
-- List the waiting jobs of the group of a job, which may have left the queue meanwhile, in the order of their age.
SELECT job.id FROM job JOIN job AS member ON member.id = :job
WHERE job.state = 'queued' AND job.kind <> 'sample' AND {same_workload} AND job.fetching = member.fetching
  AND (job.fencing > 0) = (member.fencing > 0) AND (job.ready_ms > :now) = (member.ready_ms > :now)
  AND (job.id = member.id OR (NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id)
                              AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = member.id)))
  AND COALESCE((SELECT experiment FROM experiment_run AS run WHERE job.fetching = 2 AND run.job = job.id), '')
    = COALESCE((SELECT experiment FROM experiment_run AS run WHERE job.fetching = 2 AND run.job = member.id), '')
ORDER BY job.queued_ms, job.id LIMIT :limit

-- name: jobs_of_paused_group
-- List the paused jobs that ask the same of a node as this one.
SELECT job.id FROM job JOIN job AS member ON member.id = :job
WHERE job.state = 'paused' AND job.kind <> 'sample' AND job.removed_ms IS NULL AND {same_workload}
ORDER BY job.queued_ms, job.id LIMIT :limit

-- name: paused_groups
-- Count the paused jobs of a project by what they ask of a node. The kind and the deletion name the index.
SELECT project, kind, wanted, gpu, gpu_memory_gb, pool, trust, numerics, slots, COUNT(*) AS jobs, MIN(id) AS id
FROM job WHERE project = :project AND state = 'paused' AND kind <> 'sample' AND removed_ms IS NULL
GROUP BY project, kind, wanted, gpu, gpu_memory_gb, pool, trust, numerics, slots
ORDER BY COUNT(*) DESC, MIN(id) LIMIT :limit

-- part: same_workload
job.project = member.project AND job.kind = member.kind AND job.wanted = member.wanted AND job.gpu = member.gpu
AND job.gpu_memory_gb = member.gpu_memory_gb AND job.pool = member.pool AND job.trust = member.trust AND job.numerics = member.numerics
AND job.slots = member.slots

-- name: queue_again
-- List a page of the jobs that had an attempt before, in the order of the claim, each with its place among those of all projects.
SELECT {waiting_job}, ordered.place
FROM (SELECT id, project, ROW_NUMBER() OVER (ORDER BY priority DESC, queued_ms, id) AS place FROM job
      WHERE state = 'queued' AND fencing > 0 AND fetching = 0 AND kind <> 'sample') AS ordered
     JOIN job ON job.id = ordered.id
WHERE :project = '' OR ordered.project = :project
ORDER BY ordered.place LIMIT :limit OFFSET :passed

-- name: queue_fresh
-- List a page of a project's jobs without an attempt, in the order of the claim.
SELECT {waiting_job} FROM job
WHERE project = :project AND state = 'queued' AND fencing = 0 AND fetching = 0 AND kind <> 'sample'
ORDER BY priority DESC, submitted_ms, id LIMIT :limit OFFSET :passed

-- name: jobs_ahead
-- Count the jobs that stand before a waiting one among those of its part of the queue, as `queue_again` and `queue_fresh` order them.
SELECT COUNT(*) AS jobs FROM job AS member JOIN job ON job.state = 'queued' AND job.fetching = 0 AND job.kind <> 'sample'
WHERE member.id = :job
  AND ((member.fencing > 0 AND job.fencing > 0
        AND (job.priority > member.priority OR (job.priority = member.priority AND (job.queued_ms, job.id) < (member.queued_ms, member.id))))
       OR (member.fencing = 0 AND job.fencing = 0 AND job.project = member.project
           AND (job.priority > member.priority
                OR (job.priority = member.priority AND (job.submitted_ms, job.id) < (member.submitted_ms, member.id)))))

-- name: queue_unready
-- List a page of the jobs that wait for their photos or their experiment.
SELECT {waiting_job} FROM job
WHERE state = 'queued' AND fetching <> 0 AND kind <> 'sample' AND (:project = '' OR project = :project)
ORDER BY queued_ms, id LIMIT :limit OFFSET :passed

-- part: waiting_job
job.id, job.name, job.project, job.kind, job.wanted, job.fencing, job.version, job.priority, job.queued_ms, job.ready_ms, job.base, job.slots,
job.input_bytes + job.checkpoint_bytes AS download_bytes, job.gpu, job.gpu_memory_gb, job.pool, job.trust, job.numerics, job.begins_from,
job.fetching
