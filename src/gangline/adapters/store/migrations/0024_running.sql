-- The watchdog reads what it needs of running jobs from an index, whatever else waits or has ended.

CREATE INDEX job_running ON job (id, steps, save_s) WHERE state = 'running';
