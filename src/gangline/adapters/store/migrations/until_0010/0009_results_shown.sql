-- A job that renders may show a training job's result: it has no checkpoint.
ALTER TABLE sample RENAME TO sample_before;
CREATE TABLE sample (
    job        TEXT   PRIMARY KEY REFERENCES job (id),
    parent     TEXT   NOT NULL REFERENCES job (id),
    checkpoint TEXT   REFERENCES checkpoint (id),
    step       BIGINT NOT NULL
);
INSERT INTO sample (job, parent, checkpoint, step) SELECT job, parent, checkpoint, step FROM sample_before;
DROP TABLE sample_before;
CREATE INDEX sample_parent ON sample (parent, step);
CREATE INDEX sample_checkpoint ON sample (checkpoint);
