-- The stream of facts of each project: events that are committed, in one order.

-- name: unnumbered_facts
SELECT at_ms FROM event WHERE numbered = 0 ORDER BY at_ms, job, number LIMIT 1

-- name: number_facts
-- Continue the numbers of each project, in the order of time as far as that is known. Jobs that render pictures of others are no user's jobs: none of theirs.
-- An older server leaves out the state of the job: an event that ended it gets that which the job has since then.
UPDATE event SET numbered = 1, project = sequenced.project, fact = sequenced.fact, state = sequenced.state
FROM (SELECT found.job, found.number, CASE WHEN found.state = '' AND found.at_ms = job.ended_ms THEN job.state ELSE found.state END AS state,
             CASE WHEN job.kind <> 'sample' THEN job.project END AS project,
             CASE WHEN job.kind <> 'sample' THEN project.facts + ROW_NUMBER()
                 OVER (PARTITION BY job.project, job.kind = 'sample' ORDER BY found.at_ms, found.job, found.number) END AS fact
      FROM (SELECT job, number, at_ms, state FROM event WHERE numbered = 0 ORDER BY at_ms, job, number LIMIT :most) AS found
           JOIN job ON job.id = found.job JOIN project ON project.id = job.project) AS sequenced
WHERE event.job = sequenced.job AND event.number = sequenced.number

-- name: count_facts
-- Remember the last number of each project: it must not be given again where the job whose fact had it is deleted.
UPDATE project SET facts = newest.fact
FROM (SELECT known.id, MAX(event.fact) AS fact FROM project AS known JOIN event ON event.project = known.id AND event.fact > known.facts
      GROUP BY known.id) AS newest
WHERE project.id = newest.id

-- name: facts
SELECT event.fact AS number, event.at_ms, event.job, job.name AS job_name, event.kind, event.attempt, event.node, event.state, event.because
FROM event JOIN job ON job.id = event.job
WHERE event.project = :project AND event.fact > :after
ORDER BY event.fact LIMIT :most

-- name: last_fact
SELECT facts FROM project WHERE id = :project

-- name: count_queued
-- Count the jobs of a project that wait for a node.
SELECT COUNT(*) AS jobs FROM job WHERE project = :project AND state = 'queued' AND kind <> 'sample' AND fetching = 0
