"""Read and change the labels of a job."""

from collections.abc import Mapping

from gangline.core.errors import NotFound, Unreachable
from gangline.core.jobs.lists.ids import as_list
from gangline.core.jobs.lists.labels import BEST, WINNER, with_changes
from gangline.core.jobs.lists.seen import ANY_VERSION, Seen
from gangline.ports.store import guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.deployment import Deployment

LEFT_S = 86_400.0
"""So long ago a job may have been deleted by a server that leaves its labels."""


def labels_of(deployment: Deployment, job: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in deployment.store.load("labels_of_jobs", **as_list([job]))}


def inherited_labels(deployment: Deployment, job: str) -> dict[str, str]:
    """Return the labels that a job made from this one has: all but those that say that this is the best of its experiment, and which step
    of it was chosen."""
    found = labels_of(deployment, job)
    if deployment.store.load("winner", job=job):
        found.pop(WINNER, None)
    if BEST in found and deployment.store.load("runs_beside", job=job):
        del found[BEST]
    return found


def change_labels(
    deployment: Deployment, job_id: str, changes: Mapping[str, str | None], seen: Seen = ANY_VERSION
) -> bool:
    """Set these labels of a job; None removes one. Return False if they are so already.

    Raise `BadInput` if they become too many, `NotFound` if the job was deleted.

    The job's version rises with them, so that two requests at once cannot give it more labels than it may have.
    """
    for _ in range(TRIES_MAX):
        row = deployment.store.load("job", id=job_id)[0]
        if row["removed_ms"] is not None:
            raise NotFound(f"{job_id} was deleted")
        seen.check(job_id, row["version"])
        before = labels_of(deployment, job_id)
        after = with_changes(before, changes)
        if after == before:
            return False
        puts = [
            write("put_label", job=job_id, key=key, value=after[key]) for key in after if after[key] != before.get(key)
        ]
        drops = [write("drop_label", job=job_id, key=key) for key in before if key not in after]
        if deployment.store.apply(guard("change_job", id=job_id, version=row["version"]), *puts, *drops):
            return True
    raise Unreachable(f"{job_id} changed {TRIES_MAX} times meanwhile; try again")


def forget_labels(deployment: Deployment, now_ms: int) -> None:
    """Drop the labels of jobs that an older server, which knows none, has deleted lately. No list shows them meanwhile."""
    for row in deployment.store.load("labels_left", since=now_ms - round(LEFT_S * 1000)):
        deployment.store.apply(write("drop_labels", job=row["job"]))
