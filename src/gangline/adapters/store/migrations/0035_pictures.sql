-- What a look at a sample picture found, and the step of a job whose pictures its owner chose.

ALTER TABLE artifact ADD COLUMN width BIGINT NOT NULL DEFAULT 0;             -- of a picture, once it was looked at
ALTER TABLE artifact ADD COLUMN height BIGINT NOT NULL DEFAULT 0;
ALTER TABLE artifact ADD COLUMN thumbnail TEXT NOT NULL DEFAULT '';          -- the key of its small copy, which may still be on its way
ALTER TABLE artifact ADD COLUMN thumbnail_bytes BIGINT NOT NULL DEFAULT 0;   -- 0: it is not there
ALTER TABLE artifact ADD COLUMN unusable TEXT NOT NULL DEFAULT '';           -- why a picture has no small copy
ALTER TABLE artifact ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;             -- looks at which a picture was lost, or took too much memory or time
CREATE INDEX artifact_unseen ON artifact (tries, made_ms DESC)
    WHERE thumbnail_bytes = 0 AND unusable = '' AND path LIKE 'samples/%seed-%.png';

CREATE TABLE winner (
    job        TEXT   PRIMARY KEY,
    step       BIGINT NOT NULL,
    checkpoint TEXT   NOT NULL    -- the one that was pinned for it; '': none was
);
