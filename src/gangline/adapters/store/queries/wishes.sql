-- Wishes: what a job's owner asked of it while it runs.

-- name: add_wish
INSERT INTO wish (job, kind, asked_ms) VALUES (:job, :kind, :now)

-- name: wishes
SELECT kind, asked_ms, attempt, step, saved FROM wish WHERE job = :job ORDER BY asked_ms, kind

-- name: wishes_of_attempt
SELECT wish.job, wish.kind, wish.asked_ms, wish.attempt, wish.step, wish.saved
FROM attempt JOIN wish ON wish.job = attempt.job WHERE attempt.id = :attempt ORDER BY wish.asked_ms, wish.kind

-- name: tell_wish
-- Record which attempt hears of it, and where it is then: what it saves after that step, it saves because of it.
UPDATE wish SET attempt = :attempt, step = :step, saved = 0 WHERE job = :job AND kind = :kind

-- name: wish_saved
UPDATE wish SET saved = 1 WHERE job = :job AND kind = :kind

-- name: drop_wish
DELETE FROM wish WHERE job = :job AND kind = :kind

-- name: change_job
-- Change only the version: whoever changes the job concurrently reads it again.
UPDATE job SET version = version + 1 WHERE id = :id AND version = :version
