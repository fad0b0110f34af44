"""Experiments: their list, one of them with its table and its pictures, their streams, and what their owners do with them."""

import json
from typing import Annotated, Any

from fastapi import Query, Response

from gangline.api.experiments.experiment_routes import ExperimentChange
from gangline.api.lanes import USERS
from gangline.api.who import MemberOf, Now, ThisDeployment
from gangline.core.display import NAME_MAX
from gangline.core.experiments.views import ExperimentRunView, ExperimentView
from gangline.core.jobs.lists.cursor import CURSOR_MAX
from gangline.core.parsing import parse_as
from gangline.core.specs.sample import TrainingSpec, previews_of
from gangline.core.specs.spec import parse_task
from gangline.service.deployment import Deployment
from gangline.service.experiments import query, steer
from gangline.service.jobs.query import owned
from gangline.service.pictures.together import pictures_of_jobs
from gangline.web.experiments.compared import compared
from gangline.web.experiments.followed import LISTED, ExperimentScreen, ExperimentsScreen
from gangline.web.experiments.matrix import (
    MatrixAsked,
    PictureMatrix,
    axes_of,
    picture_matrix,
    shows_all_prompts,
)
from gangline.web.frame.forms import SentFields
from gangline.web.frame.routes import like, page_router, part, screen, toast
from gangline.web.frame.visitor import Looking, LookingLater
from gangline.web.live.following import Following

router = page_router()
READS = ("GET /v1/experiments/{experiment}", "GET /v1/experiments/{experiment}/runs")
PROMPTS_MAX, STOPS_MAX = 1_000, 100_000
Cursor = Annotated[str | None, Query(max_length=CURSOR_MAX)]
Axis = Annotated[str, Query(max_length=NAME_MAX)]


@router.get("/experiments", **like("GET /v1/experiments"))
def show_experiments(deployment: ThisDeployment, look: Looking, cursor: Cursor = None) -> Response:
    """Show the experiments of the project, newest first."""
    page = query.page_of_experiments(deployment, look.project, look.now_ms, limit=LISTED, cursor=cursor)
    return screen(look, "experiments/list.html", page=page, cursor=cursor)


@router.get("/live/experiments", **like("GET /v1/experiments"))
async def follow_experiments(following: Following, look: LookingLater, cursor: Cursor = None) -> Response:
    """Follow the list. The stream ends with the key of its session."""
    seen = await USERS.run(look.get)
    may = seen.may("member")
    return await following.follow(
        seen, ("experiments", seen.project, cursor, may), lambda: ExperimentsScreen(seen.project, cursor, may=may)
    )


@router.get("/experiments/{experiment}", **like(*READS))
def show_experiment_screen(
    deployment: ThisDeployment,
    look: Looking,
    experiment: str,
    sort: Axis = "",
    by: Axis = "",
) -> Response:
    """Show an experiment: its table in the order that the address says, its curves and its pictures."""
    found = query.experiment_view(deployment, look.project, experiment, look.now_ms)
    runs = query.runs_view(deployment, look.project, experiment, look.now_ms)
    table = compared(found, runs, sort=sort, by_job=by == "job")
    return screen(
        look,
        "experiments/screen.html",
        found=found,
        table=table,
        may=look.may("member"),
        **_pictures(deployment, look.project, found, runs, MatrixAsked()),
    )


@router.get("/live/experiments/{experiment}", **like(*READS))
async def follow_one_experiment(
    following: Following, deployment: ThisDeployment, look: LookingLater, experiment: str, by: Axis = ""
) -> Response:
    """Follow an experiment. The stream ends with the key of its session."""
    seen = await USERS.run(look.get)
    await USERS.run(lambda: query.experiment_view(deployment, seen.project, experiment, seen.now_ms))
    by_job, may = by == "job", seen.may("member")
    return await following.follow(
        seen,
        ("experiment", seen.project, experiment, by_job, may),
        lambda: ExperimentScreen(seen.project, experiment, by_job=by_job, may=may),
    )


@router.get("/experiments/{experiment}/pictures", **like(*READS))
def show_matrix(
    deployment: ThisDeployment,
    look: Looking,
    experiment: str,
    down: Axis = "",
    across: Axis = "",
    prompt: Annotated[int, Query(ge=0, le=PROMPTS_MAX)] = 0,
    stop: Annotated[int, Query(ge=-1, le=STOPS_MAX)] = -1,
    stops: Annotated[int, Query(ge=0, le=STOPS_MAX)] = 0,
) -> Response:
    """Show the pictures of the jobs beside each other, of one step."""
    found = query.experiment_view(deployment, look.project, experiment, look.now_ms)
    runs = query.runs_view(deployment, look.project, experiment, look.now_ms)
    asked = MatrixAsked(down=down, across=across, prompt=prompt, stop=stop, stops=stops)
    return part("experiments/pictures.html", found=found, **_pictures(deployment, look.project, found, runs, asked))


@router.post("/experiments/{experiment}/change", **like("PATCH /v1/experiments/{experiment}"))
def change_limits(
    deployment: ThisDeployment, now: Now, project: MemberOf, sent: SentFields, experiment: str
) -> Response:
    """Change how many jobs run at once, and the budget. An empty field takes a limit away."""
    given = {name: sent.text(name) for name in ("at_once", "budget_usd") if sent.text(name)}
    wanted = parse_as(ExperimentChange, given, options=True)
    wish = steer.TermsWish(
        at_once=wanted.at_once,
        budget_usd=wanted.budget_usd,
        any_number=sent.has("at_once") and wanted.at_once is None,
        any_cost=sent.has("budget_usd") and wanted.budget_usd is None,
    )
    steer.change_terms(deployment, project, experiment, wish, now)
    return toast(f"Changed. {query.experiment_view(deployment, project, experiment, now).because}")


@router.post("/experiments/{experiment}/stop", **like("POST /v1/experiments/{experiment}/stop"))
def stop_all_runs(deployment: ThisDeployment, now: Now, project: MemberOf, experiment: str) -> Response:
    steer.stop_runs(deployment, project, experiment, now)
    return toast(query.experiment_view(deployment, project, experiment, now).because)


@router.post("/experiments/{experiment}/resume", **like("POST /v1/experiments/{experiment}/resume"))
def resume_paused_runs(deployment: ThisDeployment, now: Now, project: MemberOf, experiment: str) -> Response:
    steer.resume_runs(deployment, project, experiment, now)
    return toast(f"Resumed. {query.experiment_view(deployment, project, experiment, now).because}")


def _pictures(
    deployment: Deployment, project: str, found: ExperimentView, runs: list[ExperimentRunView], asked: MatrixAsked
) -> dict[str, Any]:
    """Return the matrix of pictures, and the prompts of the first job's spec, which all have in common unless the prompts differ."""
    prompts = _prompts(deployment, project, runs)
    matrix: PictureMatrix | None = None
    if runs:
        every = shows_all_prompts(asked, axes_of(runs, found.settings, len(prompts)))
        last_steps = {run.job: run.step for run in runs if run.step}
        pictures = pictures_of_jobs(deployment, last_steps, None if every else asked.prompt)
        matrix = picture_matrix(found, runs, asked, pictures, len(prompts))
    return {"matrix": matrix, "prompts": prompts}


def _prompts(deployment: Deployment, project: str, runs: list[ExperimentRunView]) -> list[str]:
    if not runs:
        return []
    task = parse_task(json.loads(owned(deployment, project, runs[0].job)["spec"]))
    return [each.prompt for each in previews_of(task)] if isinstance(task, TrainingSpec) else []
