"""Routes for a project's jobs and files: viewers read, members upload and steer."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen
from fastapi import APIRouter, Query, Request

from gangline.api.answers.paging import PartAfter, PartLimit, as_part, part_in_order
from gangline.api.answers.repeats import Repeat
from gangline.api.lanes import UserRoute
from gangline.api.tags.entity_tags import AsSeen
from gangline.api.who import NUMBER_MAX, Member, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.display import Label
from gangline.core.files import FILE_BYTES_MAX, Sha256, check_parts
from gangline.core.fleet.explained import JobOffers
from gangline.core.jobs.clone import CloneView
from gangline.core.jobs.lists.labels import LABELS_MAX, LabelKey, LabelValue
from gangline.core.jobs.placement import PlacementView
from gangline.core.plans.view import JobPlanView
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView
from gangline.core.views import ArtifactView, BlobView, EventView, JobView, LogView
from gangline.service.jobs import query, steer, submit, wishes
from gangline.service.jobs.cloning import clone as cloning
from gangline.service.jobs.extension import extend as extension
from gangline.service.jobs.lists.labels import change_labels
from gangline.service.jobs.placing import explaining, placement, planning
from gangline.service.jobs.submit import Asker

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)
LABEL_CHANGES_MAX = 2 * LABELS_MAX
"""Labels of one request: all that a job has may go, and as many come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file to upload, with the SHA-256 of each part of 16 MiB if it has more than one."""

    sha256: Sha256
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    parts: Annotated[tuple[Sha256, ...], MaxLen(10_000)] = ()

    def __post_init__(self) -> None:
        check_parts(self.bytes, self.parts)


@router.post("/blobs")
def offer_blob(deployment: ThisDeployment, now: Now, project: MemberOf, blob: Blob) -> BlobView:
    """Check whether the project has this file. If not, the answer says how to upload it; repeat the request after the upload."""
    return submit.blob_here(deployment, project, blob.sha256, blob.bytes, now, blob.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A spec (see `LoraSpec`) that is not submitted; its files need not be uploaded."""

    spec: dict[str, Any]


@router.post("/plans")
def place_job(deployment: ThisDeployment, now: Now, project: ViewerOf, question: Question) -> PlacementView:
    """Show where a job could run if it was submitted now, or why nowhere; how many jobs come before it, and how fast such work was.

    Nothing is changed.
    """
    return placement.placement(deployment, project, question.spec, now)


@router.post("/jobs/plan")
def plan_job(deployment: ThisDeployment, now: Now, project: ViewerOf, question: Question) -> JobPlanView:
    """Show what a LoRA's training would do, where it could run, how long that takes on each class of GPU and what it costs.

    The spec is one as `POST /v1/jobs` takes; `photos` may be a version of a data set. Nothing is changed, and neither the hub nor a
    provider is asked. 422 for settings that cannot be used, and for another kind of job.
    """
    return planning.planned(deployment, project, question.spec, now)


@router.get("/jobs/{job}/offers")
def explain_offers(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> JobOffers:
    """Show the offers of all pools for a job, those first on which a finished step is expected to cost least, with the reasons."""
    return explaining.explain(deployment, project, job, now)


@router.get("/jobs/{job}")
def show_job(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> JobView:
    """Show a job with its spec, its attempts, its progress and its cost."""
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/cancel")
def cancel_job(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, seen: AsSeen
) -> JobView:
    """Cancel a job. A job that has ended stays as it is."""
    query.owned(deployment, project, job)
    steer.cancel(deployment, job, now, seen, by=member.id)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/pause")
def pause_job(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, seen: AsSeen
) -> JobView:
    """Pause a job. A node at work saves and releases it first. 422 if the job has ended."""
    query.owned(deployment, project, job)
    steer.pause(deployment, job, now, seen, by=member.id)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/resume")
def resume_job(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, job: str, seen: AsSeen
) -> JobView:
    """Resume a paused job. A job that was not paused stays as it is. 422 if the job has ended."""
    query.owned(deployment, project, job)
    steer.resume(deployment, job, now, seen, by=member.id)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/save")
def save_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str, seen: AsSeen) -> JobView:
    """Have the job save a checkpoint now. Its node hears it with its next heartbeat; after an interruption the next one does it.

    A second request before that changes nothing. 422 if no node works on the job.
    """
    query.owned(deployment, project, job)
    wishes.ask_to_save(deployment, job, now, seen)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/sample")
def sample_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str, seen: AsSeen) -> JobView:
    """Have pictures rendered of what the job has now, by another node if one has time: it saves a checkpoint for them first.

    A second request before they have come changes nothing. 422 if the job has ended, or has nothing to show.
    """
    query.owned(deployment, project, job)
    wishes.ask_for_samples(deployment, job, now, seen)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/finish")
def finish_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str, seen: AsSeen) -> JobView:
    """Have the job end now, with the result of the steps that it has taken. One that no node works on goes to a node that writes it.

    422 if the job has ended, if it runs a command, or if it has neither a node nor a checkpoint.
    """
    query.owned(deployment, project, job)
    wishes.ask_to_finish(deployment, job, now, seen)
    return query.job(deployment, project, job, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChanges:
    """The labels to set; null removes one, and a label that is not named stays."""

    labels: Annotated[dict[LabelKey, LabelValue | None], MaxLen(LABEL_CHANGES_MAX)]


@router.patch("/jobs/{job}/labels")
def label_job(
    deployment: ThisDeployment, now: Now, project: MemberOf, job: str, changes: LabelChanges, seen: AsSeen
) -> JobView:
    """Change the labels of a job, also of one that has ended. Its spec stays as it is."""
    query.owned(deployment, project, job)
    change_labels(deployment, job, changes.labels, seen)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/retry", status_code=201)
def retry_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    member: Member,
    job: str,
    repeat: Repeat,
    from_checkpoint: bool = False,
    from_step: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
) -> JobView:
    """Submit the spec of a job that has ended as a new job with its labels; with `from_checkpoint`, from its newest checkpoint, with
    `from_step` from that of this step.

    422 if the job has not ended, or keeps no checkpoint to begin from; 404 if it keeps none of that step.
    """
    query.owned(deployment, project, job)
    asker = Asker(owner=member.id, fingerprint=repeat.fingerprint)
    begin = {"from_checkpoint": from_checkpoint, "from_step": from_step}
    with repeat.alone(project):
        made = steer.submit_again(deployment, project, job, now, **begin, request=repeat.request_of_job, asker=asker)
        return query.job(deployment, project, made, now)


StepsInAll = Annotated[int, Query(ge=1, le=NUMBER_MAX)]


@router.get("/jobs/{job}/extension")
def show_extension(
    deployment: ThisDeployment,
    project: ViewerOf,
    job: str,
    steps: StepsInAll,
    schedule: ExtensionSchedule = "stretch",
) -> ExtensionView:
    """Show what extending a job that has ended to `steps` steps in all would do: the checkpoint that it continues from, the learning rate
    with each `schedule`, and the new spec, which `/v1/plans` takes. Nothing is changed.

    422 if the job has not ended, trains nothing, keeps no checkpoint, or has taken as many steps.
    """
    return extension.what_extends(deployment, query.owned(deployment, project, job), steps, schedule)


@router.post("/jobs/{job}/extend", status_code=201)
def extend_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    member: Member,
    job: str,
    repeat: Repeat,
    steps: StepsInAll,
    schedule: ExtensionSchedule = "stretch",
) -> JobView:
    """Submit a new job that continues one that has ended to `steps` steps in all, from its newest checkpoint.

    With `stretch` the learning rate follows the schedule of a job of as many steps; with `keep` it follows the old one, and then stays what
    it was at the last step. 422 as `GET /v1/jobs/{job}/extension`.
    """
    old, asker = query.owned(deployment, project, job), Asker(owner=member.id, fingerprint=repeat.fingerprint)
    request = repeat.request_of_job
    with repeat.alone(project):
        made = extension.extend(deployment, project, old, steps, schedule, now, request=request, asker=asker)
        return query.job(deployment, project, made, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedClone:
    """The settings of a job to change, as its spec has them or dotted (`needs.pool`), and a name for the new one. `base` may be a text, as
    in a submission."""

    changes: dict[str, Any] = field(default_factory=dict)
    name: Label = ""


@router.post("/jobs/{job}/clone/plan")
def plan_clone(deployment: ThisDeployment, project: ViewerOf, job: str, wanted: WantedClone) -> CloneView:
    """Show what cloning a job would submit: the new spec, which `/v1/plans` takes, and what differs. Nothing is changed.

    422 as `POST /v1/jobs/{job}/clone`.
    """
    found = query.owned(deployment, project, job)
    return cloning.what_clones(deployment, project, found, wanted.changes, wanted.name)


@router.post("/jobs/{job}/clone", status_code=201)
def clone_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    member: Member,
    job: str,
    wanted: WantedClone,
    repeat: Repeat,
) -> JobView:
    """Submit a new job with the inputs and the labels of this one, in whichever state that is, and with some other settings.

    A changed base is resolved and pinned as at a submission. 422 for settings that cannot be used, and for other inputs.
    """
    old, asker = query.owned(deployment, project, job), Asker(owner=member.id, fingerprint=repeat.fingerprint)
    given = {"name": wanted.name, "request": repeat.request_of_job, "asker": asker}
    with repeat.alone(project):
        made = cloning.clone(deployment, project, old, wanted.changes, now, **given)
        return query.job(deployment, project, made, now)


@router.get("/jobs/{job}/events")
def list_events(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOf,
    job: str,
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
    limit: PartLimit = None,
) -> list[EventView]:
    """List the events of a job after the event number `after`."""
    found = query.events_after(deployment, project, job, after)
    return as_part(request, found, limit, lambda event: str(event.number))  # type: ignore[return-value]


@router.get("/jobs/{job}/logs")
def read_logs(
    deployment: ThisDeployment, project: ViewerOf, job: str, after: str | None = None, before: str | None = None
) -> LogView:
    """Return one page of a job's log. Repeat the request with `after` set to `next` of the answer.

    With `before`, which is such a position too, the page has nothing that begins there or later.
    """
    return query.log_page(deployment, project, job, after, before)


@router.get("/jobs/{job}/artifacts")
def list_artifacts(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    job: str,
    after: PartAfter = None,
    limit: PartLimit = None,
) -> list[ArtifactView]:
    """List the results of a job, each with a signed URL to download it."""
    found = part_in_order(query.artifacts_of(deployment, project, job, now), after, lambda artifact: artifact.path)
    return as_part(request, found, limit, lambda artifact: artifact.path)  # type: ignore[return-value]
