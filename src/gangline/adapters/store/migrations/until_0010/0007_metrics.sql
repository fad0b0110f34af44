-- What trainers measured, in batches; a node sends one in ten seconds, and one before each checkpoint.
CREATE TABLE metric (
    attempt TEXT   NOT NULL REFERENCES attempt (id),
    step    BIGINT NOT NULL,        -- of its last point
    at_ms   BIGINT NOT NULL,
    points  TEXT   NOT NULL,        -- JSON, by columns
    PRIMARY KEY (attempt, step)
);

-- Which tracker is to be told of which job, and how far it has been.
CREATE TABLE tracked (
    job     TEXT   NOT NULL REFERENCES job (id),
    tracker TEXT   NOT NULL,
    step    BIGINT NOT NULL,        -- the last that it was told of
    ended   BIGINT NOT NULL,        -- 1: it knows how the job ended, and hears no more
    because TEXT   NOT NULL,        -- why it could not be told; empty: it could
    PRIMARY KEY (job, tracker)
);
CREATE INDEX tracked_open ON tracked (tracker, job) WHERE ended = 0;

-- The pictures that it was shown.
CREATE TABLE tracked_picture (
    job     TEXT   NOT NULL REFERENCES job (id),
    tracker TEXT   NOT NULL,
    path    TEXT   NOT NULL,
    PRIMARY KEY (job, tracker, path)
);
