-- Keys get a role, a name and an end; join tokens get a pool. What was known before opens what it opened before:
-- a user's token is an admin key of its project now.

CREATE TABLE credential (
    id         TEXT   PRIMARY KEY,      -- the beginning of its hash: who finds a secret can tell which one it is
    hash       TEXT   NOT NULL,         -- SHA-256 of the secret; the secret itself is nowhere
    role       TEXT   NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'operator', 'join', 'node')),
    name       TEXT   NOT NULL,         -- for people
    project    TEXT,                    -- of a viewer's, a member's, an admin's key
    pool       TEXT,                    -- of a join token
    node       TEXT,                    -- of a node's token
    made_ms    BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    used_ms    BIGINT,                  -- to the hour; never of a node's token
    UNIQUE (hash)
);
CREATE INDEX credential_of_people ON credential (made_ms, id) WHERE node IS NULL;

INSERT INTO credential (id, hash, role, name, project, pool, node, made_ms)
SELECT CASE role WHEN 'user' THEN 'key' ELSE role END || '-' || SUBSTR(hash, 1, 16), hash,
       CASE role WHEN 'user' THEN 'admin' ELSE role END,
       CASE role WHEN 'node' THEN node ELSE 'made at the first start' END,
       CASE role WHEN 'user' THEN project END,
       CASE role WHEN 'join' THEN 'default' END,
       node, made_ms
FROM token;

DROP TABLE token;
