-- When an attempt went from one phase into another, as its node's heartbeats said: a row for each change, none for a beat that brings none.

ALTER TABLE lease ADD COLUMN phase_ms BIGINT NOT NULL DEFAULT 0;   -- when its phase changed last; 0: it has not since its claim

CREATE TABLE attempt_phase (
    attempt TEXT   NOT NULL,
    at_ms   BIGINT NOT NULL,
    phase   TEXT   NOT NULL,
    PRIMARY KEY (attempt, at_ms)
);
