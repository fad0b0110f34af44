-- Metrics of trainers, and how far each tracker has them.

-- name: add_metric
-- Add a batch that continues after the last one. Any other batch was sent twice or came too late.
INSERT INTO metric (attempt, step, at_ms, points)
SELECT CAST(:attempt AS TEXT), CAST(:step AS BIGINT), CAST(:now AS BIGINT), CAST(:points AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM metric AS newer WHERE newer.attempt = :attempt AND newer.step >= :step)

-- name: metrics
-- List the metrics of all attempts of a job in order; an attempt without metrics has a row with the step from which it resumed.
SELECT attempt.fencing, attempt.from_step, metric.at_ms, metric.points
FROM attempt LEFT JOIN metric ON metric.attempt = attempt.id
WHERE attempt.job = :job ORDER BY attempt.fencing, metric.step

-- name: curves
-- List some batches of the metrics of each of these jobs, the last one among them: at most `:most` and one.
SELECT picked.job, picked.fencing, picked.from_step, metric.at_ms, metric.points
FROM (SELECT attempt.job, attempt.fencing, attempt.from_step, metric.attempt, metric.step,
             ROW_NUMBER() OVER (PARTITION BY attempt.job ORDER BY attempt.fencing, metric.step) AS place,
             COUNT(*) OVER (PARTITION BY attempt.job) AS batches
      FROM {listed_ids} JOIN job ON job.id = listed.id JOIN attempt ON attempt.job = job.id
           JOIN metric ON metric.attempt = attempt.id
      WHERE job.project = :project) AS picked
     JOIN metric ON metric.attempt = picked.attempt AND metric.step = picked.step
WHERE picked.place = picked.batches OR picked.place % ((picked.batches + :most - 1) / :most) = 0
ORDER BY picked.job, picked.fencing, metric.step

-- name: begin_tracking
INSERT INTO tracked (job, tracker, step, ended, because) VALUES (:job, :tracker, 0, 0, '')
ON CONFLICT (job, tracker) DO NOTHING

-- name: to_track
-- List jobs that a tracker follows, each with its newest committed step.
SELECT tracked.job, tracked.step, tracked.because, job.state,
       (SELECT MAX(checkpoint.step) FROM checkpoint WHERE checkpoint.job = job.id AND checkpoint.state = 'committed') AS committed
FROM tracked JOIN job ON job.id = tracked.job
WHERE tracked.tracker = :tracker AND tracked.ended = 0
ORDER BY tracked.job

-- name: trackers_of
SELECT tracker, step, ended, because FROM tracked WHERE job = :job ORDER BY tracker

-- name: pictures_to_track
-- List images of a job that a tracker does not have yet.
SELECT artifact.path, artifact.key FROM artifact
WHERE artifact.job = :job AND artifact.path LIKE 'samples/%' AND artifact.bytes <= :bytes_max
  AND (artifact.path LIKE '%.png' OR artifact.path LIKE '%.jpg' OR artifact.path LIKE '%.jpeg' OR artifact.path LIKE '%.webp')
  AND NOT EXISTS (SELECT 1 FROM tracked_picture AS shown
                  WHERE shown.job = artifact.job AND shown.tracker = :tracker AND shown.path = artifact.path)
ORDER BY artifact.path LIMIT :limit

-- name: tracked
-- Record the step up to which the tracker has the metrics, only if no other server has reported to it since.
UPDATE tracked SET step = :step, because = '' WHERE job = :job AND tracker = :tracker AND step = :seen

-- name: picture_tracked
INSERT INTO tracked_picture (job, tracker, path) VALUES (:job, :tracker, :path) ON CONFLICT (job, tracker, path) DO NOTHING

-- name: track_again
-- Images arrived, perhaps after the end of the job was reported to the tracker.
UPDATE tracked SET ended = 0 WHERE job = :job

-- name: end_tracking
UPDATE tracked SET ended = 1, because = '' WHERE job = :job AND tracker = :tracker

-- name: say_why_untracked
UPDATE tracked SET because = :because WHERE job = :job AND tracker = :tracker
