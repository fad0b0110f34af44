-- Jobs: what was submitted, its progress, and its events.

-- name: add_job
-- Add a job, unless the same request (its Idempotency-Key) has added one before.
INSERT INTO job (id, project, name, kind, wanted, spec, spec_hash, request, state, because, steps, save_s, priority, base, workload,
                 slots, input_bytes, checkpoint_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing,
                 attempts_failed, attempts_max, ready_ms, version, submitted_ms, queued_ms, listed, owner, fingerprint, fetching)
VALUES (:id, :project, :name, :kind, :wanted, :spec, :spec_hash, :request, 'queued', :because, :steps, :save_s, :priority, :base,
        :workload, :slots, :input_bytes, 0, :gpu, :gpu_memory_gb, :pool, :trust, :exact, '', 0, 0, :attempts_max, :now,
        1, :now, :now, 1, :owner, :fingerprint, :fetching)
ON CONFLICT DO NOTHING

-- name: followed
-- Read the progress of a job for its followers: its newest event, the newest chunk of its log, and the phase of its lease.
SELECT job.id, job.state, job.because, job.fencing, lease.phase, lease.step, lease.loss, lease.seconds_per_step,
       (SELECT MAX(event.number) FROM event WHERE event.job = job.id) AS number,
       (SELECT MAX(log_chunk.first_byte) FROM log_chunk WHERE log_chunk.attempt = attempt.id) AS first_byte
FROM job LEFT JOIN attempt ON attempt.job = job.id AND attempt.fencing = job.fencing
     LEFT JOIN lease ON lease.attempt = attempt.id AND lease.rank = 0
WHERE job.id = :id

-- name: progress_of_project
-- Read how far the nodes at work on the jobs of a project have come.
SELECT attempt.job, lease.phase, lease.step, lease.loss, lease.stop_kind, lease.beat_ms
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
WHERE lease.rank = 0 AND job.project = :project AND job.kind <> 'sample'

-- name: removed_lately
-- List the jobs of a project that were deleted since then.
SELECT id FROM job WHERE removed_ms >= :since AND project = :project AND kind <> 'sample'

-- name: job_of_request
SELECT id, COALESCE(photo_import.asked, spec_hash) AS spec_hash, fingerprint FROM job LEFT JOIN photo_import ON photo_import.job = job.id
WHERE project = :project AND request = :request

-- name: job
SELECT id, project, name, kind, wanted, spec, spec_hash, state, because, steps, priority, base, workload, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing,
       attempts_failed, attempts_max, ready_ms, version, begins_from, begins_step, fetching, imported, submitted_ms, queued_ms,
       ended_ms, ended_step, removed_ms, owner
FROM job WHERE id = :id

-- name: job_version
-- Read it without the spec, which may be long.
SELECT version FROM job WHERE id = :id

-- name: job_of_attempt
-- Read the job without its spec, which may be long.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb
FROM job JOIN attempt ON attempt.job = job.id WHERE attempt.id = :attempt

-- name: held_job
-- Read the job and the attempt of a live lease.
SELECT job.id, job.project, job.kind, job.spec_hash, job.steps, job.base, job.exact, attempt.machine, attempt.gpu,
       attempt.workload, lease.seconds_per_step, sampling.every_steps AS sample_every_steps, sampling.every_s AS sample_every_s,
       sampling.step AS sampled_step, sampling.at_ms AS sampled_ms
FROM lease JOIN attempt ON attempt.id = lease.attempt JOIN job ON job.id = attempt.job
     LEFT JOIN sampling ON sampling.job = job.id
WHERE lease.attempt = :attempt AND lease.rank = :rank AND lease.node = :node AND lease.fencing = :fencing

-- name: pin_numerics
-- For a job that must stay exact, the first checkpoint decides on which nodes it may resume.
UPDATE job SET numerics = (SELECT node.numerics FROM node WHERE node.id = :node) WHERE id = :id

-- name: measure_checkpoint
-- Set the bytes of the checkpoint that the next attempt downloads beside the job's inputs.
UPDATE job SET checkpoint_bytes = COALESCE((SELECT bytes FROM checkpoint
                                            WHERE checkpoint.job IN (job.id, job.begins_from) AND state = 'committed'
                                            ORDER BY step DESC LIMIT 1), 0)
WHERE id = :id

-- name: begin_from
-- Start the job from another job's checkpoints. If it must stay exact, it may run only where those were made.
UPDATE job SET begins_from = :of, begins_step = :step,
       numerics = CASE WHEN exact = 'required' THEN (SELECT numerics FROM job AS before WHERE before.id = :of) ELSE '' END
WHERE id = :id

-- name: forget_beginning
-- The job has its first own checkpoint, so it no longer needs the other job's.
UPDATE job SET begins_from = NULL WHERE id = :id

-- name: heirs
-- List jobs that will start from the checkpoints of this one.
SELECT id FROM job WHERE begins_from = :job AND ended_ms IS NULL ORDER BY id

-- name: set_job_state
-- Change the job, only if nobody else has changed it since it was read.
UPDATE job SET state = :state, because = :because, attempts_failed = :attempts_failed, version = version + 1,
       gpu_memory_gb = :gpu_memory_gb, ready_ms = :ready_ms, queued_ms = :now,
       ended_ms = CASE WHEN :state IN ('succeeded', 'failed', 'canceled') THEN CAST(:now AS BIGINT) ELSE NULL END
WHERE id = :id AND version = :version

-- name: end_early
UPDATE job SET ended_step = :step WHERE id = :id

-- name: say_why
-- Change the reason and the version: a server that changes the job concurrently reads it again, and finds the owner's wish.
UPDATE job SET because = :because, version = version + 1 WHERE id = :id AND version = :version

-- name: raise_need
-- Let a job ask for more GPU memory from its next attempt on. It never asks for less than before.
UPDATE job SET gpu_memory_gb = CASE WHEN gpu_memory_gb < :gpu_memory_gb THEN :gpu_memory_gb ELSE gpu_memory_gb END WHERE id = :id

-- name: candidate
-- Read a job as it would stand in the queue.
SELECT id, project, kind, wanted, fencing, version, priority, queued_ms, ready_ms, base, slots,
       input_bytes + checkpoint_bytes AS download_bytes, gpu, gpu_memory_gb, pool, trust, numerics, begins_from
FROM job WHERE id = :id

-- name: events_of_attempt
SELECT at_ms FROM event WHERE job = :job AND attempt = :attempt AND kind = :kind

-- name: add_event
-- Add an event. It comes after the write that changes its job's state, and so records the state that it led to.
INSERT INTO event (job, number, at_ms, kind, attempt, node, state, because)
SELECT :job, COALESCE(MAX(number), 0) + 1, :now, :kind, :attempt, :node, COALESCE((SELECT job.state FROM job WHERE job.id = :job), ''), :because
FROM event WHERE job = :job

-- name: events
SELECT number, at_ms, kind, attempt, node, state, because FROM event WHERE job = :job AND number > :after ORDER BY number
