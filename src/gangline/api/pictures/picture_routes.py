"""Routes for the sample pictures of a job: viewers look at them, members choose a step."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le
from fastapi import APIRouter, Query, Request, Response
from pydantic import StrictInt

from gangline.api.answers.images import JPEG, lasting_jpeg
from gangline.api.answers.paging import PART_MAX, PartAfter, as_part
from gangline.api.lanes import UserRoute
from gangline.api.who import NUMBER_MAX, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.files import Sha256
from gangline.core.pictures.views import PictureView, WinnerView
from gangline.service.jobs import query
from gangline.service.pictures import listing, thumbnails, winner

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)


@router.get("/jobs/{job}/pictures")
def list_pictures(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    job: str,
    after: PartAfter = None,
    limit: Annotated[int, Query(ge=1, le=PART_MAX, description="List at most this many.")] = PART_MAX,
) -> list[PictureView]:
    """List the sample pictures of a job so far, by prompt and seed, then by step, each with a signed URL to download it and whether the
    weights of its step are stored: those after the one at the path `after`, at most `limit`."""
    found = listing.pictures_of_job(deployment, query.owned(deployment, project, job), after, limit + 1, now)
    return as_part(request, found, limit, lambda picture: picture.path)  # type: ignore[return-value]


@router.get("/jobs/{job}/pictures/{sha256}/thumbnail", response_class=Response, responses=JPEG)
def show_picture_thumbnail(deployment: ThisDeployment, project: ViewerOf, job: str, sha256: Sha256) -> Response:
    """Return a small copy of a sample picture: a JPEG of at most 256 pixels. 404 before it was made, some seconds after the picture has
    arrived, and of a picture that cannot be decoded."""
    found = query.owned(deployment, project, job)
    return lasting_jpeg(thumbnails.picture_thumbnail(deployment, found, sha256))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenStep:
    """The step whose pictures are best."""

    step: Annotated[StrictInt, Ge(0), Le(NUMBER_MAX)]


@router.put("/jobs/{job}/winner")
def choose_step(deployment: ThisDeployment, project: MemberOf, job: str, chosen: ChosenStep) -> WinnerView:
    """Choose a step of a job, instead of one that was chosen before. Its weights are kept until another is chosen or the job is deleted,
    and the job gets the label `winner` with the step. 404 if the weights are not stored."""
    query.owned(deployment, project, job)
    return winner.choose_winner(deployment, job, chosen.step)


@router.delete("/jobs/{job}/winner")
def undo_choice(deployment: ThisDeployment, project: MemberOf, job: str) -> WinnerView:
    """Undo the choice of a step: its weights expire by their age again, unless they were pinned before, and the label goes."""
    query.owned(deployment, project, job)
    return winner.undo_winner(deployment, job)
