"""What is done with one job from its screen, each by the use case that does it for the API."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le
from fastapi import Response

from gangline.api.retention.routes import CheckpointStep
from gangline.api.user_routes import LabelChanges, StepsInAll, WantedClone
from gangline.api.who import NUMBER_MAX, Member, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.display import printable
from gangline.core.parsing import parse_as
from gangline.core.runs.extension import ExtensionSchedule
from gangline.core.specs.changes import parse_changes_of
from gangline.service.jobs import query, steer
from gangline.service.jobs.cloning import clone as cloning
from gangline.service.jobs.extension import extend as extension
from gangline.service.jobs.lists.labels import change_labels
from gangline.service.jobs.placing.placement import placement
from gangline.service.jobs.placing.planning import planned
from gangline.service.jobs.submit import Asker
from gangline.service.retention import removal, storage
from gangline.web.frame.forms import SentFields, SentForm
from gangline.web.frame.routes import like, moved_to, page_router, part, toast
from gangline.web.new.asked import KIND

router = page_router()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedExtension:
    """What the form to extend a job sends: the steps in all, and what becomes of the schedule."""

    steps: Annotated[int, Ge(1), Le(NUMBER_MAX)]
    schedule: ExtensionSchedule = "stretch"


@router.post("/jobs/{job}/labels", **like("PATCH /v1/jobs/{job}/labels"))
def submit_labels(deployment: ThisDeployment, project: MemberOf, job: str, sent: SentFields) -> Response:
    """Set the labels of the form, one `key=value` in each line, and remove those that its reader took away."""
    query.owned(deployment, project, job)
    before, wanted = _labels(sent.text("before")), _labels(sent.text("labels"))
    changes = parse_as(LabelChanges, {"labels": {key: None for key in before if key not in wanted} | wanted})
    changed = change_labels(deployment, job, changes.labels)
    return toast("The labels are changed" if changed else "The labels are as they were")


@router.post("/jobs/{job}/checkpoints/{step}/pin", **like("PUT /v1/jobs/{job}/checkpoints/{step}/pin"))
def submit_pin(deployment: ThisDeployment, project: MemberOf, job: str, step: CheckpointStep) -> Response:
    """Keep a checkpoint until it is unpinned."""
    storage.pin(deployment, query.owned(deployment, project, job), step, pinned=True)
    return toast(f"The checkpoint of step {step} is kept until you unpin it")


@router.post("/jobs/{job}/checkpoints/{step}/unpin", **like("DELETE /v1/jobs/{job}/checkpoints/{step}/pin"))
def submit_unpin(deployment: ThisDeployment, project: MemberOf, job: str, step: CheckpointStep) -> Response:
    """Let a checkpoint go by age again."""
    storage.pin(deployment, query.owned(deployment, project, job), step, pinned=False)
    return toast(f"The checkpoint of step {step} goes by age again")


@router.post("/jobs/{job}/retry", **like("POST /v1/jobs/{ended}/retry"))
def submit_retry(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, sent: SentFields
) -> Response:
    """Submit the same again: from its beginning, from the newest checkpoint, or from that of a step."""
    query.owned(deployment, project, job)
    begin = sent.text("from")
    made = steer.submit_again(
        deployment,
        project,
        job,
        now,
        from_checkpoint=begin == "newest",
        from_step=int(begin) if begin.isdecimal() and len(begin) < len(str(NUMBER_MAX)) else None,
        asker=Asker(owner=member.id),
    )
    return moved_to(f"/jobs/{made}")


@router.get("/jobs/{job}/extension", **like("GET /v1/jobs/{ended}/extension"))
def preview_extension(
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    job: str,
    steps: StepsInAll,
    schedule: ExtensionSchedule = "stretch",
) -> Response:
    """Show what extending the job would do, with the time and the price of its steps by those that it has taken."""
    found = extension.what_extends(deployment, query.owned(deployment, project, job), steps, schedule)
    return part("job/extension.html", found=found, job=query.job(deployment, project, job, now).summary)


@router.post("/jobs/{job}/extend", **like("POST /v1/jobs/{ended}/extend"))
def submit_extension(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, sent: SentFields
) -> Response:
    """Submit the job that continues this one."""
    old = query.owned(deployment, project, job)
    wanted = parse_as(WantedExtension, {name: sent.text(name) for name in ("steps", "schedule")}, options=True)
    asker = Asker(owner=member.id)
    made = extension.extend(deployment, project, old, wanted.steps, wanted.schedule, now, asker=asker)
    return moved_to(f"/jobs/{made}")


@router.post("/jobs/{job}/clone/plan", **like("POST /v1/jobs/{job}/clone/plan", "POST /v1/plans", "POST /v1/jobs/plan"))
def preview_clone(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, sent: SentFields) -> Response:
    """Show what the clone would be, whether a node could take it and, where the kind has such a plan, its price, time and memory."""
    old = query.owned(deployment, project, job)
    wanted = _wanted(old["kind"], sent)
    found = cloning.what_clones(deployment, project, old, wanted.changes, wanted.name)
    plan = planned(deployment, project, found.spec, now) if old["kind"] == KIND else None
    return part("job/clone.html", found=found, plan=plan, place=placement(deployment, project, found.spec, now))


@router.post("/jobs/{job}/clone", **like("POST /v1/jobs/{job}/clone"))
def submit_clone(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, sent: SentFields
) -> Response:
    """Submit the clone."""
    old, asker = query.owned(deployment, project, job), Asker(owner=member.id)
    wanted = _wanted(old["kind"], sent)
    made = cloning.clone(deployment, project, old, wanted.changes, now, name=wanted.name, asker=asker)
    return moved_to(f"/jobs/{made}")


@router.get("/jobs/{job}/removal", **like("GET /v1/jobs/{ended}/removal"))
def preview_removal(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> Response:
    """Show what would be deleted with the job."""
    found = removal.what_goes(deployment, query.owned(deployment, project, job), now)
    winner = next(iter(deployment.store.load("winner", job=job)), None)
    return part("job/removal.html", found=found, winner=winner)


@router.post("/jobs/{job}/delete", **like("DELETE /v1/jobs/{job}"))
def submit_removal(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> Response:
    """Delete the job, and go back to the list."""
    found = query.owned(deployment, project, job)
    removal.remove(deployment, job, now)
    return moved_to("/", f"{printable(found['name'] or job)} is deleted.")


def _labels(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines() if line.strip())
    return {key.strip(): value.strip() for key, _, value in lines}


def _wanted(kind: str, sent: SentForm) -> WantedClone:
    """Return the clone that a form asks for: its settings are `NAME=VALUE` lines, as `gangline jobs clone --set` takes them."""
    lines = [line for line in sent.text("settings").splitlines() if line.strip()]
    changes = parse_changes_of(kind, lines, "settings:")
    return parse_as(WantedClone, {"changes": changes, "name": sent.text("name")})
