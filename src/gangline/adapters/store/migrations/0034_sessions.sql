-- Sessions of the page: each stands for the key with which somebody signed in, and ends with it.

CREATE TABLE session (
    hash       TEXT   PRIMARY KEY,         -- the SHA-256 of the cookie's value
    credential TEXT   NOT NULL,
    project    TEXT,                       -- the one that an operator looks at; a project's key has its own
    made_ms    BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX session_expires ON session (expires_ms);
