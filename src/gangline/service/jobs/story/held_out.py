"""Read what training did to the loss of held-out photos from the report of a result."""

import json

from gangline.core.errors import NotFound, Unreachable
from gangline.core.jobs.story.held_out import REPORT_BYTES_MAX, HeldOutChange, held_out_change
from gangline.core.runs.contract import REPORT
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


def reported_held_out(deployment: Deployment, job: Row) -> HeldOutChange | None:
    """Return it for a job of which the row is given; None if it has no result, held out no photo, or the report cannot be read now. A
    report is read once: its key never gets other bytes."""
    if job["state"] != "succeeded" or not _holds_out(json.loads(job["spec"])):
        return None
    key = _key_of_report(deployment, job["id"])
    if key is None:
        return None
    try:
        return deployment.recent.report(
            key, lambda: held_out_change(deployment.objects.read(key).decode(errors="replace"))
        )
    except (NotFound, Unreachable):
        return None


def read_report(deployment: Deployment, job: str) -> str | None:
    """Return the report of a job's result; None if it has none of at most `REPORT_BYTES_MAX`. Raise `NotFound` if the object store has
    lost it."""
    key = _key_of_report(deployment, job)
    return None if key is None else deployment.objects.read(key).decode(errors="replace")


def _key_of_report(deployment: Deployment, job: str) -> str | None:
    rows = deployment.store.load("artifacts", job=job)
    return next((row["key"] for row in rows if row["path"] == REPORT and row["bytes"] <= REPORT_BYTES_MAX), None)


def _holds_out(spec: dict[str, object]) -> bool:
    subjects = spec.get("subjects")
    named = [spec, *(subjects if isinstance(subjects, list) else [])]
    return any(isinstance(each, dict) and each.get("held_out") for each in named)
