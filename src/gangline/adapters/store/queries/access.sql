-- Secrets and what each opens: keys of people, join tokens, tokens of nodes.

-- name: credential
-- Whose secret it is.
SELECT credential.id, credential.role, credential.project, credential.pool, credential.node, credential.expires_ms,
       credential.revoked_ms, credential.used_ms, node.state AS node_state
FROM credential LEFT JOIN node ON node.id = credential.node
WHERE credential.hash = :hash

-- name: add_credential
INSERT INTO credential (id, hash, role, name, project, pool, node, made_ms, expires_ms)
VALUES (:id, :hash, :role, :name, :project, :pool, :node, :now, :expires_ms)
ON CONFLICT (hash) DO NOTHING

-- name: use_credential
UPDATE credential SET used_ms = :now WHERE id = :id

-- name: keys
-- Of a project; without one, all of them and the operators' too.
SELECT id, role, name, project, made_ms, expires_ms, revoked_ms, used_ms FROM credential
WHERE node IS NULL AND role <> 'join' AND (CAST(:project AS TEXT) IS NULL OR project = :project)
ORDER BY made_ms, id

-- name: revoke_key
-- A project's own; without one, any.
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now)
WHERE id = :id AND role NOT IN ('join', 'node') AND (CAST(:project AS TEXT) IS NULL OR project = :project)

-- name: join_tokens
SELECT id, name, pool, made_ms, expires_ms, revoked_ms, used_ms FROM credential
WHERE node IS NULL AND role = 'join'
ORDER BY made_ms, id

-- name: revoke_join_token
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now) WHERE id = :id AND role = 'join'
