-- Waiting jobs are counted by what they need of a node, and attempts by the offer of their nodes; and a node that starts says how far it is.

CREATE INDEX job_needs ON job (project, kind, workload, gpu, gpu_memory_gb, trust, slots, pool, numerics, ready_ms, fencing, id, steps, save_s,
                               input_bytes, checkpoint_bytes)
WHERE state = 'queued' AND fetching = 0 AND kind <> 'sample';
DROP INDEX attempt_ended;
CREATE INDEX attempt_ended ON attempt (ended_ms) WHERE state <> 'live';

ALTER TABLE node ADD COLUMN progress TEXT NOT NULL DEFAULT '';   -- how far its start is, as its provider said last
ALTER TABLE node ADD COLUMN lost BIGINT NOT NULL DEFAULT 0;      -- 1: its provider took it away, or it fell silent, while it was wanted
CREATE INDEX node_lost ON node (since_ms) WHERE lost = 1;
