-- Fetches have bounds: so many of a project at once, and a time for all photos of a job.

CREATE INDEX photo_import_held ON photo_import (server) WHERE server <> '';
ALTER TABLE photo_import ADD COLUMN spent_ms BIGINT NOT NULL DEFAULT 0;   -- in all turns together, without the time between them
