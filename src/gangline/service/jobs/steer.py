"""What a job's owner may do with it: cancel, pause, resume, retry. At once, whatever its node is doing."""

import json
from collections.abc import Callable

from gangline.core.errors import BadInput, Unreachable
from gangline.core.events import Moved
from gangline.core.job import ENDED, Job
from gangline.core.jobs.failure import Verdict, canceled
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import parse_spec
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import TRIES_MAX, WAITS, as_job, conclude, event, moving
from gangline.service.content.inputs import checkpoints_to_resume
from gangline.service.deployment import Deployment
from gangline.service.jobs import samples
from gangline.service.jobs.submit import queue, read_submission

PAUSED = "paused by its owner"


def cancel(deployment: Deployment, job_id: str, now_ms: int) -> bool:
    """With the pictures that are to be made of it. False where the job had ended already: then nothing changes."""
    for row in deployment.store.load("open_samples", parent=job_id):
        cancel(deployment, row["id"], now_ms)

    def act(job: Job, live: Row | None) -> bool:
        if live:
            return conclude(deployment, live["id"], lambda now, _attempt, _past: canceled(now), now_ms)
        return _move(deployment, job, "canceled", canceled(job).because, now_ms)

    return _until_done(deployment, job_id, act, leave=ENDED)


def pause(deployment: Deployment, job_id: str, now_ms: int) -> bool:
    """A node at work saves and hands the job back first. False where it is paused already. Raises `BadInput` where it has ended."""

    def act(job: Job, live: Row | None) -> bool | None:
        if live and live["stop_kind"] == "paused":
            return None
        if live:
            return deployment.store.apply(
                write("ask_to_pause", attempt=live["id"], because=PAUSED, now=now_ms),
                guard("say_why", id=job.id, version=job.version, because=PAUSED),
            )
        return _move(deployment, job, "paused", PAUSED, now_ms)

    return _until_done(deployment, job_id, act, leave=frozenset({"paused"}), refuse="paused")


def resume(deployment: Deployment, job_id: str, now_ms: int) -> bool:
    """A paused job waits again. False where it was not paused. Raises `BadInput` where it has ended."""

    def act(job: Job, live: Row | None) -> bool | None:
        if live and live["stop_kind"] != "paused":
            return None
        if live:
            return deployment.store.apply(
                write("unpause_lease", attempt=live["id"]),
                guard("say_why", id=job.id, version=job.version, because="resumed by its owner"),
            )
        return _move(deployment, job, "queued", WAITS, now_ms)

    return _until_done(deployment, job_id, act, leave=frozenset({"queued"}), refuse="resumed")


def submit_again(
    deployment: Deployment, project: str, job_id: str, now_ms: int, *, from_checkpoint: bool = False
) -> str:
    """A new job from the same spec, and if asked for from the checkpoint that the old one reached; its id. Raises `BadInput` while the
    old one may still succeed, or where it keeps no checkpoint."""
    row = deployment.store.load("job", id=job_id)[0]
    if row["state"] not in ENDED:
        raise BadInput(f"{job_id} is {row['state']} and may still succeed", hint="cancel it first")
    if KINDS[row["kind"]].renders:
        return samples.retry_samples(deployment, row, now_ms)
    begins_from = _heritage(deployment, row) if from_checkpoint else None
    spec, places = read_submission(deployment, project, json.loads(row["spec"]), parse_spec)
    return queue(
        deployment, project, spec, places, name=row["name"], request=None, now_ms=now_ms, begins_from=begins_from
    )


def _heritage(deployment: Deployment, job: Row) -> str:
    """The job whose checkpoints are meant: its own, or those that it was itself to begin from."""
    found = checkpoints_to_resume(deployment, job["id"], job["begins_from"])
    if not found:
        raise BadInput(f"{job['id']} keeps no checkpoint", hint="without --from-checkpoint it begins at step 0")
    return found[0]["job"]


_HAS = {"succeeded": "succeeded", "failed": "failed", "canceled": "been canceled"}

JobChange = Callable[[Job, Row | None], bool | None]
"""Given the job and its live attempt. False where somebody moved it on in between, None where there is nothing to do."""


def _until_done(
    deployment: Deployment, job_id: str, act: JobChange, *, leave: frozenset[str], refuse: str = ""
) -> bool:
    """Again while others move the job on in between; False where it is in a state to `leave` alone, or nothing is to do.
    What has ended cannot be what `refuse` says."""
    for _ in range(TRIES_MAX):
        row = deployment.store.load("job", id=job_id)[0]
        if row["state"] in leave:
            return False
        if row["state"] in ENDED:
            raise BadInput(
                f"{job_id} has {_HAS[row['state']]} and cannot be {refuse}",
                hint="`gangline jobs retry` submits it again, from where it was with --from-checkpoint",
            )
        live = next(
            (found for found in deployment.store.load("attempts", job=job_id) if found["state"] == "live"), None
        )
        done = act(as_job(row), live)
        if done is not False:
            return done is True
    raise Unreachable(f"{job_id} changed {TRIES_MAX} times meanwhile; try again")


def _move(deployment: Deployment, job: Job, state: Moved, because: str, now_ms: int) -> bool:
    verdict = Verdict(attempt="canceled", job=state, attempts_failed=job.attempts_failed, because=because)
    return deployment.store.apply(moving(job, verdict, now_ms), event(job.id, state, because, now_ms))
