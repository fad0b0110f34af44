-- Data sets: photos with captions and masks under a name, in versions that never change. The bytes are the project's blobs.

CREATE TABLE dataset (
    id       TEXT   PRIMARY KEY,
    project  TEXT   NOT NULL,
    name     TEXT   NOT NULL,
    versions BIGINT NOT NULL,              -- the number of the version that was added last; it rises alone
    made_ms  BIGINT NOT NULL
);
CREATE UNIQUE INDEX dataset_name ON dataset (project, name);

CREATE TABLE dataset_version (
    id           TEXT   PRIMARY KEY,
    dataset      TEXT   NOT NULL,
    project      TEXT   NOT NULL,
    number       BIGINT NOT NULL,
    digest       TEXT   NOT NULL,          -- the SHA-256 of its manifest
    state        TEXT   NOT NULL,          -- adding, checking, ready, refused, going
    because      TEXT   NOT NULL,          -- why it is refused
    photos       BIGINT NOT NULL,
    captions     BIGINT NOT NULL,
    masks        BIGINT NOT NULL,
    bytes        BIGINT NOT NULL,
    findings     TEXT   NOT NULL,          -- JSON: what the check found; '' before it has ended
    server       TEXT   NOT NULL DEFAULT '',  -- which one checks it now
    turn_ends_ms BIGINT NOT NULL DEFAULT 0,
    tries        BIGINT NOT NULL DEFAULT 0,  -- steps of its check in which a picture was missing, or took too much memory or time
    moved_ms     BIGINT NOT NULL,          -- when files were added, some were checked or some removed last
    used_ms      BIGINT NOT NULL DEFAULT 0,  -- when a job named it last
    made_ms      BIGINT NOT NULL,
    checked_ms   BIGINT
);
CREATE INDEX dataset_version_number ON dataset_version (dataset, number);
CREATE INDEX dataset_version_digest ON dataset_version (dataset, digest);
CREATE INDEX dataset_version_at_work ON dataset_version (moved_ms) WHERE state IN ('adding', 'checking', 'going');

CREATE TABLE dataset_file (
    version TEXT   NOT NULL,
    path    TEXT   NOT NULL,
    project TEXT   NOT NULL,
    sha256  TEXT   NOT NULL,
    bytes   BIGINT NOT NULL,
    role    TEXT   NOT NULL,               -- photo, caption, mask
    PRIMARY KEY (version, path)
);
CREATE INDEX dataset_file_content ON dataset_file (project, sha256);

-- What a picture shows, once for each content, whichever versions have it.
CREATE TABLE photo (
    project         TEXT   NOT NULL,
    sha256          TEXT   NOT NULL,
    because         TEXT   NOT NULL,       -- why it cannot be used; '': it can
    format          TEXT   NOT NULL,
    width           BIGINT NOT NULL,       -- as a person sees it
    height          BIGINT NOT NULL,
    sharpness       DOUBLE PRECISION NOT NULL,
    likeness        TEXT   NOT NULL,       -- the dHash, 16 hexadecimal digits
    thumbnail_bytes BIGINT NOT NULL,       -- 0: it has none
    PRIMARY KEY (project, sha256)
);

-- Which version the photos of a job are, if it named one.
CREATE TABLE job_dataset (
    job     TEXT   PRIMARY KEY,
    project TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    number  BIGINT NOT NULL,
    digest  TEXT   NOT NULL,
    version TEXT   NOT NULL
);
CREATE INDEX job_dataset_version ON job_dataset (version);
CREATE INDEX job_dataset_name ON job_dataset (project, name, number);
