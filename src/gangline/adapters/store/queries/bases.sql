-- Names of bases in a project, and mirrors of those on the hub.

-- name: name_base
-- Name a base. A name that is taken is kept: the first request wins.
INSERT INTO base (project, name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms)
VALUES (:project, :name, :base, :base_id, :vae, :vae_id, :family, :prediction_type, :licence, :because, :bytes, :now)
ON CONFLICT (project, name) DO NOTHING

-- name: bases
SELECT name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms FROM base
WHERE project = :project ORDER BY name

-- name: base
SELECT name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms FROM base
WHERE project = :project AND name = :name

-- name: forget_base
DELETE FROM base WHERE project = :project AND name = :name

-- name: begin_mirror
-- Start a mirror, or retry one that failed.
INSERT INTO mirror (project, base, role, repo, revision, state, because, files, bytes, done_files, done_bytes, begun, parts, server,
                    turn_ends_ms, tries)
VALUES (:project, :base, :role, :repo, :revision, 'fetching', '', :files, :bytes, 0, 0, '', '[]', '', 0, 0)
ON CONFLICT (project, base, role) DO UPDATE SET state = 'fetching', because = '', tries = 0, turn_ends_ms = 0
WHERE mirror.state = 'failed'

-- name: mirrors
SELECT project, base, role, repo, revision, state, because, files, bytes, done_files, done_bytes, begun, parts, tries FROM mirror
WHERE project = :project AND base = :base

-- name: mirrors_to_make
-- List mirrors whose base still has a name and that are not in another server's turn.
SELECT project, base, role FROM mirror
WHERE state = 'fetching' AND (turn_ends_ms < :now OR server = :server)
  AND EXISTS (SELECT 1 FROM base AS named WHERE named.project = mirror.project AND mirror.base IN (named.base_id, named.vae_id))
ORDER BY turn_ends_ms, project, base, role LIMIT 100

-- name: take_mirror
-- Take the turn: one server at a time copies a mirror.
UPDATE mirror SET server = :server, turn_ends_ms = :turn_ends_ms
WHERE project = :project AND base = :base AND role = :role AND (turn_ends_ms < :now OR server = :server)

-- name: advance_mirror
-- Record progress, only by the server whose turn it is.
UPDATE mirror SET files = :files, done_files = :done_files, done_bytes = :done_bytes, begun = :begun, parts = :parts,
       turn_ends_ms = :turn_ends_ms, because = '', tries = 0
WHERE project = :project AND base = :base AND role = :role AND server = :server

-- name: end_mirror
-- End the turn, only by the server whose turn it is; the next one may not start before `:not_before_ms`.
UPDATE mirror SET state = :state, because = :because, tries = :tries, turn_ends_ms = :not_before_ms, server = ''
WHERE project = :project AND base = :base AND role = :role AND server = :server
