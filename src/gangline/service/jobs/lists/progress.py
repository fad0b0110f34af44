"""Read how far the nodes at work on the jobs of a project have come, all at once."""

from gangline.service.deployment import Deployment


def progress_of_project(deployment: Deployment, project: str) -> dict[str, tuple[object, ...]]:
    """Return what the last heartbeat reported about each job that a node works on: phase, step, loss, and why it is to stop."""
    rows = deployment.store.load("progress_of_project", project=project)
    return {row["job"]: (row["phase"], row["step"], row["loss"], row["stop_kind"]) for row in rows}
