"""Read about all jobs of a project what is in no fact: how far the nodes at work on them have come, and which were deleted."""

from gangline.service.deployment import Deployment


def progress_of_project(deployment: Deployment, project: str) -> dict[str, tuple[object, ...]]:
    """Return what the last heartbeat reported about each job that a node works on: phase, step, loss, and why it is to stop."""
    rows = deployment.store.load("progress_of_project", project=project)
    return {row["job"]: (row["phase"], row["step"], row["loss"], row["stop_kind"]) for row in rows}


def removed_lately(deployment: Deployment, project: str, since_ms: int) -> frozenset[str]:
    """Return the ids of the jobs that were deleted at `since_ms` or later."""
    return frozenset(row["id"] for row in deployment.store.load("removed_lately", project=project, since=since_ms))
