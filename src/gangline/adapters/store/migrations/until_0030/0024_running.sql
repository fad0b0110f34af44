-- The watchdog reads what it needs of running jobs from an index, whatever else waits or has ended; numbers of nodes are found by a plain one.

CREATE INDEX job_running ON job (id, steps, save_s) WHERE state = 'running';
DROP INDEX node_number;
CREATE UNIQUE INDEX node_number ON node (pool, number);
