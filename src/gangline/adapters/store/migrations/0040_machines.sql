-- The GPU memory that a trainer holds, by its own account: more than its card has, where a driver moves the rest to the machine's memory.
ALTER TABLE lease ADD COLUMN memory_bytes BIGINT;

-- Which machine a card was in when it came first, by a digest of the card's own number: so a machine is known under another name.
CREATE TABLE machine_card (
    card    TEXT   PRIMARY KEY,
    machine TEXT   NOT NULL,
    at_ms   BIGINT NOT NULL
);
CREATE INDEX attempt_of_machine ON attempt (machine, ended_ms) WHERE state <> 'live';
