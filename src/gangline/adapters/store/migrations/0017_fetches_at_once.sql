-- What is being fetched is counted for each project.

CREATE INDEX photo_import_held ON photo_import (server) WHERE server <> '';
