"""Read what training did to the loss of held-out photos from the report of a result."""

import json

from gangline.core.errors import NotFound, Unreachable
from gangline.core.jobs.story.held_out import REPORT_BYTES_MAX, HeldOutChange, held_out_change, holds_out
from gangline.core.runs.contract import REPORT
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


def held_out_of_result(deployment: Deployment, job: Row) -> HeldOutChange | None:
    """Return it for a job of which the row is given; None if it has no result, held out no photo, or its report is lost or says nothing
    of it. Raise `Unreachable`. A report is read once: a result never gets another one."""
    if job["state"] != "succeeded" or not holds_out(json.loads(job["spec"])):
        return None
    try:
        return deployment.recent.report(job["id"], lambda: held_out_change(read_report(deployment, job["id"]) or ""))
    except NotFound:
        return None


def reported_held_out(deployment: Deployment, job: Row) -> HeldOutChange | None:
    """Return the same; None also while the report cannot be read."""
    try:
        return held_out_of_result(deployment, job)
    except Unreachable:
        return None


def read_report(deployment: Deployment, job: str) -> str | None:
    """Return the report of a job's result; None if it has none of at most `REPORT_BYTES_MAX`. Raise `NotFound` if the object store has
    lost it."""
    rows = deployment.store.load("artifacts", job=job)
    key = next((row["key"] for row in rows if row["path"] == REPORT and row["bytes"] <= REPORT_BYTES_MAX), None)
    return None if key is None else deployment.objects.read(key).decode(errors="replace")
