-- How often an attempt saves, and why, as its node said with its last checkpoint: JSON; empty before the first.

ALTER TABLE attempt ADD COLUMN saving TEXT NOT NULL DEFAULT '';
