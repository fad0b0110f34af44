"""Expire the checkpoints, logs and pictures of steps of ended jobs by age. Results stay.

The rows are deleted here, once, and an event says so; the sweep of attempts deletes the bytes (`service/content/sweep.py`). An ended job
never resumes: a retry is a new job from the same spec, so nobody reads what expired.
"""

from itertools import groupby

from gangline.core.runs.contract import pictures_folder
from gangline.core.runs.retention import PREVIEWS, before_ms, checkpoints_s, why_deleted
from gangline.core.words import counted
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import event
from gangline.service.deployment import Deployment
from gangline.service.money import bill

AT_ONCE = 200
"""The number of rows that one call deletes at most; the next call continues."""


def expire_checkpoints(deployment: Deployment, now_ms: int) -> None:
    """Expire checkpoints, those of one job in one transaction.

    If one was pinned concurrently, it fails, and the next call expires the others.
    """
    rows = deployment.store.load(
        "checkpoints_to_expire",
        succeeded_before=before_ms(now_ms, checkpoints_s("succeeded", deployment.policy)),
        others_before=before_ms(now_ms, checkpoints_s("failed", deployment.policy)),
        limit=AT_ONCE,
    )
    for job, found in groupby(rows, lambda row: row["job"]):
        _expire(deployment, job, list(found), now_ms)


def _expire(deployment: Deployment, job: str, checkpoints: list[Row], now_ms: int) -> None:
    state = checkpoints[0]["state"]
    were = "was" if len(checkpoints) == 1 else "were"
    told = f"{counted(len(checkpoints), 'checkpoint')} {were} deleted"
    because = why_deleted(told, state, checkpoints_s(state, deployment.policy))
    attempts = sorted({row["attempt"] for row in checkpoints})
    deployment.store.apply(
        *(write("sweep_attempt_again", attempt=attempt) for attempt in attempts),
        *(guard("prune_checkpoint", id=row["id"], heirs=row["heirs"], because=because) for row in checkpoints),
        *(line for row in checkpoints for line in bill.bill_storage(deployment, row, now_ms)),
        event(job, "cleaned up", because, now_ms),
    )


def expire_logs(deployment: Deployment, now_ms: int) -> None:
    before = before_ms(now_ms, deployment.policy.logs_s)
    for row in deployment.store.load("jobs_with_old_logs", before=before, limit=AT_ONCE):
        because = why_deleted("the log was deleted", row["state"], deployment.policy.logs_s)
        attempts = sorted(found["id"] for found in deployment.store.load("attempts", job=row["id"]))
        deployment.store.apply(
            *(write("sweep_attempt_again", attempt=attempt) for attempt in attempts if row["chunks"]),
            guard("forget_log", id=row["id"]),
            *(write("drop_log_chunks", attempt=attempt) for attempt in attempts),
            *([event(row["id"], "cleaned up", because, now_ms)] if row["chunks"] else []),
        )


def expire_previews(deployment: Deployment, now_ms: int) -> None:
    """Expire pictures of steps, with their LoRAs. Pictures of a result stay with it, and those of the step that its owner chose."""
    before = before_ms(now_ms, deployment.policy.previews_s)
    for row in deployment.store.load("jobs_with_old_previews", before=before, limit=AT_ONCE):
        job, state = row["id"], row["state"]
        chosen = {pictures_folder(each["step"]) for each in deployment.store.load("winner", job=job)}
        found = [
            each
            for each in deployment.store.load("kept_artifacts", job=job)
            if each["path"].startswith(PREVIEWS) and each["path"].rpartition("/")[0] not in chosen
        ]
        because = why_deleted("the pictures of its steps were deleted", state, deployment.policy.previews_s)
        attempts = sorted({each["attempt"] for each in found})
        deployment.store.apply(
            *(write("sweep_attempt_again", attempt=attempt) for attempt in attempts),
            guard("forget_previews", id=job, version=row["version"]),
            *(write("drop_artifact", job=job, path=each["path"]) for each in found),
            *(line for each in found for line in bill.storage_since(deployment, each, each["since_ms"], now_ms)),
            *([event(job, "cleaned up", because, now_ms)] if found else []),
        )
