-- Lists of jobs, newest first: the statements of each index that may answer one, and what a list shows of each job.

-- name: jobs_by_time
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND {page_of_jobs}

-- name: edge_by_time
-- Read the position of the job after `passed` others; no row if there are fewer.
SELECT id, submitted_ms FROM job
WHERE project = :project AND {edge_of_jobs}

-- name: jobs_by_state
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND job.state = :of AND {page_of_jobs}

-- name: edge_by_state
SELECT id, submitted_ms FROM job
WHERE project = :project AND state = :of AND {edge_of_jobs}

-- name: count_of_state
-- Count the jobs of a state, up to a limit: there may be very many that have ended.
SELECT count(*) AS jobs FROM (
  SELECT 1 FROM job WHERE project = :project AND state = :of AND kind <> 'sample' AND removed_ms IS NULL LIMIT :limit
) AS found

-- name: jobs_by_kind
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND job.kind = :of AND {page_of_jobs}

-- name: edge_by_kind
SELECT id, submitted_ms FROM job
WHERE project = :project AND kind = :of AND {edge_of_jobs}

-- name: jobs_by_owner
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND job.owner = :of AND {page_of_jobs}

-- name: edge_by_owner
SELECT id, submitted_ms FROM job
WHERE project = :project AND owner = :of AND {edge_of_jobs}

-- name: jobs_by_name
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND job.name = :of AND {page_of_jobs}

-- name: edge_by_name
SELECT id, submitted_ms FROM job
WHERE project = :project AND name = :of AND {edge_of_jobs}

-- name: jobs_by_end_of_id
-- By the last four characters, and then by all: there are few, so they are sorted, and no index of the time is taken for them.
SELECT job.id, job.submitted_ms FROM job
WHERE job.project = :project AND substr(job.id, length(job.id) - 3) = :of AND {page_of_few_jobs}

-- name: jobs_by_beginning_of_id
-- `of_end` is after every id that begins so; there are few, as `many_begin_so` says, and no index of the project is taken.
SELECT job.id, job.submitted_ms FROM job
WHERE job.project || '' = :project AND job.id >= :of AND job.id <= :of_end AND {page_of_few_jobs}

-- name: many_begin_so
-- Read whether more ids than `passed` begin so.
SELECT id FROM job WHERE id >= :of AND id <= :of_end ORDER BY id LIMIT 1 OFFSET :passed

-- name: jobs_by_label
SELECT labelled.job AS id, labelled.submitted_ms FROM label AS labelled JOIN job ON job.id = labelled.job
WHERE labelled.project = :project AND labelled.key = :key AND labelled.value = :of AND {page_of_labelled}

-- name: edge_by_label
SELECT job AS id, submitted_ms FROM label
WHERE project = :project AND key = :key AND value = :of
  AND (submitted_ms, job) < (:before_ms, :before_id) AND (submitted_ms, job) >= (:from_ms, :from_id)
ORDER BY submitted_ms DESC, job DESC LIMIT 1 OFFSET :passed

-- name: jobs_by_label_key
SELECT labelled.job AS id, labelled.submitted_ms FROM label AS labelled JOIN job ON job.id = labelled.job
WHERE labelled.project = :project AND labelled.key = :key AND {page_of_labelled}

-- name: edge_by_label_key
SELECT job AS id, submitted_ms FROM label
WHERE project = :project AND key = :key
  AND (submitted_ms, job) < (:before_ms, :before_id) AND (submitted_ms, job) >= (:from_ms, :from_id)
ORDER BY submitted_ms DESC, job DESC LIMIT 1 OFFSET :passed

-- name: job_summaries
-- Read what a list shows of each of these jobs, in their order. A live attempt has the values of its lease.
SELECT job.id, job.project, job.name, job.kind, job.wanted, job.spec_hash, job.state, job.because, job.steps, job.priority, job.base,
       job.fencing, job.attempts_failed, job.version, job.ready_ms, job.gpu, job.gpu_memory_gb, job.pool, job.trust, job.numerics,
       job.slots, job.input_bytes + job.checkpoint_bytes AS download_bytes, job.begins_from, job.fetching, job.submitted_ms,
       job.queued_ms, job.ended_ms, job.ended_step, job.owner, credential.name AS owner_name,
       last.state AS last_state, last.price_micro_usd_per_hour, last.started_ms, node.name AS node_name, lease.phase, lease.stop_kind, lease.beat_ms,
       COALESCE(lease.step, last.step, 0) AS step, COALESCE(lease.loss, last.loss) AS loss,
       COALESCE(lease.seconds_per_step, last.seconds_per_step) AS seconds_per_step,
       (SELECT COUNT(*) FROM attempt WHERE attempt.job = job.id) AS attempts,
       (SELECT COUNT(*) FROM attempt WHERE attempt.job = job.id AND {was_interrupted}) AS interruptions,
       (SELECT COUNT(*) FROM attempt WHERE attempt.job = job.id AND attempt.price_known = 0) AS unpriced,
       (SELECT MAX(committed_step) FROM attempt WHERE attempt.job = job.id) AS committed_step,
       (SELECT MAX(checkpoint.step) FROM checkpoint WHERE checkpoint.job = job.id AND checkpoint.state = 'committed') AS kept_step,
       CAST((SELECT COALESCE(SUM(ledger.micro_usd), 0) FROM attempt JOIN ledger ON ledger.job = attempt.job AND ledger.attempt = attempt.id
             WHERE attempt.job = job.id) AS BIGINT) AS micro_usd
FROM {listed_ids}
     JOIN job ON job.id = listed.id
     LEFT JOIN attempt AS last ON last.job = job.id AND last.fencing = job.fencing
     LEFT JOIN lease ON lease.attempt = last.id AND lease.rank = 0
     LEFT JOIN node ON node.id = last.node
     LEFT JOIN credential ON credential.id = job.owner
ORDER BY listed.place

-- name: searched_jobs
-- Read what a search compares of each of these jobs, in their order.
SELECT job.id, job.name, job.base, job.spec FROM {listed_ids}
    JOIN job ON job.id = listed.id ORDER BY listed.place

-- name: labels_of_jobs
SELECT label.job, label.key, label.value FROM {listed_ids}
    JOIN label ON label.job = listed.id ORDER BY label.job, label.key

-- name: bans_of_jobs
SELECT ban.job, ban.machine FROM {listed_ids}
    JOIN ban ON ban.job = listed.id

-- name: stored_of_jobs
-- List what jobs store in the object store, and since when: each checkpoint and each result.
SELECT checkpoint.job, checkpoint.bytes, checkpoint.committed_ms AS since_ms FROM {listed_ids}
    JOIN checkpoint ON checkpoint.job = listed.id WHERE checkpoint.state = 'committed'
UNION ALL
SELECT artifact.job, artifact.bytes, COALESCE(artifact.made_ms, job.ended_ms) AS since_ms FROM {listed_ids}
    JOIN artifact ON artifact.job = listed.id JOIN job ON job.id = listed.id

-- name: owners_called
-- List the keys of this id or this name that may own jobs of the project.
SELECT id FROM credential
WHERE (id = :owner OR name = :owner) AND role NOT IN ('join', 'node') AND (project = :project OR project IS NULL)
ORDER BY made_ms, id LIMIT :limit

-- name: put_label
INSERT INTO label (job, key, value, project, submitted_ms)
SELECT job.id, :key, :value, job.project, job.submitted_ms FROM job WHERE job.id = :job
ON CONFLICT (job, key) DO UPDATE SET value = excluded.value

-- name: drop_label
DELETE FROM label WHERE job = :job AND key = :key

-- name: labels_left
-- List jobs that were removed since then and still have labels: a server that knows none leaves them.
SELECT DISTINCT label.job FROM job JOIN label ON label.job = job.id WHERE job.removed_ms >= :since

-- name: drop_labels
DELETE FROM label WHERE job = :job

-- part: page_of_jobs
-- `from` and `before` bound a page by time and id.
job.kind <> 'sample' AND job.removed_ms IS NULL
  AND (job.submitted_ms, job.id) < (:before_ms, :before_id) AND (job.submitted_ms, job.id) >= (:from_ms, :from_id)
  AND {filters_of_jobs}
ORDER BY job.submitted_ms DESC, job.id DESC LIMIT :limit

-- part: page_of_few_jobs
-- The same of jobs that are sorted, so that no index of the time is taken for them.
job.kind <> 'sample' AND job.removed_ms IS NULL
  AND (job.submitted_ms + 0, job.id) < (:before_ms, :before_id) AND (job.submitted_ms + 0, job.id) >= (:from_ms, :from_id)
  AND {filters_of_jobs}
ORDER BY job.submitted_ms + 0 DESC, job.id DESC LIMIT :limit

-- part: page_of_labelled
-- The same by the index of labels, which has the time of their jobs.
job.kind <> 'sample' AND job.removed_ms IS NULL
  AND (labelled.submitted_ms, labelled.job) < (:before_ms, :before_id) AND (labelled.submitted_ms, labelled.job) >= (:from_ms, :from_id)
  AND {filters_of_jobs}
ORDER BY labelled.submitted_ms DESC, labelled.job DESC LIMIT :limit

-- part: edge_of_jobs
kind <> 'sample' AND removed_ms IS NULL
  AND (submitted_ms, id) < (:before_ms, :before_id) AND (submitted_ms, id) >= (:from_ms, :from_id)
ORDER BY submitted_ms DESC, id DESC LIMIT 1 OFFSET :passed

-- part: filters_of_jobs
-- A filter that is '' or 0 lets every job through; `break` separates the values of one that has several. Within CASE they tell PostgreSQL nothing of
-- how few jobs are left, for which it would rather sort than read in order.
CASE WHEN :filters = 0 THEN TRUE ELSE
    (:states = '' OR replace(:states, :break || job.state || :break, '') <> :states)
    AND (:kind = '' OR job.kind = :kind)
    AND (:owners = '' OR replace(:owners, :break || job.owner || :break, '') <> :owners)
    AND (:named = '' OR job.name = :named OR substr(job.id, 1, length(:named)) = :named
         OR substr(job.id, 5, length(:named)) = :named OR substr(job.id, length(job.id) - length(:named) + 1) = :named)
    AND (:labelled = 0 OR :labelled = (SELECT COUNT(*) FROM label WHERE label.job = job.id
                                       AND (replace(:labels, :break || label.key || '=' || label.value || :break, '') <> :labels
                                            OR replace(:labels, :break || label.key || :break, '') <> :labels))) END

-- part: listed_ids
-- The ids of a list, in its order: `ids` has the id of each, padded to `width` characters.
(
    WITH RECURSIVE numbered (place, id) AS (
        SELECT 0, rtrim(substr(:ids, 1, :width))
        UNION ALL
        SELECT place + 1, rtrim(substr(:ids, (place + 1) * :width + 1, :width)) FROM numbered WHERE place + 1 < :count)
    SELECT place, id FROM numbered) AS listed
