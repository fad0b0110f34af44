"""Remove versions of data sets: their rows, their thumbnails, and the bytes that nothing else uses.

A version is given up first, and from then on nobody sees it. Its files follow in small transactions; after a kill the controller continues.
A file that a job or another version uses stays: whoever names a file bumps its row, which a deletion that was decided before notices.
"""

from collections.abc import Sequence
from itertools import groupby

from gangline.core.datasets.names import DatasetReference
from gangline.core.datasets.views import DatasetRemovalView
from gangline.core.errors import BadInput, Unreachable
from gangline.core.job import ENDED
from gangline.core.jobs.keys import thumbnail_key
from gangline.core.words import counted
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.content.blobs import files_of_bases, giving_up
from gangline.service.datasets.versions import find_version, rows_of
from gangline.service.deployment import Deployment

AT_ONCE = 200
UNFINISHED_MS = 24 * 3_600_000
"""A version whose files were not all added within this time is given up. The same push would begin it again."""
ANOTHER_S = 60
"""The controller continues removals that no request has moved for this long."""


def what_dataset_removal_does(deployment: Deployment, project: str, reference: DatasetReference) -> DatasetRemovalView:
    """Return what `remove_versions` would remove. Raise `NotFound`, or `BadInput` while a job that names one has not ended."""
    versions = _versions(deployment, project, reference)
    jobs = [row for version in versions for row in deployment.store.load("jobs_of_version", version=version["id"])]
    running = [row for row in jobs if row["state"] not in ENDED]
    if running:
        first, rest = running[0], len(running) - 1
        others = f" and {counted(rest, 'other job')}" if rest else ""
        raise BadInput(
            f"{reference} is used by {first['id']}{others}, which {'have' if rest else 'has'} not ended",
            hint=f"wait for its end, or cancel it first: gangline jobs cancel {first['id']}",
        )
    which = {"dataset": versions[0]["dataset"], "number": reference.number or 0}
    of_bases = files_of_bases(deployment, project)
    contents = deployment.store.load("content_of_versions", **which)
    kept = [row["bytes"] for row in contents if row["held"] or row["sha256"] in of_bases]
    going = [row["bytes"] for row in contents if not row["held"] and row["sha256"] not in of_bases]
    return DatasetRemovalView(
        name=reference.name,
        versions=tuple(version["number"] for version in versions),
        jobs=tuple(row["id"] for row in jobs),
        files=len(going),
        bytes=sum(going),
        kept_files=len(kept),
        kept_bytes=sum(kept),
    )


def remove_versions(
    deployment: Deployment, project: str, reference: DatasetReference, now_ms: int
) -> DatasetRemovalView:
    """Remove a version, or all versions of a data set, and return what was removed. Raise as `what_dataset_removal_does`.

    The bytes are deleted within a minute.
    """
    for _ in range(TRIES_MAX):
        found = what_dataset_removal_does(deployment, project, reference)
        versions = _versions(deployment, project, reference)
        gone = [guard("give_up_dataset_version", id=row["id"], seen=row["used_ms"], now=now_ms) for row in versions]
        if deployment.store.apply(*gone):
            for version in versions:
                _empty(deployment, version["id"], version["dataset"], project, now_ms)
            return found
    raise Unreachable(f"{reference} was used {TRIES_MAX} times meanwhile", hint="try again")


def continue_removals(deployment: Deployment, now_ms: int) -> None:
    """Give up versions whose push was never completed, and finish removals that a server left when it was killed."""
    for row in deployment.store.load("versions_unfinished", before=now_ms - UNFINISHED_MS, limit=AT_ONCE):
        deployment.store.apply(write("give_up_unfinished_version", id=row["id"], seen=row["moved_ms"], now=now_ms))
    for row in deployment.store.load("versions_going", before=now_ms - ANOTHER_S * 1000, limit=AT_ONCE):
        _empty(deployment, row["id"], row["dataset"], row["project"], now_ms)


def _versions(deployment: Deployment, project: str, reference: DatasetReference) -> list[Row]:
    if reference.number is None:
        return rows_of(deployment, project, reference.name)
    return [find_version(deployment, project, reference)]


def _empty(deployment: Deployment, version: str, dataset: str, project: str, now_ms: int) -> None:
    """Remove the files of a version that was given up, then its row, then the name if it was the last version."""
    of_bases = files_of_bases(deployment, project)
    while rows := deployment.store.load("files_going", version=version, limit=AT_ONCE):
        unheld = [row["sha256"] for row in rows if row["role"] != "caption" and not row["versions"]]
        deployment.objects.delete([thumbnail_key(project, sha256) for sha256 in sorted(set(unheld))])
        deployment.store.apply(*_dropping(version, project, rows, of_bases, now_ms))
    deployment.store.apply(write("drop_dataset_version", id=version))
    for row in deployment.store.load("dataset_by_id", id=dataset):
        deployment.store.apply(write("drop_dataset", id=dataset, seen=row["versions"]))


def _dropping(version: str, project: str, rows: Sequence[Row], of_bases: set[str], now_ms: int) -> list[Write]:
    """Return the writes that drop files of a version. A file's bytes go with the last path that has them."""
    paths = [write("drop_dataset_file", version=version, path=row["path"]) for row in rows]
    writes = list[Write]()
    ordered = sorted(rows, key=lambda row: row["sha256"])
    for sha256, same in groupby(ordered, key=lambda row: row["sha256"]):
        here = list(same)
        first, is_last = here[0], here[0]["paths"] < len(here)
        if not first["versions"] and is_last:
            writes.append(write("drop_photo", project=project, sha256=sha256))
            if first["used_ms"] is not None and not first["jobs"] and sha256 not in of_bases:
                writes.append(giving_up(project, first, now_ms))
    return [*paths, *writes]
