"""Find the jobs of a group: those that ask the same of a node. Whoever acts on a group acts on each of its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gangline.core.jobs.supply import needs
from gangline.service.deployment import Deployment
from gangline.service.jobs.placing.queue import GROUPS_MAX

QueueGroupState = Literal["queued", "paused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedGroup:
    """Paused jobs of a project that ask the same of a node: `jobs` of them, of which `job` is one. `needs` says what they ask."""

    job: str
    project: str
    kind: str
    needs: str
    jobs: int


def paused_groups(deployment: Deployment, project: str | None) -> tuple[PausedGroup, ...]:
    """Return the groups of a project's paused jobs (None: of all projects), the largest first."""
    asked = ("gpu_memory_gb", "gpu", "slots", "pool", "trust", "numerics", "wanted")
    load = deployment.store.load
    projects = [row["id"] for row in load("projects")] if project is None else [project]
    rows = [row for each in projects for row in load("paused_groups", project=each, limit=GROUPS_MAX)]
    return tuple(
        PausedGroup(
            job=row["id"],
            project=row["project"],
            kind=row["kind"],
            needs=needs(**{name: row[name] for name in asked}),
            jobs=row["jobs"],
        )
        for row in sorted(rows, key=lambda row: -row["jobs"])[:GROUPS_MAX]
    )


def jobs_of_group(deployment: Deployment, job: str, state: QueueGroupState, now_ms: int, limit: int) -> Sequence[str]:
    """Return the ids of at most `limit` jobs in this state of the group of a job, the oldest first. The job itself may have moved on."""
    if state == "queued":
        rows = deployment.store.load("jobs_of_queue_group", job=job, now=now_ms, limit=limit)
    else:
        rows = deployment.store.load("jobs_of_paused_group", job=job, limit=limit)
    return [row["id"] for row in rows]
