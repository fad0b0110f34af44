"""Delete an ended job: its weights, pictures, checkpoints and logs, everything its owner wrote, and photos that no other job uses.

The rows of the job and its attempts stay, without texts, and so do its lines in the ledger: the sum of what was billed never changes.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from gangline.core.errors import BadInput, Unreachable
from gangline.core.job import ENDED
from gangline.core.jobs.lists.seen import ANY_VERSION, Seen
from gangline.core.runs.kept import GoingView, KeptKind, RemovalView
from gangline.core.runs.prepared import subjects
from gangline.core.runs.retention import PREVIEWS
from gangline.core.specs.kinds import needs_prepared_files
from gangline.core.specs.spec import parse_task
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.content.blobs import files_of_bases, giving_up
from gangline.service.content.sweep import delete_unreferred
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer
from gangline.service.money import bill

HANDED_IN_MS = 3_600_000
"""A file that was uploaded again within this time is not deleted: another job may be about to name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The rows and files that are deleted with a job, or with a job that rendered its pictures."""

    job: Row
    attempts: list[str]
    checkpoints: list[Row]
    artifacts: list[Row]
    log: list[Row]
    prepared: list[Row]
    blobs: list[Row]
    experiment: str | None


def what_goes(deployment: Deployment, job: Row, now_ms: int) -> RemovalView:
    """Return what `remove` would delete. Raise `BadInput` if the job has not ended, or another job begins from its checkpoint."""
    refuse_open(job)
    _refuse_of_open_experiment(deployment, job)
    _refuse_heirs(deployment, job)
    found = [_find(deployment, row, now_ms) for row in _with_beside(deployment, job)]
    return _view(job, found)


def remove(deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION) -> RemovalView:
    """Delete a job and return a list of the deleted things. The bytes of photos are deleted within a minute.

    Raise `BadInput` as `what_goes` does, and `Changed` if the job is not as it was `seen`.
    """
    for _ in range(TRIES_MAX):
        job = deployment.store.load("job", id=job_id)[0]
        seen.check(job_id, job["version"])
        refuse_open(job)
        _refuse_of_open_experiment(deployment, job)
        _refuse_heirs(deployment, job)
        for row in deployment.store.load("open_samples", parent=job_id):
            steer.cancel(deployment, row["id"], now_ms)
        found = [_find(deployment, row, now_ms) for row in _with_beside(deployment, job)]
        if deployment.store.apply(*(each for part in found for each in _removing(deployment, part, now_ms))):
            for part in found:  # if this server stops here, the sweep of attempts does it later
                for attempt in part.attempts:
                    delete_unreferred(deployment, job["project"], part.job["id"], attempt)
            return _view(job, found)
        job = deployment.store.load("job", id=job_id)[0]
        if job["removed_ms"] is not None:
            return _view(job, [])
    raise Unreachable(f"{job_id} changed {TRIES_MAX} times meanwhile; try again")


def refuse_open(job: Row) -> None:
    if job["state"] not in ENDED:
        raise BadInput(
            f"{job['id']} is {job['state']}, and only a job that has ended can be deleted",
            hint=f"cancel it first: gangline jobs cancel {job['id']}",
        )


def _refuse_of_open_experiment(deployment: Deployment, job: Row) -> None:
    """Raise `BadInput` while the experiment of a job is open: what the job cost counts in its budget, and what it measured in its rungs."""
    for row in deployment.store.load("runs_beside", job=job["id"]):
        if row["ended_ms"] is None:
            raise BadInput(
                f"{job['id']} is of the experiment {row['name']}, which has not ended",
                hint=f"stop the experiment first: gangline experiments stop {row['experiment']}",
            )


def _refuse_heirs(deployment: Deployment, job: Row) -> None:
    heirs = deployment.store.load("heirs", job=job["id"])
    if heirs:
        raise BadInput(
            f"{heirs[0]['id']} begins from the checkpoint of {job['id']}",
            hint="it may be deleted when that job has a checkpoint of its own, or has ended",
        )


def _with_beside(deployment: Deployment, job: Row) -> list[Row]:
    """Return the job and those that render its pictures, these first: what they made is among the job's results."""
    beside = [
        deployment.store.load("job", id=row["id"])[0]
        for row in deployment.store.load("samples_beside", parent=job["id"])
    ]
    return [*beside, job]


def _find(deployment: Deployment, job: Row, now_ms: int) -> _Found:
    attempts = [row["id"] for row in deployment.store.load("attempts", job=job["id"])]
    prepared = [row for attempt in attempts for row in deployment.store.load("prepared_of_attempt", attempt=attempt)]
    at_work = _subjects_at_work(deployment, job) if prepared else set()
    experiment = next(iter(deployment.store.load("runs_beside", job=job["id"])), None)
    blobs = deployment.store.load("blobs_of_job", job=job["id"])
    if experiment is not None and not experiment["others"]:  # files of an experiment are those of its last job
        blobs = deployment.store.load("blobs_of_experiment", experiment=experiment["experiment"])
    of_bases = files_of_bases(deployment, job["project"]) if blobs else set()
    return _Found(
        job=job,
        attempts=sorted(attempts),
        checkpoints=deployment.store.load("checkpoints", job=job["id"]),
        artifacts=deployment.store.load("kept_artifacts", job=job["id"]),
        log=deployment.store.load("log_chunks", job=job["id"], fencing=0, first_byte=0),
        prepared=[row for row in prepared if row["subject"] not in at_work],
        blobs=[
            row
            for row in sorted(blobs, key=lambda row: row["sha256"])
            if row["sha256"] not in of_bases and _is_its_own(row, job, now_ms)
        ],
        experiment=experiment["experiment"] if experiment is not None else None,
    )


def _is_its_own(blob: Row, job: Row, now_ms: int) -> bool:
    again = blob["used_ms"] > job["submitted_ms"] and blob["used_ms"] > now_ms - HANDED_IN_MS
    return not blob["others"] and not again


def _subjects_at_work(deployment: Deployment, job: Row) -> set[str]:
    """Return the subjects that queued and running jobs may take from other jobs of their project.

    A job that was offered one in this very moment, and finds it gone, tries again.
    """
    found = set[str]()
    for row in deployment.store.load("specs_at_work", project=job["project"], base=job["base"], but=job["id"]):
        spec = parse_task(json.loads(row["spec"]))
        found |= set(subjects(spec)) if needs_prepared_files(spec) else set()
    return found


def _removing(deployment: Deployment, found: _Found, now_ms: int) -> Iterable[Write]:
    """Yield the writes that delete a job. Guards make them fail if the job or any part of it changed since it was loaded, so each part is
    billed once.

    The attempts come before the job, in the order that every transaction uses.
    """
    job = found.job["id"]
    for attempt in found.attempts:
        yield write("sweep_attempt_again", attempt=attempt)
        yield write("remove_attempt", id=attempt)
        yield write("remove_metrics", attempt=attempt)
        yield write("remove_phases", attempt=attempt)
        yield write("drop_log_chunks", attempt=attempt)
    yield guard("remove_job", id=job, version=found.job["version"], now=now_ms)
    yield write("remove_sample", job=job)
    yield write("unpin_checkpoints", job=job)
    for row in found.checkpoints:
        yield guard("prune_checkpoint", id=row["id"], heirs=row["heirs"], because="its job was deleted by its owner")
        yield from bill.bill_storage(deployment, row, now_ms)
    for row in found.artifacts:
        yield write("drop_artifact", job=job, path=row["path"])  # whoever else drops one moves the job's version on
        yield from bill.storage_since(deployment, row, row["since_ms"], now_ms)
    for row in found.prepared:
        which = {name: row[name] for name in ("project", "key", "attempt")}
        yield write("forget_prepared", **which, seen=row["used_ms"])
    # the events before their notices: this waits for a transaction that is adding some
    yield write("remove_events", job=job)
    yield write("remove_notices", job=job)
    yield write("remove_bans", job=job)
    yield write("remove_tracking", job=job)
    yield write("remove_tracked_pictures", job=job)
    yield write("remove_sampling", job=job)
    yield write("remove_wishes", job=job)
    yield write("drop_winner", job=job)
    yield write("remove_job_files", job=job)
    yield write("remove_job_dataset", job=job)
    yield write("drop_labels", job=job)
    if found.experiment is not None:  # whose row goes with its last job
        yield write("lock_experiment", id=found.experiment)
        yield write("remove_experiment_run", job=job)
        yield write("remove_experiment_files", experiment=found.experiment)
        yield write("remove_experiment", experiment=found.experiment)
    if found.job["imported"]:
        yield write("remove_import", job=job)
    if json.loads(found.job["spec"]).get("deliver"):
        yield write("remove_delivery", job=job)
    for row in found.blobs:
        yield giving_up(found.job["project"], row, now_ms)


def _view(job: Row, found: list[_Found]) -> RemovalView:
    blobs = {row["sha256"]: row["bytes"] for part in found for row in part.blobs}
    artifacts = [row for part in found for row in part.artifacts]
    prepared = [
        file["bytes"] for part in found for row in part.prepared for file in json.loads(row["manifest"])["files"]
    ]
    sizes: dict[KeptKind, list[int]] = {
        "uploads": list(blobs.values()),
        "prepared": prepared,
        "checkpoints": [row["bytes"] for part in found for row in part.checkpoints],
        "results": [row["bytes"] for row in artifacts if not row["path"].startswith(PREVIEWS)],
        "previews": [row["bytes"] for row in artifacts if row["path"].startswith(PREVIEWS)],
        "logs": [row["bytes"] for part in found for row in part.log],
    }
    kept = tuple(GoingView(kind=kind, files=len(each), bytes=sum(each)) for kind, each in sizes.items())
    return RemovalView(job=job["id"], name=job["name"], kept=kept)
