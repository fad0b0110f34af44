-- The GPU memory that a trainer holds, by its own account: more than its card has, where a driver moves the rest to the machine's memory.
ALTER TABLE lease ADD COLUMN memory_bytes BIGINT;
