"""Routes for experiments: members submit and steer them, viewers look."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query, Request

from gangline.api.answers.paging import next_link
from gangline.api.answers.repeats import Repeat
from gangline.api.lanes import UserRoute, json_response
from gangline.api.who import Member, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.experiments.terms import STRICT, BudgetUsd, ExperimentAsked, JobsAtOnce
from gangline.core.experiments.views import ExperimentPage, ExperimentPlanView, ExperimentRunView, ExperimentView
from gangline.core.jobs.lists.cursor import CURSOR_MAX
from gangline.service.experiments import plan, query, steer, submit
from gangline.service.experiments.tend import tend_experiment

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)
PAGE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExperiment(ExperimentAsked):
    """The `spec` that the jobs have in common, as `POST /v1/jobs` takes it, and how they differ: every combination of the values of `vary`,
    the settings of each job in `list`, or settings that are drawn at `random`; at most one of these. With `seeds`, each combination is
    trained that many times, with the spec's seed and those after it.

    At most `at_once` jobs are in progress (null: no limit), and none is released that `budget_usd` would not pay for. Jobs are compared by
    `measure`, by default `held_out_loss` if there are held-out photos, else `loss`. `halving` ends jobs early that fall behind.
    """

    __pydantic_config__: ClassVar[Any] = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChange:
    """What to change of an experiment; a field that is absent or null stays. `any_number` and `any_cost` take the limits away."""

    __pydantic_config__: ClassVar[Any] = STRICT
    at_once: JobsAtOnce | None = None
    budget_usd: BudgetUsd | None = None
    any_number: bool = False
    any_cost: bool = False


@router.post("/experiments", status_code=201)
def submit_experiment(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, wanted: NewExperiment, repeat: Repeat
) -> ExperimentView:
    """Submit jobs over a grid of settings, all of them or none: at most 1,000. Each is a job as any other, held until its turn comes.

    A repeated request with the same `Idempotency-Key` returns the same experiment.
    """
    with repeat.alone(project):
        made = submit.submit_all(
            deployment,
            project,
            wanted,
            lambda planned: plan.planned_price(deployment, project, planned, now),
            now,
            owner=member.id,
            request=repeat.within(project),
        )
        tend_experiment(deployment, made, now)
        return query.experiment_view(deployment, project, made, now)


@router.post("/experiments/plan")
def plan_experiment(
    deployment: ThisDeployment, now: Now, project: ViewerOf, wanted: NewExperiment
) -> ExperimentPlanView:
    """Show what an experiment would take: its jobs, steps, hours and dollars. Nothing is changed, and its files need not be uploaded."""
    return plan.experiment_plan(deployment, project, wanted, now)


@router.get("/experiments")
def list_experiments(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    limit: Annotated[int, Query(ge=1, le=query.PAGE_MAX)] = PAGE,
    cursor: Annotated[str | None, Query(max_length=CURSOR_MAX)] = None,
) -> ExperimentPage:
    """List the project's experiments, newest first. `next` is the `cursor` of the next page, and the header `Link` its address."""
    page = query.page_of_experiments(deployment, project, now, limit=limit, cursor=cursor)
    answer = json_response(page)
    if page.next:
        asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        answer.headers["Link"] = next_link([*asked, ("cursor", page.next)])
    return answer  # type: ignore[return-value] # in a lane, a response is the answer as it is


@router.get("/experiments/{experiment}")
def show_experiment(deployment: ThisDeployment, now: Now, project: ViewerOf, experiment: str) -> ExperimentView:
    """Show an experiment: what it waits for, its jobs by state, its cost and its best job so far."""
    return query.experiment_view(deployment, project, experiment, now)


@router.get("/experiments/{experiment}/runs")
def list_runs(deployment: ThisDeployment, now: Now, project: ViewerOf, experiment: str) -> list[ExperimentRunView]:
    """List the jobs of an experiment in the order of their numbers, with the settings in which they differ and what they measured."""
    return query.runs_view(deployment, project, experiment, now)


@router.post("/experiments/{experiment}/stop")
def stop_experiment(deployment: ThisDeployment, now: Now, project: MemberOf, experiment: str) -> ExperimentView:
    """Cancel all jobs of an experiment that have not ended. One that has ended stays as it is."""
    steer.stop_runs(deployment, project, experiment, now)
    return query.experiment_view(deployment, project, experiment, now)


@router.post("/experiments/{experiment}/resume")
def resume_experiment(deployment: ThisDeployment, now: Now, project: MemberOf, experiment: str) -> ExperimentView:
    """Let the paused jobs of an experiment wait for their turn again. 422 if it was stopped or has ended."""
    steer.resume_runs(deployment, project, experiment, now)
    return query.experiment_view(deployment, project, experiment, now)


@router.patch("/experiments/{experiment}")
def change_experiment(
    deployment: ThisDeployment, now: Now, project: MemberOf, experiment: str, changes: ExperimentChange
) -> ExperimentView:
    """Change how many jobs run at once, and the budget. 422 if the experiment has ended."""
    wish = steer.TermsWish(**{name: getattr(changes, name) for name in ExperimentChange.__slots__})
    steer.change_terms(deployment, project, experiment, wish, now)
    return query.experiment_view(deployment, project, experiment, now)
