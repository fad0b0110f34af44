"""Find the newest sample pictures of jobs, and whether there are new ones."""

from collections.abc import Mapping, Sequence

from gangline.core.jobs.lists.ids import as_list
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


def last_pictures(deployment: Deployment, project: str, jobs: Sequence[str]) -> Mapping[str, str]:
    """Return the SHA-256 of the newest picture that has a thumbnail, of those of these jobs that are the project's and have one."""
    rows = deployment.store.load("last_pictures", project=project, **as_list(jobs)) if jobs else []
    return {row["job"]: row["sha256"] for row in rows if row["sha256"]}


def pictures_seen(deployment: Deployment, job: str) -> Row:
    """Return what is another value once pictures or thumbnails of a job have come, or weights of its steps stay or go."""
    return deployment.store.load("pictures_seen", job=job)[0]
