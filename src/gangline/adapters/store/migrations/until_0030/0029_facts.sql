-- One stream of facts for each project: the events of its jobs, numbered once they are committed. Transactions commit in another order than the one in which
-- they begin, so a number that is given inside of one could be passed over by those who read up to a later one.

ALTER TABLE event ADD COLUMN project TEXT;      -- that of the job, as soon as the fact has a number
ALTER TABLE event ADD COLUMN fact BIGINT;       -- its number in the stream of the project; NULL until it is committed and numbered
ALTER TABLE event ADD COLUMN numbered BIGINT NOT NULL DEFAULT 0;   -- 1: it has its number, or needs none, as its job only renders pictures of another one
ALTER TABLE event ADD COLUMN state TEXT NOT NULL DEFAULT '';       -- of the job after it; '' for what was recorded before this
ALTER TABLE project ADD COLUMN facts BIGINT NOT NULL DEFAULT 0;    -- the last number that was given; no other fact ever has it

CREATE UNIQUE INDEX event_fact ON event (project, fact);
CREATE INDEX event_unnumbered ON event (at_ms, job, number) WHERE numbered = 0;
