-- Secrets and what each opens: keys of people, join tokens, tokens of nodes.

-- name: credential
-- Whose secret it is.
SELECT credential.id, credential.role, credential.project, credential.pool, credential.node, credential.expires_ms,
       credential.revoked_ms, credential.used_ms, node.state AS node_state
FROM credential LEFT JOIN node ON node.id = credential.node
WHERE credential.hash = :hash

-- name: add_credential
INSERT INTO credential (id, hash, role, name, project, pool, node, made_ms, expires_ms, price_micro_usd_per_hour, trust,
                        nodes_max, nodes_per_hour)
VALUES (:id, :hash, :role, :name, :project, :pool, :node, :now, :expires_ms, :price_micro_usd_per_hour, :trust,
        :nodes_max, :nodes_per_hour)
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
-- With how many nodes are here that joined with each.
SELECT id, name, pool, made_ms, expires_ms, revoked_ms, used_ms, price_micro_usd_per_hour, trust, nodes_max, nodes_per_hour,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone') AS nodes
FROM credential
WHERE node IS NULL AND role = 'join'
ORDER BY made_ms, id

-- name: revoke_join_token
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now) WHERE id = :id AND role = 'join'

-- name: join_token
-- What it says of the nodes that join with it; and how many of them are here, joined since, and when the first of these did.
SELECT id, name, price_micro_usd_per_hour, trust, nodes_max, nodes_per_hour,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone') AS here,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since) AS joined,
       (SELECT MIN(joined_ms) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since) AS first_ms
FROM credential WHERE id = :id

-- name: hold_join_token
-- Before a write that counts its nodes: whoever joins with it meanwhile goes first.
UPDATE credential SET used_ms = used_ms WHERE id = :id

-- name: join_token_admits
-- Whether one more node may join with it.
UPDATE credential SET used_ms = :now
WHERE id = :id
  AND (nodes_max IS NULL
       OR nodes_max > (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone'))
  AND (nodes_per_hour IS NULL
       OR nodes_per_hour > (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since))
