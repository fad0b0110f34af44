"""Find the newest sample picture of each job of a list."""

from collections.abc import Mapping, Sequence

from gangline.core.jobs.lists.ids import as_list
from gangline.service.deployment import Deployment


def last_pictures(deployment: Deployment, project: str, jobs: Sequence[str]) -> Mapping[str, str]:
    """Return the SHA-256 of the newest picture that has a thumbnail, of those of these jobs that are the project's and have one."""
    rows = deployment.store.load("last_pictures", project=project, **as_list(jobs)) if jobs else []
    return {row["job"]: row["sha256"] for row in rows if row["sha256"]}
