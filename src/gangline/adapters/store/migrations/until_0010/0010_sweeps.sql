-- How often what an attempt left was to be swept: a sweep that began before the last of these times has not seen all of it.
ALTER TABLE attempt ADD COLUMN sweeps_asked BIGINT NOT NULL DEFAULT 0;
