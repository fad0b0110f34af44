-- A rented node belongs to a rental, the provider's object: it has one node at a time, and its provider may move it to another machine.
-- Its id is that of its first node, and its token opens the pool to it alone.

ALTER TABLE node ADD COLUMN rental TEXT;
ALTER TABLE node ADD COLUMN place TEXT NOT NULL DEFAULT '';   -- the machine, as the provider calls it; '' for one that moves nothing
ALTER TABLE node ADD COLUMN offer TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN refused BIGINT NOT NULL DEFAULT 0;   -- whether its provider had none
UPDATE node SET rental = id WHERE rented = 1;
CREATE INDEX node_by_rental ON node (rental) WHERE rental IS NOT NULL;
CREATE UNIQUE INDEX node_of_rental ON node (rental) WHERE rental IS NOT NULL AND state <> 'gone';

ALTER TABLE credential ADD COLUMN rental TEXT;
