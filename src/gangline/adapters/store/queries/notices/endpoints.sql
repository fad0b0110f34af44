-- Where notices go: endpoints of projects, and which facts each one receives.

-- name: add_endpoint
INSERT INTO endpoint (id, project, channel, name, shown, sealed, interval_ms, quiet, state, because, version, secret, secret_key, active_ms, made_ms,
                      made_by)
VALUES (:id, :project, :channel, :name, :shown, :sealed, :interval_ms, :quiet, 'active', '', 1, 1, :secret_key, :now, :now, :made_by)
ON CONFLICT (project, name) DO NOTHING

-- name: choose_event
INSERT INTO endpoint_event (endpoint, notice, kind, state) VALUES (:endpoint, :notice, :kind, :state)

-- name: forget_choices
DELETE FROM endpoint_event WHERE endpoint = :endpoint

-- name: endpoints
-- List the endpoints of a project; without a project, all.
SELECT id, project, channel, name, shown, sealed, interval_ms, quiet, state, because, version, secret, secret_key, old_secret, old_secret_key, old_until_ms,
       active_ms, failing_since_ms, hold_until_ms, delivered_ms, made_ms, made_by,
       (SELECT COUNT(*) FROM notice WHERE notice.endpoint = endpoint.id AND notice.state = 'waiting') AS waiting
FROM endpoint WHERE CAST(:project AS TEXT) IS NULL OR project = :project
ORDER BY made_ms, id

-- name: endpoint
-- Read an endpoint of a project, given its id or its name.
SELECT id, project, channel, name, shown, sealed, interval_ms, quiet, state, because, version, secret, secret_key, old_secret, old_secret_key, old_until_ms,
       active_ms, failing_since_ms, hold_until_ms, delivered_ms, made_ms, made_by,
       (SELECT COUNT(*) FROM notice WHERE notice.endpoint = endpoint.id AND notice.state = 'waiting') AS waiting
FROM endpoint WHERE project = :project AND (id = :which OR name = :which)

-- name: choices
SELECT DISTINCT notice FROM endpoint_event WHERE endpoint = :endpoint

-- name: change_endpoint
-- Change an endpoint, unless somebody else has changed it, or has given its name to another one meanwhile.
UPDATE endpoint SET name = :name, interval_ms = :interval_ms, quiet = :quiet, hold_until_ms = 0, version = version + 1
WHERE id = :id AND version = :version
  AND NOT EXISTS (SELECT 1 FROM endpoint AS other WHERE other.project = :project AND other.name = :name AND other.id <> :id)

-- name: enable_endpoint
-- It receives what happens from now on; what happened meanwhile its owner may have replayed.
UPDATE endpoint SET state = 'active', because = '', active_ms = :now, failing_since_ms = NULL, hold_until_ms = 0, version = version + 1
WHERE id = :id AND state = 'disabled'

-- name: disable_endpoint
UPDATE endpoint SET state = 'disabled', because = :because, version = version + 1 WHERE id = :id AND state = 'active'

-- name: rotate_secret
UPDATE endpoint SET old_secret = secret, old_secret_key = secret_key, old_until_ms = :old_until_ms, secret = secret + 1, secret_key = :secret_key,
                    version = version + 1
WHERE id = :id AND secret = :secret

-- name: reseal_endpoint
-- Replace what is encrypted under an older key.
UPDATE endpoint SET sealed = :sealed WHERE id = :id AND sealed = :before

-- name: failing_endpoint
SELECT failing_since_ms, version FROM endpoint WHERE id = :id AND state = 'active'

-- name: endpoint_delivered
UPDATE endpoint SET failing_since_ms = NULL, delivered_ms = :now WHERE id = :id

-- name: endpoint_failed
UPDATE endpoint SET failing_since_ms = :failing_since_ms WHERE id = :id

-- name: endpoint_idle
-- An endpoint for which nothing waits does not fail: days without a message are none in which messages failed.
UPDATE endpoint SET failing_since_ms = NULL
WHERE id = :id AND NOT EXISTS (SELECT 1 FROM notice WHERE notice.endpoint = endpoint.id AND notice.state = 'waiting')

-- name: hold_endpoint
-- Send nothing before, unless its owner has changed it meanwhile, or it waits for longer already.
UPDATE endpoint SET hold_until_ms = :hold_until_ms WHERE id = :id AND version = :version AND hold_until_ms < :hold_until_ms

-- name: remove_endpoint
DELETE FROM endpoint WHERE id = :id
