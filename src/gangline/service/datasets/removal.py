"""Remove versions of data sets: their rows, their thumbnails, and the bytes that nothing else uses.

A request gives versions up, and from then on nobody sees them. The controller removes their files, some in each step, also after a kill.
A file that a job or another version uses stays: whoever names a file bumps its row, which a deletion that was decided before notices.
"""

from collections.abc import Sequence

from gangline.core.datasets.names import DatasetReference
from gangline.core.datasets.views import DatasetRemovalView
from gangline.core.errors import BadInput, Unreachable
from gangline.core.jobs.keys import thumbnail_key
from gangline.core.jobs.lists.ids import as_list
from gangline.core.words import counted, listed
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.content.blobs import files_of_bases, giving_up
from gangline.service.datasets.versions import find_dataset, find_version, refuse_unknown
from gangline.service.deployment import Deployment

AT_ONCE = 200
"""Files of a version that one step removes."""
VERSIONS_AT_ONCE = 4
"""Versions that one call of the controller takes a step of: the thread that does so hands out work, too."""
JOBS_LISTED_MAX = 100
UNFINISHED_MS = 24 * 3_600_000
"""A version whose files were not all added within this time is given up. The same push would begin it again."""


def what_dataset_removal_does(deployment: Deployment, project: str, reference: DatasetReference) -> DatasetRemovalView:
    """Return what `remove_versions` would remove. Raise `NotFound`, or `BadInput` while a job that names one has not ended."""
    return _what_goes(deployment, project, reference, _versions(deployment, project, reference))


def remove_versions(
    deployment: Deployment, project: str, reference: DatasetReference, now_ms: int, *, shown: Sequence[int] = ()
) -> DatasetRemovalView:
    """Give up a version, or all versions of a data set, and return what is removed. `shown` are the numbers that its owner agreed to.

    Raise as `what_dataset_removal_does`, and `BadInput` if other versions are there than were shown. The controller removes the files.
    """
    for _ in range(TRIES_MAX):
        versions = _versions(deployment, project, reference)
        _check_shown(reference, versions, shown)
        found = _what_goes(deployment, project, reference, versions)
        gone = [guard("give_up_dataset_version", id=row["id"], seen=row["used_ms"], now=now_ms) for row in versions]
        if deployment.store.apply(*gone):
            return found
    raise Unreachable(f"{reference} was used {TRIES_MAX} times meanwhile", hint="try again")


def continue_removals(deployment: Deployment, now_ms: int) -> None:
    """Take a step of some removals, so that a large one holds up neither the controller nor a small one."""
    for row in deployment.store.load("versions_going", limit=VERSIONS_AT_ONCE):
        _remove_some(deployment, row, now_ms)


def give_up_unfinished(deployment: Deployment, now_ms: int) -> None:
    """Give up versions whose push was never completed."""
    for row in deployment.store.load("versions_unfinished", before=now_ms - UNFINISHED_MS, limit=AT_ONCE):
        deployment.store.apply(write("give_up_unfinished_version", id=row["id"], seen=row["moved_ms"], now=now_ms))


def _versions(deployment: Deployment, project: str, reference: DatasetReference) -> list[Row]:
    if reference.number is not None:
        return [find_version(deployment, project, reference)]
    dataset = find_dataset(deployment, project, reference.name)
    return list(deployment.store.load("versions_to_remove", dataset=dataset["id"])) or refuse_unknown(reference.name)


def _check_shown(reference: DatasetReference, versions: Sequence[Row], shown: Sequence[int]) -> None:
    here = {row["number"] for row in versions}
    if shown and here != {*shown}:
        numbers = listed([f"{reference.name}@{number}" for number in sorted(here)[-JOBS_LISTED_MAX:]])
        raise BadInput(
            f"{reference} has other versions than were shown: now {numbers}; nothing was removed",
            hint="look again at what would be removed",
        )


def _what_goes(
    deployment: Deployment, project: str, reference: DatasetReference, versions: Sequence[Row]
) -> DatasetRemovalView:
    which = {"dataset": versions[0]["dataset"], "number": reference.number or 0}
    jobs = deployment.store.load("jobs_of_versions", **which, limit=JOBS_LISTED_MAX)
    count = deployment.store.load("count_jobs_of_versions", **which)[0]
    if count["running"]:
        first, rest = jobs[0], count["running"] - 1
        others = f" and {counted(rest, 'other job')}" if rest else ""
        raise BadInput(
            f"{reference} is used by {first['id']}{others}, which {'have' if rest else 'has'} not ended",
            hint=_how_to_end(count, first["id"]),
        )
    of_bases = files_of_bases(deployment, project)
    contents = deployment.store.load("content_of_versions", **which)
    kept = [row["bytes"] for row in contents if row["held"] or row["sha256"] in of_bases]
    going = [row["bytes"] for row in contents if not row["held"] and row["sha256"] not in of_bases]
    return DatasetRemovalView(
        name=reference.name,
        versions=tuple(version["number"] for version in versions),
        jobs=tuple(row["id"] for row in jobs),
        jobs_count=count["jobs"],
        files=len(going),
        bytes=sum(going),
        kept_files=len(kept),
        kept_bytes=sum(kept),
    )


def _how_to_end(count: Row, first: str) -> str:
    """Return what to do about jobs that have not ended, given how many they are and the id of the first."""
    experiment = count["first_experiment"]
    if experiment and experiment == count["last_experiment"] and count["of_experiments"] == count["running"]:
        return f"wait for the end of their experiment, or stop it first: gangline experiments stop {experiment}"
    if count["running"] > 1:
        return "wait for their end, or cancel them first: `gangline jobs ls` lists them"
    return f"wait for its end, or cancel it first: gangline jobs cancel {first}"


def _remove_some(deployment: Deployment, version: Row, now_ms: int) -> None:
    """Remove some files of a version that was given up; with the last ones its row, and the name if it was the last version."""
    which, project = version["id"], version["project"]
    rows = deployment.store.load("files_going", version=which, limit=AT_ONCE)
    ids = sorted({row["sha256"] for row in rows})
    contents = deployment.store.load("contents_going", project=project, **as_list(ids)) if ids else []
    moved = guard("move_dataset_removal", id=which, seen=version["moved_ms"], now=now_ms)
    if not deployment.store.apply(moved, *_forgetting(project, contents, files_of_bases(deployment, project), now_ms)):
        return  # another server takes this step
    # The rows of the files go last: after a kill before that, the same thumbnails are deleted again.
    forget_thumbnails(deployment, project, [row["sha256"] for row in rows if row["role"] != "caption"])
    is_last = len(rows) < AT_ONCE
    files = (write("drop_dataset_file", version=which, path=row["path"]) for row in rows)
    deployment.store.apply(*files, *([write("drop_dataset_version", id=which)] if is_last else []))
    for row in deployment.store.load("dataset_by_id", id=version["dataset"]) if is_last else []:
        deployment.store.apply(write("drop_dataset", id=version["dataset"], seen=row["versions"]))


def _forgetting(project: str, contents: Sequence[Row], of_bases: set[str], now_ms: int) -> list[Write]:
    """Return the writes that forget what only versions that are removed have."""
    unheld = [row for row in contents if not row["in_version"]]
    photos = [write("drop_photo", project=project, sha256=row["sha256"]) for row in unheld]
    bytes_going = [
        giving_up(project, row, now_ms)
        for row in unheld
        if row["used_ms"] is not None and not row["in_job"] and row["sha256"] not in of_bases
    ]
    return [*photos, *bytes_going]


def forget_thumbnails(deployment: Deployment, project: str, contents: Sequence[str]) -> None:
    """Delete the thumbnails of these contents, except of those that a version has or of which something is known: a push that came
    meanwhile needs them."""
    if contents:
        held = {
            row["sha256"]
            for row in deployment.store.load("photos_held", project=project, **as_list(sorted({*contents})))
        }
        deployment.objects.delete([thumbnail_key(project, sha256) for sha256 in sorted({*contents} - held)])
