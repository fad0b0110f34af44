"""Take what a job's owner asks of it while it runs: to save, to show itself, to finish with what it has.

The node hears it with its next heartbeat (gangline.service.jobs.renew). Who asks twice is given one.
"""

import json
from dataclasses import fields, replace

from gangline.core.errors import BadInput
from gangline.core.job import Job
from gangline.core.jobs.failure import Verdict
from gangline.core.jobs.lists.seen import ANY_VERSION, Seen
from gangline.core.jobs.wishes import ASKED, Wish, WishKind, are_to_save
from gangline.core.runs.contract import pictures_folder
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import parse_spec
from gangline.ports.server import Beat, Hold
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import WAITS, event, load_wishes, moving
from gangline.service.deployment import Deployment
from gangline.service.jobs import samples
from gangline.service.jobs.steer import RESUMED_BY_OWNER, JobChange, until_done

COLUMNS = tuple(field.name for field in fields(Wish))


def ask_to_save(deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION) -> bool:
    """Have a checkpoint saved. Return False if that was asked before and is not done yet. Raise `BadInput` if no node works on the job."""
    row = deployment.store.load("job", id=job_id)[0]
    _refuse_pictures(row, "save")
    if not KINDS[row["kind"]].ours:
        raise BadInput(
            f"{job_id} runs a command, which saves when it wants to",
            hint="its node uploads each checkpoint that it finds",
        )

    def act(job: Job, live: Row | None) -> bool:
        if live is None:
            raise BadInput(
                f"{job_id} is {job.state}: no node works on it, so there is nothing to save",
                hint=_safe(deployment, job_id),
            )
        return deployment.store.apply(*_asking(job, "save", now_ms))

    return until_done(deployment, job_id, _once(deployment, "save", act), leave=frozenset(), refuse="saved", seen=seen)


def ask_for_samples(deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION) -> bool:
    """Have pictures rendered of what the job has now: of its next checkpoint, or of its newest one if no node works on it.

    Return False if they were asked for before and have not come yet. Raise `BadInput` if there is nothing to show.
    """
    row = deployment.store.load("job", id=job_id)[0]
    _refuse_pictures(row, "show itself")
    if not KINDS[row["kind"]].ours:
        raise BadInput(f"{job_id} runs a command, whose pictures are its own", hint="the command may draw them itself")
    if not parse_spec(json.loads(row["spec"])).prompts_to_sample:
        raise BadInput(f"{job_id} has no prompts to draw", hint="its spec would name them in sample_prompts")

    def act(job: Job, live: Row | None) -> bool | None:
        if live is None:
            return _show_newest(deployment, row, job, now_ms)
        return deployment.store.apply(*_asking(job, "sample", now_ms), write("ensure_sampling", job=job_id, now=now_ms))

    return until_done(
        deployment, job_id, _once(deployment, "sample", act), leave=frozenset(), refuse="shown", seen=seen
    )


def _show_newest(deployment: Deployment, row: Row, job: Job, now_ms: int) -> bool | None:
    """Have the newest checkpoint of a job rendered that no node works on. Return None if that waits already."""
    kept = deployment.store.load("checkpoints", job=job.id)
    if not kept:
        raise BadInput(f"{job.id} is {job.state} and has no checkpoint yet, so there is nothing to show")
    step = kept[0]["step"]
    if any(waiting["step"] == step for waiting in deployment.store.load("open_samples", parent=job.id)):
        return None
    shown = {found["path"].rpartition("/")[0] for found in deployment.store.load("artifacts", job=job.id)}
    if pictures_folder(step) in shown:
        raise BadInput(
            f"{job.id} is {job.state} at step {step}, and pictures of that are there",
            hint="they are among its pictures",
        )
    because = f"{ASKED['sample'][1]}: its checkpoint of step {step} is rendered"
    return deployment.store.apply(
        guard("change_job", id=job.id, version=job.version),
        *samples.showing(deployment, row, kept[0]["id"], step, now_ms),
        event(job.id, "asked to sample", because, now_ms),
    )


def ask_to_finish(deployment: Deployment, job_id: str, now_ms: int, seen: Seen = ANY_VERSION) -> bool:
    """Have a job end with what it has: its node takes no more steps and writes the result. One that waits or is paused goes to a node that
    writes it.

    Return False if that was asked before. Raise `BadInput` if there is nothing to write a result from.
    """
    row = deployment.store.load("job", id=job_id)[0]
    _refuse_pictures(row, "be finished early")
    if not KINDS[row["kind"]].ours:
        raise BadInput(
            f"{job_id} runs a command, and only the command knows how to end with a result",
            hint="pause it to have it save: what it saved is among its checkpoints",
        )

    def act(job: Job, live: Row | None) -> bool:
        if live:
            unpaused = (
                [write("unpause_lease", attempt=live["id"], because=RESUMED_BY_OWNER)]
                if live["stop_kind"] == "paused"
                else []
            )
            return deployment.store.apply(*unpaused, *_asking(job, "finish", now_ms))
        if not deployment.store.load("checkpoints", job=job_id):
            raise BadInput(
                f"{job_id} is {job.state} and has no checkpoint, so there is nothing to finish it with",
                hint="cancel it to end it without a result",
            )
        return deployment.store.apply(*_asking(job, "finish", now_ms), *_requeued(job, now_ms))

    return until_done(
        deployment, job_id, _once(deployment, "finish", act), leave=frozenset(), refuse="finished early", seen=seen
    )


def _requeued(job: Job, now_ms: int) -> list[Write]:
    """Return the writes that let a paused job have a node again, which is to write its result; `_asking` has raised its version."""
    if job.state != "paused":
        return []
    because = f"{WAITS}, to be finished as its owner asked"
    verdict = Verdict(attempt="canceled", job="queued", attempts_failed=job.attempts_failed, because=because)
    return [moving(replace(job, version=job.version + 1), verdict, now_ms), event(job.id, "queued", because, now_ms)]


def _once(deployment: Deployment, kind: WishKind, act: JobChange) -> JobChange:
    """Return the change that is made only if the owner's wish is not known yet."""

    def once(job: Job, live: Row | None) -> bool | None:
        known = any(wish.kind == kind for wish in load_wishes(deployment, job.id))
        return None if known else act(job, live)

    return once


def _asking(job: Job, kind: WishKind, now_ms: int) -> list[Write]:
    """Return the writes of a wish. The version fails them if the job moved on, or if another request asked the same in this moment."""
    told, because = ASKED[kind]
    return [
        guard("change_job", id=job.id, version=job.version),
        write("add_wish", job=job.id, kind=kind, now=now_ms),
        event(job.id, told, because, now_ms),
    ]


def _refuse_pictures(row: Row, verb: str) -> None:
    if KINDS[row["kind"]].renders:
        raise BadInput(f"{row['id']} renders pictures and cannot {verb}", hint="ask it of the job that trains")


def _safe(deployment: Deployment, job: str) -> str:
    kept = deployment.store.load("checkpoints", job=job)
    return f"its newest checkpoint is of step {kept[0]['step']}" if kept else "it has no checkpoint yet"


def tell(deployment: Deployment, hold: Hold, beat: Beat) -> tuple[bool, bool]:
    """Return what the node of a heartbeat is to do: save, and finish. Record that it heard of it."""
    rows = deployment.store.load("wishes_of_attempt", attempt=hold.attempt)
    wishes = [Wish(**{name: row[name] for name in COLUMNS}) for row in rows]
    told = [
        write("tell_wish", job=row["job"], kind=row["kind"], attempt=hold.attempt, step=beat.step)
        for row in rows
        if row["attempt"] != hold.attempt
    ]
    if told:
        deployment.store.apply(*told)
    return are_to_save(wishes, hold.attempt), any(wish.kind == "finish" for wish in wishes)
