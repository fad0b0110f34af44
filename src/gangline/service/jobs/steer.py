"""Cancel, pause, resume and retry a job for its owner, at once, whatever its node is doing."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gangline.core.display import printable
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.events import Moved
from gangline.core.job import ENDED, Job
from gangline.core.jobs.failure import Verdict, canceled
from gangline.core.jobs.lists.seen import ANY_VERSION, Seen
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import parse_spec
from gangline.ports.store import Row, Write, guard, write
from gangline.service.access.secrets import check_secrets
from gangline.service.attempts import TRIES_MAX, WAITS, as_job, conclude, event, moving
from gangline.service.content.inputs import checkpoints_to_resume
from gangline.service.datasets.named import version_of_job
from gangline.service.deployment import Deployment
from gangline.service.jobs import samples
from gangline.service.jobs.lists.labels import inherited_labels
from gangline.service.jobs.submit import NOBODY, Asker, earlier_job, queue, read_submission

OWNER = "its owner"
RESUMED_BY_OWNER = f"resumed by {OWNER}"


def who(deployment: Deployment, job_id: str, by: str | None) -> str:
    """Return whose key this is, given its id: that of the job's owner (None: it is), or of somebody else in the project, by its name."""
    if by is None:
        return OWNER
    row = deployment.store.load("holder_of_key", job=job_id, key=by)[0]
    return OWNER if row["owns"] else printable(row["name"] or "") or "another key"


def cancel(
    deployment: Deployment,
    job_id: str,
    now_ms: int,
    seen: Seen = ANY_VERSION,
    *,
    because: str = "",
    by: str | None = None,
) -> bool:
    """Cancel a job and the rendering of its pictures, for this reason or as the holder of a key asked. Return False if it had ended
    already; then nothing changes."""
    seen.check(job_id, deployment.store.load("job", id=job_id)[0]["version"])  # before its pictures are canceled
    because = because or f"canceled by {who(deployment, job_id, by)}"
    for row in deployment.store.load("open_samples", parent=job_id):
        cancel(deployment, row["id"], now_ms, because=because)

    def act(job: Job, live: Row | None) -> bool:
        if live:
            return conclude(
                deployment, live["id"], lambda now, _attempt, _past: canceled(seen.checked(now), because), now_ms
            )
        return _move(deployment, job, "canceled", because, now_ms)

    return until_done(deployment, job_id, act, leave=ENDED, seen=seen)


def pause(deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION, *, by: str | None = None) -> bool:
    """Pause a job; a node at work saves and releases it first. Return False if it is paused already. Raise `BadInput` if it has ended.

    One that its experiment has paused is its owner's from then on, and the experiment leaves it alone.
    """
    own, because = write("wait_at", job=job_id, waits=""), f"paused by {who(deployment, job_id, by)}"

    def act(job: Job, live: Row | None) -> bool | None:
        is_paused = job.state == "paused" or (live is not None and live["stop_kind"] == "paused")
        if is_paused and not deployment.store.load("waits_of_job", job=job_id):
            return None
        if live or is_paused:
            asking = [write("ask_to_pause", attempt=live["id"], because=because, now=now_ms)] if live else []
            return deployment.store.apply(
                *asking, guard("say_why", id=job.id, version=job.version, because=because), own
            )
        return _move(deployment, job, "paused", because, now_ms, own)

    return until_done(deployment, job_id, act, leave=frozenset(), refuse="paused", seen=seen)


def withhold(deployment: Deployment, job_id: str, because: str, now_ms: int) -> bool:
    """Pause a job that waits, as no node could run it. Return False if one took it meanwhile, or it does not wait any more."""

    def act(job: Job, live: Row | None) -> bool | None:
        return None if live else _move(deployment, job, "paused", because, now_ms)

    return until_done(deployment, job_id, act, leave=ENDED | {"paused"})


def resume(
    deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION, *, by: str | None = None
) -> bool:
    """Put a paused job back into the queue. Return False if it was not paused. Raise `BadInput` if it has ended, or lacks a secret."""
    row = deployment.store.load("job", id=job_id)[0]
    if not KINDS[row["kind"]].ours:
        check_secrets(deployment, row["project"], json.loads(row["spec"]).get("secrets", ()))
    own, because = write("wait_at", job=job_id, waits=""), f"resumed by {who(deployment, job_id, by)}"

    def act(job: Job, live: Row | None) -> bool | None:
        if live and live["stop_kind"] != "paused":
            return None
        if live:
            return deployment.store.apply(
                write("unpause_lease", attempt=live["id"], because=because),
                guard("say_why", id=job.id, version=job.version, because=because),
                own,
            )
        return _move(deployment, job, "queued", WAITS, now_ms, own)

    return until_done(deployment, job_id, act, leave=frozenset({"queued"}), refuse="resumed", seen=seen)


def submit_again(
    deployment: Deployment,
    project: str,
    job_id: str,
    now_ms: int,
    *,
    from_checkpoint: bool = False,
    from_step: int | None = None,
    request: str | None = None,
    asker: Asker = NOBODY,
) -> str:
    """Submit the same spec as a new job with the same labels, and return its id.

    It may begin from the checkpoint that the old one reached, or that of a step. Without either, one that continues another job begins
    where the old one did.

    Raise `BadInput` while the old job may still succeed, or if it has no checkpoint to begin from.
    """
    earlier = earlier_job(deployment, project, request, asker)
    if earlier:
        return earlier
    row = deployment.store.load("job", id=job_id)[0]
    if row["state"] not in ENDED:
        raise BadInput(f"{job_id} is {row['state']} and may still succeed", hint="cancel it first")
    if KINDS[row["kind"]].renders:
        return samples.retry_samples(deployment, row, now_ms, request, asker)
    value = json.loads(row["spec"])
    begins_from, begins_step = (
        _heritage(deployment, row, from_step)
        if from_checkpoint or from_step is not None
        else _beginning(deployment, row, value.get("continues"))
    )
    spec, places = read_submission(deployment, project, value, parse_spec)
    return queue(
        deployment,
        project,
        spec,
        places,
        name=row["name"],
        request=request,
        now_ms=now_ms,
        begins_from=begins_from,
        begins_step=begins_step,
        asker=replace(asker, labels=inherited_labels(deployment, job_id)),
        dataset=version_of_job(deployment, job_id),
    )


def _heritage(deployment: Deployment, job: Row, step: int | None) -> tuple[str, int | None]:
    """Return the job whose checkpoints to begin from, and the newest step that counts: this one, or the one that it was to begin from
    itself."""
    found = checkpoints_to_resume(deployment, job["id"], job["begins_from"])
    if not found:
        raise BadInput(
            f"{job['id']} keeps no checkpoint", hint="without --from-checkpoint the new job starts at step 0"
        )
    if step is not None and all(row["step"] != step for row in found):
        steps = ", ".join(str(row["step"]) for row in found)
        raise NotFound(
            f"{job['id']} keeps no checkpoint of step {step}", hint=f"it keeps those of these steps: {steps}"
        )
    owner: str = found[0]["job"]
    return owner, step if step is not None or owner == job["id"] else job["begins_step"]


def _beginning(deployment: Deployment, job: Row, continues: dict[str, Any] | None) -> tuple[str | None, int | None]:
    """Return where a job begins that inherits nothing: at step 0, or if it continues another job, at that one's checkpoint."""
    if continues is None:
        return None, None
    old, step = continues["job"], continues["step"]
    if all(row["step"] != step for row in deployment.store.load("checkpoints", job=old)):
        raise BadInput(
            f"{job['id']} continues step {step} of {old}, which keeps no checkpoint of that step any more",
            hint="with --from-checkpoint the new job starts from the newest checkpoint of its own",
        )
    return old, step


_HAS = {"succeeded": "succeeded", "failed": "failed", "canceled": "been canceled"}

JobChange = Callable[[Job, Row | None], bool | None]
"""A change of a job, given the job and its live attempt.

It returns False if the job changed concurrently, None if there is nothing to do.
"""


def until_done(
    deployment: Deployment,
    job_id: str,
    act: JobChange,
    *,
    leave: frozenset[str],
    refuse: str = "",
    seen: Seen = ANY_VERSION,
) -> bool:
    """Apply `act`, and retry while others change the job. Return False if it is in a state of `leave`, or there is nothing to do.

    Raise `BadInput` if the job has ended, where `refuse` is the verb for the message, and `Changed` if it is not as it was `seen`.
    """
    for _ in range(TRIES_MAX):
        row = deployment.store.load("job", id=job_id)[0]
        seen.check(job_id, row["version"])
        if row["state"] in leave:
            return False
        if row["state"] in ENDED:
            raise BadInput(
                f"{job_id} has {_HAS[row['state']]} and cannot be {refuse}",
                hint="retry it: a new job begins at step 0, or at the last checkpoint of this one",
            )
        live = next(
            (found for found in deployment.store.load("attempts", job=job_id) if found["state"] == "live"), None
        )
        done = act(as_job(row), live)
        if done is not False:
            return done is True
    raise Unreachable(f"{job_id} changed {TRIES_MAX} times meanwhile; try again")


def _move(deployment: Deployment, job: Job, state: Moved, because: str, now_ms: int, *beside: Write) -> bool:
    return deployment.store.apply(
        moving_to(job, state, because, now_ms), event(job.id, state, because, now_ms), *beside
    )


def moving_to(job: Job, state: Moved, because: str, now_ms: int) -> Write:
    """Return the write that moves a job that no node has."""
    verdict = Verdict(attempt="canceled", job=state, attempts_failed=job.attempts_failed, because=because)
    return moving(job, verdict, now_ms)
