"""The pictures of a job: the screen, its stream, one picture in full size, and the files of a step's weights."""

from fastapi import Response
from fastapi.responses import RedirectResponse

from gangline.api.lanes import USERS
from gangline.api.retention.routes import CheckpointStep
from gangline.api.who import Now, ThisDeployment, ViewerOf
from gangline.core.files import Sha256
from gangline.service.experiments.loading import experiment_of_job
from gangline.service.jobs import query
from gangline.service.pictures.weights import files_of_step, signed_picture
from gangline.web.frame.routes import like, page_router, part, screen
from gangline.web.frame.visitor import Looking, LookingLater
from gangline.web.live.following import Following
from gangline.web.pictures.followed import PicturesScreen, grid_of_job, offered_sampling

router = page_router()


@router.get("/jobs/{job}/pictures", **like("GET /v1/jobs/{job}/pictures", "GET /v1/jobs/{job}"))
def show_pictures(deployment: ThisDeployment, look: Looking, job: str) -> Response:
    """Show the pictures of a job. Which one is open is in the address, and the page's scripts open it."""
    found, may = query.summary_of(deployment, look.project, job, look.now_ms), look.may("member")
    return screen(
        look,
        "pictures/screen.html",
        job=found,
        grid=grid_of_job(deployment, look.project, job),
        experiment=experiment_of_job(deployment, job),
        offered=offered_sampling(deployment, look.project, job) if may else None,
        may=may,
    )


@router.get("/live/jobs/{job}/pictures", **like("GET /v1/jobs/{job}/pictures"))
async def follow_pictures(following: Following, deployment: ThisDeployment, look: LookingLater, job: str) -> Response:
    """Follow the pictures of a job. The stream ends with the key of its session."""
    seen = await USERS.run(look.get)
    await USERS.run(lambda: query.owned(deployment, seen.project, job))
    may = seen.may("member")
    key = ("pictures", seen.project, job, may)
    return await following.follow(seen, key, lambda: PicturesScreen(seen.project, job, may=may))


@router.get("/jobs/{job}/pictures/{sha256}", **like("GET /v1/jobs/{job}/pictures/{sha256}/thumbnail"))
def show_picture(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, sha256: Sha256) -> Response:
    """Lead to a picture in full size. The browser keeps the signed address for a part of the time for which it is valid, and the picture
    with it."""
    answer = RedirectResponse(signed_picture(deployment, query.owned(deployment, project, job), sha256, now))
    answer.headers["Cache-Control"] = f"private, max-age={round(deployment.policy.url_s / 4)}"
    return answer


@router.get(
    "/jobs/{job}/weights/{step}", **like("GET /v1/jobs/{job}/checkpoints/{step}", "GET /v1/jobs/{job}/artifacts")
)
def show_weights(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, step: CheckpointStep) -> Response:
    """Show the files of a step's weights, to download."""
    found = files_of_step(deployment, query.owned(deployment, project, job), step, now)
    return part("pictures/weights.html", step=step, files=found)
