-- Credentials and what each gives access to: keys of people, join tokens, tokens of nodes.

-- name: credential
-- Read the credential with this hash, its node's state, and whether the rental that it is for has ended.
SELECT credential.id, credential.role, credential.project, credential.pool, credential.node, credential.expires_ms,
       credential.revoked_ms, credential.used_ms, credential.rental, node.state AS node_state,
       CASE WHEN credential.rental IS NULL OR EXISTS (SELECT 1 FROM node AS rented WHERE rented.rental = credential.rental
                                                      AND rented.state <> 'gone') THEN 0 ELSE 1 END AS rental_ended
FROM credential LEFT JOIN node ON node.id = credential.node
WHERE credential.hash = :hash

-- name: standings
-- Read until when each of these credentials and sessions, which are named by their hashes, is valid.
SELECT credential.id, credential.expires_ms, credential.revoked_ms FROM {listed_ids}
    JOIN credential ON credential.id = listed.id
UNION ALL
SELECT session.hash AS id, CASE WHEN credential.expires_ms < session.expires_ms THEN credential.expires_ms ELSE session.expires_ms END
       AS expires_ms, credential.revoked_ms FROM {listed_ids}
    JOIN session ON session.hash = listed.id JOIN credential ON credential.id = session.credential

-- name: add_credential
INSERT INTO credential (id, hash, role, name, project, pool, node, made_ms, expires_ms, price_micro_usd_per_hour, trust,
                        nodes_max, nodes_per_hour, rental)
VALUES (:id, :hash, :role, :name, :project, :pool, :node, :now, :expires_ms, :price_micro_usd_per_hour, :trust,
        :nodes_max, :nodes_per_hour, :rental)
ON CONFLICT (hash) DO NOTHING

-- name: use_credential
UPDATE credential SET used_ms = :now WHERE id = :id

-- name: session
-- Read the session with this hash, and the key for which it stands.
SELECT credential.id, credential.role, credential.project, credential.pool, credential.node, credential.expires_ms,
       credential.revoked_ms, credential.used_ms, credential.rental, session.project AS chosen, credential.name,
       session.expires_ms AS ends_ms
FROM session JOIN credential ON credential.id = session.credential
WHERE session.hash = :hash

-- name: add_session
INSERT INTO session (hash, credential, project, made_ms, expires_ms) VALUES (:hash, :credential, :project, :now, :expires_ms)

-- name: choose_project
UPDATE session SET project = :project WHERE hash = :hash

-- name: end_session
DELETE FROM session WHERE hash = :hash

-- name: take_code
-- Use a code of the sign-in, once.
DELETE FROM session WHERE hash = :hash AND expires_ms > :now RETURNING credential, project

-- name: forget_sessions
-- Delete the sessions that have expired.
DELETE FROM session WHERE expires_ms <= :now

-- name: keys
-- List the keys of a project; without a project, all keys including the operators'.
SELECT id, role, name, project, made_ms, expires_ms, revoked_ms, used_ms FROM credential
WHERE node IS NULL AND role <> 'join' AND (CAST(:project AS TEXT) IS NULL OR project = :project)
ORDER BY made_ms, id

-- name: holder_of_key
-- Read whether a key is that of a job's owner, and its name.
SELECT credential.name, CASE WHEN job.owner = credential.id THEN 1 ELSE 0 END AS owns
FROM job LEFT JOIN credential ON credential.id = :key WHERE job.id = :job

-- name: revoke_key
-- Revoke a key, only if it belongs to the project; without a project, any.
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now)
WHERE id = :id AND role NOT IN ('join', 'node') AND (CAST(:project AS TEXT) IS NULL OR project = :project)

-- name: join_tokens
-- List the join tokens that people made, each with the number of nodes that joined with it and are not gone.
SELECT id, name, pool, made_ms, expires_ms, revoked_ms, used_ms, price_micro_usd_per_hour, trust, nodes_max, nodes_per_hour,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone') AS nodes
FROM credential
WHERE node IS NULL AND role = 'join' AND rental IS NULL
ORDER BY made_ms, id

-- name: revoke_join_token
UPDATE credential SET revoked_ms = COALESCE(revoked_ms, :now) WHERE id = :id AND role = 'join'

-- name: join_token
-- Read a token's settings for its nodes, how many of them are not gone, how many joined since `:since`, and when the first of these did.
SELECT id, name, price_micro_usd_per_hour, trust, nodes_max, nodes_per_hour,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone') AS here,
       (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since) AS joined,
       (SELECT MIN(joined_ms) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since) AS first_ms
FROM credential WHERE id = :id

-- name: hold_join_token
-- Lock the row before a write that counts its nodes, so that a concurrent join commits either before or after that write.
UPDATE credential SET used_ms = used_ms WHERE id = :id

-- name: join_token_admits
-- Use the token, only if its limits admit one more node.
UPDATE credential SET used_ms = :now
WHERE id = :id
  AND (nodes_max IS NULL
       OR nodes_max > (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.state <> 'gone'))
  AND (nodes_per_hour IS NULL
       OR nodes_per_hour > (SELECT COUNT(*) FROM node WHERE node.join_token = credential.id AND node.joined_ms > :since))

-- name: put_secret
INSERT INTO secret (project, name, sealed, set_ms) VALUES (:project, :name, :sealed, :now)
ON CONFLICT (project, name) DO UPDATE SET sealed = excluded.sealed, set_ms = excluded.set_ms

-- name: secrets
-- List the secrets of a project; without a project, all.
SELECT project, name, sealed, set_ms FROM secret
WHERE CAST(:project AS TEXT) IS NULL OR project = :project
ORDER BY project, name

-- name: remove_secret
DELETE FROM secret WHERE project = :project AND name = :name

-- name: reseal_secret
-- Replace what is encrypted under an older key, unless the value was set again meanwhile.
UPDATE secret SET sealed = :sealed WHERE project = :project AND name = :name AND sealed = :before

-- name: request
SELECT fingerprint, made FROM request WHERE project = :project AND endpoint = :endpoint AND key = :key

-- name: add_request
-- Write down what a request has made, unless it has made it before.
INSERT INTO request (project, endpoint, key, fingerprint, made, at_ms) VALUES (:project, :endpoint, :key, :fingerprint, :made, :now)
ON CONFLICT (project, endpoint, key) DO NOTHING

-- name: forget_requests
DELETE FROM request WHERE at_ms < :before
