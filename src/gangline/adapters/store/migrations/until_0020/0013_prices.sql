-- A price may be unknown, and a join token may say what its nodes cost, how far they are trusted, and how many there may be.

-- Who has not heard of this yet adds nodes and attempts whose price counts as unknown.
ALTER TABLE node ADD COLUMN price_known BIGINT NOT NULL DEFAULT 0;     -- 0: its price column says nothing
ALTER TABLE node ADD COLUMN join_token TEXT;                           -- which one it joined with; none where it was rented
ALTER TABLE attempt ADD COLUMN price_known BIGINT NOT NULL DEFAULT 0;
UPDATE node SET price_known = 1 WHERE price_micro_usd_per_hour > 0;    -- until now nobody could say that it is free
UPDATE attempt SET price_known = 1 WHERE price_micro_usd_per_hour > 0;
CREATE INDEX node_join_token ON node (join_token, joined_ms) WHERE join_token IS NOT NULL;
CREATE INDEX attempt_unpriced ON attempt (job) WHERE price_known = 0;

ALTER TABLE credential ADD COLUMN price_micro_usd_per_hour BIGINT;     -- of a join token; none: its pool's
ALTER TABLE credential ADD COLUMN trust BIGINT;                        -- the same
ALTER TABLE credential ADD COLUMN nodes_max BIGINT;                    -- nodes at once; none: no limit
ALTER TABLE credential ADD COLUMN nodes_per_hour BIGINT;               -- joins in an hour; none: no limit
