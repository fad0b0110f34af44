-- Values that a project's commands get in their environment, encrypted under a key that is not in the database.

CREATE TABLE secret (
    project TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    sealed  TEXT   NOT NULL,
    set_ms  BIGINT NOT NULL,
    PRIMARY KEY (project, name)
);
