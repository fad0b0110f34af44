-- What a job's owner asked of it and is not done yet: to save, to show itself, to finish early. `attempt` is the one whose node heard of it, and `step` the
-- last one that it had reported then; `saved`: 1 once it has saved since, and is to render.

CREATE TABLE wish (
    job      TEXT   NOT NULL REFERENCES job (id),
    kind     TEXT   NOT NULL,
    asked_ms BIGINT NOT NULL,
    attempt  TEXT   NOT NULL DEFAULT '',
    step     BIGINT NOT NULL DEFAULT 0,
    saved    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job, kind)
);

ALTER TABLE job ADD COLUMN ended_step BIGINT;    -- the step at which it was finished early; NULL if it took all of its steps
ALTER TABLE job ADD COLUMN begins_step BIGINT;   -- of the job that it begins from: the newest step that counts; NULL: whatever there is
