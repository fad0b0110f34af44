"""Extend a job that has ended to more steps: show what the learning rate would do, and submit the job that continues it."""

import json
from dataclasses import dataclass, replace
from typing import NoReturn

from gangline.core.errors import BadInput
from gangline.core.job import ENDED
from gangline.core.parsing import to_json
from gangline.core.runs.contract import parse_manifest
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView, extended, notes, ways
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.spec import parse_spec
from gangline.ports.store import Row
from gangline.service.content.inputs import checkpoints_to_resume
from gangline.service.datasets.named import version_of_job
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.labels import inherited_labels
from gangline.service.jobs.submit import NOBODY, Asker, earlier_job, queue, read_submission

SCHEDULES: tuple[ExtensionSchedule, ...] = ("keep", "stretch")


@dataclass(frozen=True, slots=True)
class _Start:
    """The newest checkpoint of a job that has ended, and the last step that it took and kept something of: its result, if it has one."""

    continues: Continued
    reached: int


def what_extends(deployment: Deployment, job: Row, steps: int, schedule: ExtensionSchedule) -> ExtensionView:
    """Return what extending a job to `steps` steps in all would do. Nothing changes. Raise as `extend` does."""
    spec = _spec_of(job)
    start = _start(deployment, job, steps)
    made: dict[ExtensionSchedule, TrainingSpec] = {
        each: _made(spec, steps, each, start.continues) for each in SCHEDULES
    }
    found = ways(spec, start.reached, made)
    chosen = next((way for way in found if way.schedule == schedule), found[0])
    return ExtensionView(
        job=job["id"],
        name=job["name"],
        from_step=start.continues.step,
        reached_step=start.reached,
        steps=steps,
        steps_before=spec.steps,
        schedule=chosen.schedule,
        ways=found,
        notes=notes(spec, start.continues.step, start.reached, chosen),
        spec=to_json(made[schedule]),
    )


def extend(
    deployment: Deployment,
    project: str,
    job: Row,
    steps: int,
    schedule: ExtensionSchedule,
    now_ms: int,
    *,
    request: str | None = None,
    asker: Asker = NOBODY,
) -> str:
    """Submit the job that continues this one to `steps` steps in all, from its newest checkpoint and with its labels, and return its id.

    Raise `BadInput` if the job has not ended, trains nothing, keeps no checkpoint or has taken as many steps, and `InvalidSpec` if its
    other settings do not allow as many.
    """
    earlier = earlier_job(deployment, project, request, asker)
    if earlier:
        return earlier
    spec = _spec_of(job)
    continues = _start(deployment, job, steps).continues
    made, _ = read_submission(deployment, project, to_json(_made(spec, steps, schedule, continues)), parse_spec)
    return queue(
        deployment,
        project,
        made,
        name=job["name"],
        request=request,
        now_ms=now_ms,
        begins_from=continues.job,
        begins_step=continues.step,
        asker=replace(asker, labels=inherited_labels(deployment, job["id"])),
        dataset=version_of_job(deployment, job["id"]),
    )


def _spec_of(job: Row) -> TrainingSpec:
    _refuse_other_kinds(job)
    spec = parse_spec(json.loads(job["spec"]))
    assert isinstance(spec, TrainingSpec), "no other kind has steps to add"
    return spec


def _made(spec: TrainingSpec, steps: int, schedule: ExtensionSchedule, continues: Continued) -> TrainingSpec:
    """Return the new spec. Raise `InvalidSpec` if its settings contradict each other."""
    made = parse_spec(to_json(extended(spec, steps, schedule, continues)))
    assert isinstance(made, TrainingSpec)
    return made


def _start(deployment: Deployment, job: Row, steps: int) -> _Start:
    if job["state"] not in ENDED:
        raise BadInput(
            f"{job['id']} is {job['state']}: only a job that has ended can be extended",
            hint="finish it first: it then ends with what it has",
        )
    kept = checkpoints_to_resume(deployment, job["id"], job["begins_from"])
    if not kept:
        _refuse_without_checkpoint(deployment, job)
    newest = kept[0]
    reached = (job["ended_step"] or job["steps"]) if job["state"] == "succeeded" else newest["step"]
    if steps <= reached:
        raise BadInput(
            f"{job['id']} has reached step {reached}, so it cannot be extended to {steps}",
            hint=f"give more steps than the {reached} that it has, counted in all: {reached + job['steps']} adds {job['steps']}",
        )
    if steps > STEPS_MAX:
        raise BadInput(f"{steps} steps are more than a job may have", hint=f"it may have {STEPS_MAX}")
    spec_hash = parse_manifest(json.loads(newest["manifest"])).spec_hash
    return _Start(Continued(job=newest["job"], step=newest["step"], spec_hash=spec_hash), reached)


def _refuse_other_kinds(job: Row) -> None:
    if KINDS[job["kind"]].renders:
        raise BadInput(f"{job['id']} renders pictures and cannot be extended", hint="extend the job that trains")
    if not KINDS[job["kind"]].ours:
        raise BadInput(
            f"{job['id']} runs a command, and only the command knows its steps",
            hint="submit it again with other arguments: `gangline run`",
        )


def _refuse_without_checkpoint(deployment: Deployment, job: Row) -> NoReturn:
    """Say that no checkpoint is kept, and whether there was one."""
    gone = deployment.store.load("gone_checkpoints", job=job["id"])
    if not gone:
        raise BadInput(
            f"{job['id']} ended before its first checkpoint, so there is nothing to continue",
            hint="submit a job with as many steps as you want",
        )
    raise BadInput(
        f"{job['id']} keeps no checkpoint any more ({gone[0]['because']})",
        hint="submit a job with as many steps as you want, and pin the checkpoint of the next one that you may extend: "
        "`gangline jobs checkpoints JOB --pin STEP`",
    )
