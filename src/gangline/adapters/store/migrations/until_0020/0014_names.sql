-- Rented nodes have short names: their pool's and a number that is never used again, as local-3.

ALTER TABLE node ADD COLUMN number BIGINT;   -- in its pool; none where it joined by hand, or was rented before this
CREATE UNIQUE INDEX node_number ON node (pool, number) WHERE number IS NOT NULL;
