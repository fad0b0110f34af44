-- Images of checkpoints and results: which are due, which node renders them, and when they give way to training.

-- name: add_sampling
INSERT INTO sampling (job, every_steps, every_s, step, at_ms, here) VALUES (:job, :every_steps, :every_s, 0, :now, 0)

-- name: ensure_sampling
-- Of a job that shows itself only when its owner asks.
INSERT INTO sampling (job, step, at_ms, here) VALUES (:job, 0, :now, 0) ON CONFLICT DO NOTHING

-- name: sampled
-- Record that images of this step were requested.
UPDATE sampling SET step = :step, at_ms = :now, here = :here WHERE job = :job

-- name: to_render_here
-- Return a row if the training node was asked to render this step and no image has arrived. `here`: 2 if it is to be shown as it is now.
SELECT here FROM sampling WHERE job = :job AND step = :step AND here > 0
  AND NOT EXISTS (SELECT 1 FROM artifact WHERE artifact.job = :job AND artifact.path = :path)

-- name: add_sample
INSERT INTO sample (job, parent, checkpoint, step) VALUES (:job, :parent, :checkpoint, :step)

-- name: sample
SELECT parent, step, checkpoint FROM sample WHERE job = :job

-- name: open_samples
-- List the jobs that render images of a training job and have not ended, newest first.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb,
       sample.step
FROM sample JOIN job ON job.id = sample.job
WHERE sample.parent = :parent AND job.ended_ms IS NULL
ORDER BY sample.step DESC, job.submitted_ms DESC, job.id DESC

-- name: late_samples
-- List rendering jobs that no node has claimed in time; images of steps and of results have different limits.
SELECT job.id, job.project, job.state, job.fencing, job.version, job.attempts_failed, job.attempts_max, job.gpu_memory_gb,
       job.submitted_ms
FROM job JOIN sample ON sample.job = job.id
WHERE job.state = 'queued' AND job.kind = 'sample' AND job.submitted_ms < CASE WHEN sample.checkpoint IS NULL THEN CAST(:results_before AS BIGINT) ELSE :before END
ORDER BY job.queued_ms, job.id LIMIT 100

-- name: samples_of
-- List the jobs that render images of a training job, with their costs.
SELECT job.id, job.state, job.because, sample.checkpoint,
       CAST((SELECT COALESCE(SUM(micro_usd), 0) FROM ledger WHERE ledger.job = job.id) AS BIGINT) AS micro_usd,
       EXISTS (SELECT 1 FROM attempt WHERE attempt.job = job.id AND attempt.price_known = 0) AS unpriced
FROM sample JOIN job ON job.id = sample.job WHERE sample.parent = :job
ORDER BY sample.step, job.id

-- name: pictures
-- Count the images of a training job.
SELECT COUNT(*) AS pictures FROM artifact WHERE job = :job AND path LIKE 'samples/%seed-%.png'

-- name: last_training
-- Read when a node last ended an attempt at training.
SELECT attempt.ended_ms FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.node = :node AND attempt.state <> 'live' AND job.kind <> 'sample'
ORDER BY attempt.ended_ms DESC LIMIT 1

-- name: in_the_way
-- List rendering attempts on nodes where a waiting training job could run, which no free node has claimed meanwhile and which its budget
-- allows.
SELECT lease.attempt, lease.node, attempt.job
FROM job JOIN attempt ON attempt.job = job.id AND attempt.fencing = job.fencing
     JOIN lease ON lease.attempt = attempt.id JOIN node ON node.id = lease.node
WHERE job.state = 'running' AND job.kind = 'sample' AND lease.stop = '' AND node.state IN ('ready', 'on_trial')
  AND EXISTS (SELECT 1 FROM job AS waiting
              WHERE waiting.state = 'queued' AND waiting.kind <> 'sample' AND waiting.queued_ms < :before AND waiting.ready_ms < :before
              AND waiting.gpu_memory_gb <= node.gpu_memory_gb AND waiting.gpu IN ('', node.gpu)
              AND waiting.pool IN ('', node.pool) AND waiting.trust <= node.trust
              AND node.kinds LIKE '%,' || waiting.wanted || ',%'
              AND waiting.numerics IN ('', node.numerics) AND waiting.slots <= node.slots
              AND EXISTS (SELECT 1 FROM project WHERE project.id = waiting.project
                          AND (budget IS NULL OR node.price_known = 1 AND spent + reserved
                               + CAST(:reserve_h AS DOUBLE PRECISION) * node.price_micro_usd_per_hour * waiting.slots / node.slots
                               + CAST(:egress AS DOUBLE PRECISION) * (waiting.input_bytes + waiting.checkpoint_bytes) <= budget))
              AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = waiting.id AND ban.machine = node.machine))
ORDER BY lease.started_ms DESC, lease.attempt

-- name: pictures_of_job
-- List the sample pictures of a job and the LoRAs of its steps, by the names that trainers give them.
SELECT path, key, bytes, sha256, width, height, thumbnail_bytes, unusable FROM artifact
WHERE job = :job AND (path LIKE 'samples/%seed-%.png' OR path LIKE 'samples/step-%.safetensors')

-- name: picture_of_content
-- Find a sample picture of a job by its content; of several, one that has a thumbnail.
SELECT path, key, thumbnail, thumbnail_bytes, unusable FROM artifact
WHERE job = :job AND sha256 = :sha256 AND path LIKE 'samples/%seed-%.png' ORDER BY thumbnail_bytes DESC, path LIMIT 1

-- name: pictures_to_look_at
-- List sample pictures that have no thumbnail yet, the newest first, and those behind that failed before.
SELECT artifact.job, artifact.path, artifact.key, artifact.bytes, artifact.sha256, artifact.tries, artifact.attempt,
       attempt.job AS rendered_by, job.project
FROM artifact JOIN attempt ON attempt.id = artifact.attempt JOIN job ON job.id = artifact.job
WHERE artifact.thumbnail_bytes = 0 AND artifact.unusable = '' AND artifact.path LIKE 'samples/%seed-%.png'
ORDER BY artifact.tries, artifact.made_ms DESC, artifact.path LIMIT :limit

-- name: name_thumbnail
-- From here on no sweep deletes what has this key.
UPDATE artifact SET thumbnail = :key WHERE job = :job AND path = :path

-- name: record_picture
UPDATE artifact SET width = :width, height = :height, thumbnail_bytes = :thumbnail_bytes, unusable = :unusable, tries = :tries
WHERE job = :job AND path = :path

-- name: winner
SELECT step, checkpoint FROM winner WHERE job = :job

-- name: put_winner
INSERT INTO winner (job, step, checkpoint) VALUES (:job, :step, :checkpoint)
ON CONFLICT (job) DO UPDATE SET step = excluded.step, checkpoint = excluded.checkpoint

-- name: drop_winner
DELETE FROM winner WHERE job = :job

-- name: pictures_seen
-- Read what changes when the grid of a job's pictures does: a picture or its thumbnail has come, or the weights of a step stay or go.
SELECT COUNT(*) AS files, MAX(artifact.made_ms) AS newest_ms,
       SUM(CASE WHEN artifact.thumbnail_bytes > 0 OR artifact.unusable <> '' THEN 1 ELSE 0 END) AS looked_at,
       (SELECT COUNT(*) FROM checkpoint WHERE checkpoint.job = :job AND checkpoint.state = 'committed') AS checkpoints,
       (SELECT SUM(pinned) FROM checkpoint WHERE checkpoint.job = :job AND checkpoint.state = 'committed') AS pinned,
       (SELECT MAX(step) FROM checkpoint WHERE checkpoint.job = :job AND checkpoint.state = 'committed') AS kept_step,
       (SELECT step FROM winner WHERE winner.job = :job) AS winner
FROM artifact WHERE artifact.job = :job AND artifact.path LIKE 'samples/%'

-- name: last_pictures
-- Find the newest sample picture of each of these jobs that has a thumbnail, that of its first prompt.
SELECT listed.id AS job,
       (SELECT artifact.sha256 FROM artifact
        WHERE artifact.job = listed.id AND artifact.thumbnail_bytes > 0 AND artifact.path LIKE 'samples/%seed-%.png'
          AND artifact.path NOT LIKE '%-base-%'
        ORDER BY artifact.made_ms DESC, artifact.path LIMIT 1) AS sha256
FROM {listed_ids} JOIN job ON job.id = listed.id WHERE job.project = :project

-- name: pictures_of_jobs
-- List the sample pictures of each of these jobs that have a path like this.
SELECT artifact.job, artifact.path, artifact.sha256, artifact.thumbnail_bytes, artifact.unusable FROM {listed_ids}
    JOIN artifact ON artifact.job = listed.id WHERE artifact.path LIKE :path
