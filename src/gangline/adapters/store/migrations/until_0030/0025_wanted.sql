-- A job may ask for a level of isolation: it wants its kind from its node, with that level. Nodes list what they offer in the same words.

ALTER TABLE job ADD COLUMN wanted TEXT NOT NULL DEFAULT '';
UPDATE job SET wanted = kind;
DROP INDEX job_needs;
CREATE INDEX job_needs ON job (project, wanted, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics, ready_ms, fencing, id, steps, save_s,
                               input_bytes, checkpoint_bytes)
WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample';
