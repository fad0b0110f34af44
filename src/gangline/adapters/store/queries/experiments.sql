-- Experiments and their jobs. A held job has `fetching = 2`.

-- name: add_experiment
INSERT INTO experiment (id, project, name, owner, settings, measure, at_once, budget, halving, state, because, price, version, made_ms)
VALUES (:id, :project, :name, :owner, :settings, :measure, :at_once, :budget, :halving, 'running', :because, :price, 1, :now)

-- name: add_experiment_file
INSERT INTO experiment_file (project, sha256, experiment) VALUES (:project, :sha256, :experiment)

-- name: add_experiment_run
INSERT INTO experiment_run (job, experiment, number, settings, seed, prepares)
VALUES (:job, :experiment, :number, :settings, :seed, :prepares)

-- name: experiments
-- Read these experiments, in their order.
SELECT experiment.id, experiment.project, experiment.name, experiment.owner, credential.name AS owner_name, experiment.settings,
       experiment.measure, experiment.at_once, experiment.budget, experiment.halving, experiment.state, experiment.because, experiment.best,
       experiment.best_as, experiment.seen, experiment.price, experiment.version, experiment.made_ms, experiment.ended_ms
FROM {listed_ids} JOIN experiment ON experiment.id = listed.id LEFT JOIN credential ON credential.id = experiment.owner
ORDER BY listed.place

-- name: experiments_page
-- List ids of a project's experiments after a position, newest first.
SELECT id, made_ms FROM experiment
WHERE project = :project AND (made_ms, id) < (:before_ms, :before_id) ORDER BY made_ms DESC, id DESC LIMIT :limit

-- name: sums_of_experiments
-- Sum up the jobs of these experiments by their state, as `runs_of_experiments` reads them one by one. Where some have a live attempt, their
-- costs and steps are those of the ledger and of the attempt alone.
SELECT found.experiment, found.state, found.held, COUNT(*) AS jobs, CAST(SUM(found.live) AS BIGINT) AS live, CAST(SUM(found.micro_usd) AS BIGINT) AS micro_usd,
       CAST(SUM(CASE WHEN found.fencing > 0 THEN 1 ELSE 0 END) AS BIGINT) AS tried,
       CAST(SUM(CASE WHEN found.fencing > 0 AND found.unpriced > 0 THEN 1 ELSE 0 END) AS BIGINT) AS unpriced,
       CAST(SUM(CASE WHEN found.step > 0 AND found.unpriced = 0 THEN found.micro_usd ELSE 0 END) AS BIGINT) AS priced_micro_usd,
       CAST(SUM(CASE WHEN found.step > 0 AND found.unpriced = 0 THEN found.step ELSE 0 END) AS BIGINT) AS priced_steps,
       CAST(SUM(found.dropped) AS BIGINT) AS dropped, CAST(SUM(CASE WHEN found.dropped = 1 THEN found.steps - found.step ELSE 0 END) AS BIGINT) AS dropped_steps
FROM (SELECT each_run.*,
             CASE WHEN each_run.state = 'succeeded' THEN each_run.end_step
                  WHEN each_run.last_step > each_run.saved_step THEN each_run.last_step ELSE each_run.saved_step END AS step
      FROM (SELECT run.experiment, run.dropped, job.state, job.fencing, job.steps,
                   CASE WHEN job.state = 'queued' AND job.fetching = 2 THEN 1 ELSE 0 END AS held,
                   CASE WHEN last.state = 'live' THEN 1 ELSE 0 END AS live,
                   CASE WHEN job.ended_step > 0 THEN job.ended_step ELSE job.steps END AS end_step, COALESCE(last.step, 0) AS last_step,
                   COALESCE((SELECT MAX(checkpoint.step) FROM checkpoint WHERE checkpoint.job = job.id AND checkpoint.state = 'committed'),
                            CASE WHEN job.ended_ms IS NOT NULL
                                 THEN (SELECT MAX(attempt.committed_step) FROM attempt WHERE attempt.job = job.id) END, 0) AS saved_step,
                   COALESCE((SELECT SUM(CASE WHEN attempt.price_known = 0 THEN 1 ELSE 0 END) FROM attempt WHERE attempt.job = job.id), 0)
                       AS unpriced,
                   COALESCE((SELECT SUM(ledger.micro_usd) FROM attempt JOIN ledger ON ledger.job = attempt.job AND ledger.attempt = attempt.id
                             WHERE attempt.job = job.id), 0) AS micro_usd
            FROM {listed_ids} JOIN experiment_run AS run ON run.experiment = listed.id JOIN job ON job.id = run.job
                 LEFT JOIN attempt AS last ON last.job = job.id AND last.fencing = job.fencing) AS each_run) AS found
GROUP BY found.experiment, found.state, found.held ORDER BY found.experiment, found.state, found.held

-- name: runs_there
-- Find out which of these jobs are still jobs of an experiment.
SELECT run.job FROM {listed_ids} JOIN experiment_run AS run ON run.job = listed.id

-- name: open_experiments
-- An experiment of which no job is queued or runs, and nothing has changed since a look that found nothing to do, needs none.
SELECT id FROM experiment
WHERE ended_ms IS NULL
  AND (seen <> (SELECT COALESCE(SUM(job.version), 0) FROM experiment_run AS run JOIN job ON job.id = run.job
                WHERE run.experiment = experiment.id)
       OR EXISTS (SELECT 1 FROM experiment_run AS run JOIN job ON job.id = run.job
                  WHERE run.experiment = experiment.id AND job.state IN ('queued', 'running')))
ORDER BY made_ms, id

-- name: see_experiment
UPDATE experiment SET seen = :seen WHERE id = :id

-- name: experiments_moved
-- Find open experiments of which a job has ended since. The log of a job that has just ended is kept, which names the index.
SELECT DISTINCT run.experiment FROM job JOIN experiment_run AS run ON run.job = job.id
     JOIN experiment ON experiment.id = run.experiment
WHERE job.log_kept = 1 AND job.ended_ms >= :since AND experiment.ended_ms IS NULL ORDER BY run.experiment

-- name: runs_of_experiments
-- Read what every decision about these experiments needs of their jobs. A live attempt has the values of its lease.
SELECT run.experiment, run.job, run.number, run.settings, run.seed, run.prepares, run.rung, run.dropped, run.because, run.waits, run.measured, run.measured_ms,
       job.name, job.state, job.fetching, job.version, job.fencing, job.attempts_failed, job.attempts_max, job.gpu_memory_gb, job.project,
       job.steps, job.ended_step, job.ended_ms,
       last.id AS attempt, last.state AS last_state, last.started_ms, last.price_micro_usd_per_hour, lease.stop_kind,
       COALESCE(lease.step, last.step, 0) AS step,
       (SELECT MAX(checkpoint.step) FROM checkpoint WHERE checkpoint.job = job.id AND checkpoint.state = 'committed') AS kept_step,
       tried.committed_step, tried.training_ms, tried.trained, tried.unpriced, tried.micro_usd
FROM {listed_ids} JOIN experiment_run AS run ON run.experiment = listed.id JOIN job ON job.id = run.job
     LEFT JOIN attempt AS last ON last.job = job.id AND last.fencing = job.fencing
     LEFT JOIN lease ON lease.attempt = last.id AND lease.rank = 0
     LEFT JOIN (SELECT attempt.job, COUNT(COALESCE(held.training_ms, attempt.training_ms)) AS trained,
                       CAST(SUM(COALESCE(attempt.ended_ms, CAST(:now AS BIGINT)) - COALESCE(held.training_ms, attempt.training_ms)) AS BIGINT)
                           AS training_ms,
                       SUM(CASE WHEN attempt.price_known = 0 THEN 1 ELSE 0 END) AS unpriced, MAX(attempt.committed_step) AS committed_step,
                       CAST(SUM((SELECT COALESCE(SUM(ledger.micro_usd), 0) FROM ledger
                                 WHERE ledger.job = attempt.job AND ledger.attempt = attempt.id)) AS BIGINT) AS micro_usd
                FROM {listed_ids} JOIN experiment_run AS mine ON mine.experiment = listed.id JOIN attempt ON attempt.job = mine.job
                     LEFT JOIN lease AS held ON held.attempt = attempt.id AND held.rank = 0
                GROUP BY attempt.job) AS tried ON tried.job = run.job
ORDER BY listed.place, run.number

-- name: runs_to_measure
-- List jobs whose last attempt has metrics that are newer than what was summed up of them, those that have ended first. Such a one is summed
-- up once more, as of its end, and never again. While it runs, it waits for a part of the time that its attempt took up to the last sum.
SELECT found.job, found.ended_ms, COALESCE(found.ended_ms, found.newest_ms) AS at_ms
FROM (SELECT run.job, run.measured_ms, job.ended_ms,
             CASE WHEN last.state = 'live' THEN (run.measured_ms - last.started_ms) / :parts ELSE 0 END AS wait_ms,
             (SELECT metric.at_ms FROM metric WHERE metric.attempt = last.id ORDER BY metric.step DESC LIMIT 1) AS newest_ms
      FROM experiment_run AS run JOIN job ON job.id = run.job
           JOIN attempt AS last ON last.job = job.id AND last.fencing = job.fencing
      WHERE run.experiment = :experiment AND (job.ended_ms IS NULL OR run.measured_ms < job.ended_ms)) AS found
WHERE found.ended_ms IS NOT NULL OR (found.newest_ms > found.measured_ms AND found.measured_ms + found.wait_ms < :now)
ORDER BY CASE WHEN found.ended_ms IS NULL THEN 1 ELSE 0 END, found.measured_ms, found.job LIMIT :limit

-- name: set_measured
-- Of two servers, the one that has read more.
UPDATE experiment_run SET measured = :measured, measured_ms = :at_ms WHERE job = :job AND measured_ms < :at_ms

-- name: step_experiment
-- Only if the experiment is as it was read: of two servers, one carries a decision about several jobs out.
UPDATE experiment SET version = version + 1 WHERE id = :id AND version = :version

-- name: say_why_experiment
-- That its owner has stopped it, and how it ended, stays.
UPDATE experiment SET because = :because WHERE id = :id AND state = 'running'

-- name: change_experiment
UPDATE experiment SET at_once = :at_once, budget = :budget, seen = -1, version = version + 1
WHERE id = :id AND version = :version

-- name: stop_experiment
-- An experiment that has ended stays as it is.
UPDATE experiment SET state = 'stopped', because = :because, seen = -1, version = version + 1 WHERE id = :id AND state = 'running'

-- name: end_experiment
-- It ends once, and with the best job as it is then.
UPDATE experiment SET state = 'ended', because = :because, best = :best, best_as = :best_as, ended_ms = :now, version = version + 1
WHERE id = :id AND version = :version

-- name: release_job
-- Let a held job wait for a node, only if it is as it was read.
UPDATE job SET fetching = 0, because = :because, ready_ms = :now, queued_ms = :now, version = version + 1
WHERE id = :id AND version = :version

-- name: hold_job
-- A job that was paused waits for its experiment again.
UPDATE job SET fetching = 2 WHERE id = :id

-- name: wait_at
UPDATE experiment_run SET waits = :waits WHERE job = :job

-- name: waits_of_job
-- Find out whether its experiment has paused a job.
SELECT waits FROM experiment_run WHERE job = :job AND waits <> ''

-- name: advance_run
-- It was among the best of its rung; it was paused there, and is not any more.
UPDATE experiment_run SET rung = rung + 1, waits = '' WHERE job = :job

-- name: drop_run
UPDATE experiment_run SET dropped = 1, because = :because WHERE job = :job

-- name: experiments_of_jobs
-- Find the experiment of each of these jobs, and what it waits for.
SELECT run.job, experiment.id, experiment.name, experiment.because, experiment.at_once, experiment.budget FROM {listed_ids}
    JOIN experiment_run AS run ON run.job = listed.id JOIN experiment ON experiment.id = run.experiment

-- name: lock_experiment
-- Of two deletions at once the second waits here, and then sees which jobs are left.
UPDATE experiment SET version = version + 1 WHERE id = :id

-- name: remove_experiment_run
DELETE FROM experiment_run WHERE job = :job

-- name: runs_beside
-- Find the experiment of a job, and whether it has other jobs.
SELECT mine.experiment, experiment.name, experiment.ended_ms,
       (SELECT COUNT(*) FROM experiment_run AS other WHERE other.experiment = mine.experiment AND other.job <> mine.job) AS others
FROM experiment_run AS mine JOIN experiment ON experiment.id = mine.experiment WHERE mine.job = :job

-- name: blobs_of_experiment
-- List an experiment's files, each with the number of jobs, of other experiments and of data sets' versions that use it.
SELECT blob.sha256, blob.bytes, blob.used_ms,
       (SELECT COUNT(*) FROM job_file AS other WHERE other.project = blob.project AND other.sha256 = blob.sha256)
       + (SELECT COUNT(*) FROM experiment_file AS other
          WHERE other.project = blob.project AND other.sha256 = blob.sha256 AND other.experiment <> experiment_file.experiment)
       + (SELECT COUNT(*) FROM dataset_file WHERE dataset_file.project = blob.project AND dataset_file.sha256 = blob.sha256) AS others
FROM experiment_file JOIN blob ON blob.project = experiment_file.project AND blob.sha256 = experiment_file.sha256
WHERE experiment_file.experiment = :experiment AND blob.going = '' ORDER BY blob.sha256

-- name: remove_experiment_files
-- Only once no job of the experiment is left: another one may have its first attempt still.
DELETE FROM experiment_file
WHERE experiment = :experiment AND NOT EXISTS (SELECT 1 FROM experiment_run AS run WHERE run.experiment = experiment_file.experiment)

-- name: remove_experiment
DELETE FROM experiment
WHERE id = :experiment AND NOT EXISTS (SELECT 1 FROM experiment_run AS run WHERE run.experiment = experiment.id)
