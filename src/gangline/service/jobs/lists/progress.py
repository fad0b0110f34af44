"""Read about all jobs of a project what is in no fact: how far the nodes at work on them have come, and which were deleted."""

from gangline.service.deployment import Deployment
from gangline.service.outage import silences

SILENCE_MS = 5000
"""An open page shows again how long a node is silent after each of these, in which the sentence about its job counts."""


def progress_of_project(deployment: Deployment, project: str) -> dict[str, tuple[object, ...]]:
    """Return what was heard last about each job that a node works on: phase, step, loss, why it is to stop, and how long the node has been
    silent."""
    rows = deployment.store.load("progress_of_project", project=project)
    silence_ms = silences(deployment, deployment.store.now_ms())
    return {
        row["job"]: (row["phase"], row["step"], row["loss"], row["stop_kind"], silence_ms(row["beat_ms"]) // SILENCE_MS)
        for row in rows
    }


def removed_lately(deployment: Deployment, project: str, since_ms: int) -> frozenset[str]:
    """Return the ids of the jobs that were deleted at `since_ms` or later."""
    return frozenset(row["id"] for row in deployment.store.load("removed_lately", project=project, since=since_ms))
