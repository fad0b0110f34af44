"""Choose the step of a job whose pictures are best: its weights stay, and a label finds the job."""

from collections.abc import Iterable

from gangline.core.errors import NotFound, Unreachable
from gangline.core.jobs.lists.labels import WINNER, with_changes
from gangline.core.pictures.views import WinnerView
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.labels import labels_of
from gangline.service.pictures.listing import StepWeights, step_weights


def choose_winner(deployment: Deployment, job_id: str, step: int) -> WinnerView:
    """Choose a step instead of the one that was chosen before: its weights are kept until another is chosen or the job is deleted, and the
    label `winner` of the job is the step.

    Raise `NotFound` if its weights are not stored, `BadInput` if the job would have too many labels.
    """
    for _ in range(TRIES_MAX):
        job = _job(deployment, job_id)
        weights = _weights(deployment, job)
        if weights.of(step) == "none":
            raise _not_stored(job_id, step, weights)
        before, labels = _winner(deployment, job_id), labels_of(deployment, job_id)
        with_changes(labels, {WINNER: str(step)})
        checkpoint = _to_pin(weights, step, before)
        label = write("put_label", job=job_id, key=WINNER, value=str(step))
        chosen = write("put_winner", job=job_id, step=step, checkpoint=checkpoint)
        pinned = [guard("pin_checkpoint", id=checkpoint, pinned=1)] if checkpoint else []
        let_go = _letting_go(job_id, before, but=checkpoint)
        if deployment.store.apply(_changing(job), *let_go, *pinned, label, chosen):
            return WinnerView(job=job_id, step=step, weights=weights.of(step))
    raise _moved_on(job_id)


def undo_winner(deployment: Deployment, job_id: str) -> WinnerView:
    """Let the weights of the chosen step expire again, unless their checkpoint was pinned before, and remove the label."""
    none = WinnerView(job=job_id, step=None, weights="none")
    for _ in range(TRIES_MAX):
        job, before = _job(deployment, job_id), _winner(deployment, job_id)
        if before is None:
            return none
        dropped = write("drop_winner", job=job_id), write("drop_label", job=job_id, key=WINNER)
        if deployment.store.apply(_changing(job), *_letting_go(job_id, before, but=""), *dropped):
            return none
    raise _moved_on(job_id)


def _job(deployment: Deployment, job_id: str) -> Row:
    job = deployment.store.load("job", id=job_id)[0]
    if job["removed_ms"] is not None:
        raise NotFound(f"{job_id} was deleted")
    return job


def _winner(deployment: Deployment, job_id: str) -> Row | None:
    return next(iter(deployment.store.load("winner", job=job_id)), None)


def _weights(deployment: Deployment, job: Row) -> StepWeights:
    return step_weights(
        deployment, job, [row["path"] for row in deployment.store.load("pictures_of_job", job=job["id"])]
    )


def _to_pin(weights: StepWeights, step: int, before: Row | None) -> str:
    """Return the checkpoint that is pinned for a step; "" if it needs none, or if its owner has pinned that one himself."""
    checkpoint = weights.checkpoint(step) if weights.of(step) == "checkpoint" else None
    if checkpoint is None or (checkpoint["pinned"] and (before is None or before["checkpoint"] != checkpoint["id"])):
        return ""
    return str(checkpoint["id"])


def _letting_go(job_id: str, before: Row | None, *, but: str) -> Iterable[Write]:
    """Yield the writes that let expire what stayed for the step that was chosen before."""
    if before is not None:
        yield write("keep_previews", id=job_id)
        if before["checkpoint"] not in ("", but):
            yield write("pin_checkpoint", id=before["checkpoint"], pinned=0)


def _changing(job: Row) -> Write:
    """Return the guard of a choice: two at once would each let go what the other one keeps, and pictures that expire just now are gone."""
    return guard("change_job", id=job["id"], version=job["version"])


def _not_stored(job_id: str, step: int, weights: StepWeights) -> NotFound:
    steps = ", ".join(map(str, weights.steps)) or "none"
    return NotFound(
        f"the weights of step {step} of {job_id} are not stored", hint=f"those of these steps are stored: {steps}"
    )


def _moved_on(job_id: str) -> Unreachable:
    return Unreachable(f"{job_id} changed {TRIES_MAX} times meanwhile; try again")
