-- Of several servers over one database, one ticks at a time.
ALTER TABLE service ADD COLUMN ticker TEXT NOT NULL DEFAULT '';
ALTER TABLE service ADD COLUMN turn_ends_ms BIGINT NOT NULL DEFAULT 0;
