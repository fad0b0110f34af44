-- The place that a rental leaves with this node, as its machine is not wanted any more: nobody joins from there.

ALTER TABLE node ADD COLUMN leaves TEXT NOT NULL DEFAULT '';
