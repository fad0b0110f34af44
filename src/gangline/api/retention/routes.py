"""Routes for what jobs keep: viewers read, members pin, unpin and delete."""

from typing import Annotated

from annotated_types import Ge, Le
from fastapi import APIRouter, Path

from gangline.api.lanes import UserRoute
from gangline.api.tags.entity_tags import AsSeen
from gangline.api.who import NUMBER_MAX, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.runs.kept import CheckpointFilesView, CheckpointView, RemovalView, StorageView
from gangline.service.jobs import query
from gangline.service.retention import removal, storage

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)

CheckpointStep = Annotated[int, Path(), Ge(0), Le(NUMBER_MAX)]


@router.get("/storage")
def show_storage(deployment: ThisDeployment, project: ViewerOf) -> StorageView:
    """Show what the project keeps in the object store: how much of each kind, until when, and what it costs."""
    return storage.storage_view(deployment, project)


@router.get("/jobs/{job}/checkpoints")
def list_checkpoints(deployment: ThisDeployment, project: ViewerOf, job: str) -> list[CheckpointView]:
    """List the checkpoints that the job keeps, newest first."""
    return storage.checkpoints(deployment, query.owned(deployment, project, job))


@router.get("/jobs/{job}/checkpoints/{step}")
def show_checkpoint(
    deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, step: CheckpointStep
) -> CheckpointFilesView:
    """Show the files of the job's checkpoint of this step, each with a signed URL to download it. 404 if no checkpoint of that step is
    kept."""
    return storage.checkpoint_files(deployment, query.owned(deployment, project, job), step, now)


@router.put("/jobs/{job}/checkpoints/{step}/pin")
def pin_checkpoint(
    deployment: ThisDeployment, project: MemberOf, job: str, step: CheckpointStep
) -> list[CheckpointView]:
    """Pin the job's checkpoint of this step: it is kept until it is unpinned or the job is deleted. 404 if no checkpoint of that step is
    kept.
    """
    return storage.pin(deployment, query.owned(deployment, project, job), step, pinned=True)


@router.delete("/jobs/{job}/checkpoints/{step}/pin")
def unpin_checkpoint(
    deployment: ThisDeployment, project: MemberOf, job: str, step: CheckpointStep
) -> list[CheckpointView]:
    """Unpin the job's checkpoint of this step: it expires by age again. 404 if no checkpoint of that step is kept."""
    return storage.pin(deployment, query.owned(deployment, project, job), step, pinned=False)


@router.get("/jobs/{job}/removal")
def show_removal(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> RemovalView:
    """Show what would be deleted with the job. 422 if it has not ended."""
    return removal.what_goes(deployment, query.owned(deployment, project, job), now)


@router.delete("/jobs/{job}")
def remove_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str, seen: AsSeen) -> RemovalView:
    """Delete a job that has ended, with its weights, pictures, checkpoints and logs.

    Uploaded files that no other job uses are deleted within a minute. The job's bills stay. 422 if the job has not ended.
    """
    query.owned(deployment, project, job)
    return removal.remove(deployment, job, now, seen)
