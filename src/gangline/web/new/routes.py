"""A new job: its form, its plan while one types, and its submission, by the use cases of the API."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Request, Response

from gangline.api.answers.repeats import Repeat
from gangline.api.who import Member, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.datasets.names import parse_dataset_reference
from gangline.core.datasets.views import DatasetView
from gangline.core.errors import NotFound
from gangline.core.experiments.grid import with_combination
from gangline.core.files import STAND_IN
from gangline.core.job import JobState
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.parsing import InvalidSpec, Problem, to_json
from gangline.core.specs.form import form_of_settings
from gangline.core.specs.templates import Preset
from gangline.core.views import BaseView
from gangline.service.content.bases import bases_of
from gangline.service.datasets.versions import datasets_of, ready_version
from gangline.service.deployment import Deployment
from gangline.service.experiments import plan as experiment_plans
from gangline.service.experiments import submit as experiments
from gangline.service.experiments.tend import tend_experiment
from gangline.service.jobs import submit
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.placing.planning import planned
from gangline.service.jobs.submit import Asker
from gangline.web.frame.forms import SentFields, SentForm
from gangline.web.frame.routes import like, moved_to, page_router, part, screen
from gangline.web.frame.visitor import Looking
from gangline.web.new.asked import FILES, HUB, KIND, AskedJob, read_asked
from gangline.web.new.tiny import NAME, add_tiny_base, tiny_of, with_settings_of_tiny
from gangline.web.new.values import (
    FilledForm,
    form_of_fields,
    form_of_job,
    form_of_recipe,
    foundation_of_job,
    lora_of_job,
)

router = page_router()
SHOWN_MAX = 10_000
"""The most photos that a plan counts before they are uploaded."""
STEP_MAX = 10_000_000
ON_HUB = {
    "stabilityai/stable-diffusion-xl-base-1.0": "Stable Diffusion XL",
    "stable-diffusion-v1-5/stable-diffusion-v1-5": "Stable Diffusion 1.5",
}
"""Bases that most people mean, as their repositories on the hub, and what people call them."""
ID_MAX = 100
WROTE: tuple[tuple[JobState, ...], ...] = (("succeeded",), ("running", "queued", "paused"))
"""Jobs of captions whose model another one can have: one that is known to write comes first."""


def presets_of(request: Request) -> Mapping[str, Preset]:
    presets: Mapping[str, Preset] = request.app.state.presets
    return presets


@router.get("/new", **like("POST /v1/jobs"))
def show_form(
    request: Request,
    deployment: ThisDeployment,
    project: MemberOf,
    look: Looking,
    now: Now,
    job: Annotated[str, Query(alias="from", max_length=ID_MAX)] = "",
    step: Annotated[int | None, Query(ge=0, le=STEP_MAX)] = None,
    dataset: Annotated[str, Query(max_length=ID_MAX + 20)] = "",
) -> Response:
    """Show an empty form, or that of a job like another one: with `step`, one that starts from the LoRA of that step (0: the last one)."""
    form = form_of_settings(KIND)
    filled = (
        form_of_job(deployment, project, form, job)
        if job
        else FilledForm(photos=_reference(deployment, project, dataset))
    )
    lora = lora_of_job(deployment, project, job, step or None, now) if job and step is not None else ""
    bases = bases_of(deployment, project)
    return screen(
        look,
        "new/screen.html",
        **_settings(request, filled, bases, "" if filled.job else _first(bases)),
        lora=lora,
        writer=_writer(deployment, project, now),
        datasets=_usable(datasets_of(deployment, project)),
        now_ms=now,
        key=secrets.token_urlsafe(18),
        may=look.may("member"),
    )


@router.post("/new/plan", **like("POST /v1/jobs/plan", "POST /v1/experiments/plan"))
def plan_form(request: Request, deployment: ThisDeployment, now: Now, project: ViewerOf, sent: SentFields) -> Response:
    """Show what the form's job would do, where, how long that takes and what it costs, and what the form still lacks."""
    asked = _asked(request, deployment, project, sent)
    spec, lacks = _complete(asked.spec, _count(sent))
    if "base" in lacks:
        return part("new/plan.html", plan=None, experiment=None, lacks=lacks)
    first = {name: values[0] for name, values in asked.vary.items()}
    plan = planned(deployment, project, with_combination(spec, first), now)
    wanted = AskedJob(spec=spec, name=asked.name, labels=asked.labels, vary=asked.vary, terms=asked.terms)
    experiment = (
        experiment_plans.experiment_plan(deployment, project, wanted.experiment(), now) if asked.is_experiment else None
    )
    return part("new/plan.html", plan=plan, experiment=experiment, lacks=lacks)


@router.post("/new/recipe", **like("POST /v1/jobs/plan"))
def fill_form(request: Request, deployment: ThisDeployment, project: ViewerOf, sent: SentFields) -> Response:
    """Show the settings of a recipe or a spec in the form. Photos that are chosen stay, and so does the base, unless the recipe has one."""
    found = form_of_recipe(form_of_settings(KIND), sent.text("recipe"))
    filled, told = _beside_photos(replace(found, job=sent.text("from")), sent)
    bases = bases_of(deployment, project)
    chosen = _chosen(sent) or ("" if filled.job else _first(bases))
    base = filled.base or ("" if "base" in filled.rest else chosen)
    return part("new/settings.html", **_settings(request, filled, bases, base, told))


@router.post("/new/tiny", **like("POST /v1/bases"))
def add_tiny_on_page(
    request: Request, deployment: ThisDeployment, now: Now, project: MemberOf, sent: SentFields
) -> Response:
    """Add the tiny base that comes with Gangline, and show the form with the settings that suit it."""
    tiny = tiny_of(request)
    if tiny is None:
        raise NotFound("no base comes with this server", hint="`gangline bases add` adds one")
    added, form = add_tiny_base(deployment, project, tiny, now), form_of_settings(KIND)
    filled = with_settings_of_tiny(form, form_of_fields(form, sent), tiny.recipe)
    told = "The tiny base is there, and the form has settings that suit it."
    return part("new/settings.html", **_settings(request, filled, bases_of(deployment, project), added.name, told))


@router.post("/new", **like("POST /v1/jobs", "POST /v1/experiments"))
def submit_form(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    member: Member,
    repeat: Repeat,
    sent: SentFields,
) -> Response:
    """Submit the job, or the experiment, and show it. The form's own key makes one job of a request that is repeated."""
    asked = _asked(request, deployment, project, sent)
    _refuse_incomplete(asked.spec)
    with repeat.alone(project):
        if not asked.is_experiment:
            job = submit.submit(
                deployment,
                project,
                asked.spec,
                name=asked.name,
                request=repeat.request_of_job,
                now_ms=now,
                asker=Asker(owner=member.id, labels=asked.labels, fingerprint=repeat.fingerprint),
            )
            return moved_to(f"/jobs/{job}")
        made = experiments.submit_all(
            deployment,
            project,
            asked.experiment(),
            lambda found: experiment_plans.planned_price(deployment, project, found, now),
            now,
            owner=member.id,
            request=repeat.within(project),
        )
        tend_experiment(deployment, made, now)
        return moved_to(f"/experiments/{made}")


def _asked(request: Request, deployment: Deployment, project: str, sent: SentForm) -> AskedJob:
    form, job = form_of_settings(KIND), sent.text("from")
    foundation = foundation_of_job(deployment, project, form, job) if job else {}
    return read_asked(form, sent, presets_of(request), foundation)


def _complete(spec: Mapping[str, Any], count: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a spec that can be planned, and what it lacks: with stand-ins for photos that are on their way, and for a prompt."""
    lacks = tuple(name for name in ("photos", "base", "prompt") if not spec.get(name))
    made = dict(spec)
    if "photos" in lacks:
        one = to_json(STAND_IN)
        made["photos"] = [
            one | {"path": f"{number}.jpg", "sha256": f"{number:064x}"} for number in range(max(1, count))
        ]
        made.pop("held_out", None)
        if made.get("mask") == "files":
            del made["mask"]
    if "prompt" in lacks and not spec.get("subjects"):
        made["prompt"] = "a photo"
    return made, tuple(name for name in lacks if not (name == "photos" and count))


def _count(sent: SentForm) -> int:
    text = sent.text("count")
    return min(int(text), SHOWN_MAX) if len(text) < 9 and text.isdecimal() else 0


def _refuse_incomplete(spec: Mapping[str, Any]) -> None:
    says = {"photos": "add photos to train on", "base": "choose a base"}
    problems = tuple(Problem(name, words) for name, words in says.items() if not spec.get(name))
    if problems:
        raise InvalidSpec(problems)


def _settings(
    request: Request, filled: FilledForm, bases: Sequence[BaseView], base: str, told: str = ""
) -> dict[str, Any]:
    """Return what the fields of the form are made of. A `base` that the project has no name for is one on the hub. `told` is what is said
    once the form is filled in."""
    names = [each.name for each in bases]
    known = not base or base in names or base in ON_HUB
    return {
        "form": form_of_settings(KIND),
        "filled": filled,
        "presets": list(presets_of(request).values()),
        "bases": bases,
        "base": base if known else HUB,
        "hub": "" if known or base == HUB else base,
        "on_hub": ON_HUB,
        "told": told,
        "tiny": tiny_of(request) is not None and NAME not in names,
    }


def _beside_photos(filled: FilledForm, sent: SentForm) -> tuple[FilledForm, str]:
    """Return the form of a recipe without the files that photos of the form replace, and what is said about that."""
    told, files = "The form has the settings of the recipe.", sorted(name for name in FILES if name in filled.rest)
    if not files:
        return filled, told
    if not (filled.photos or sent.text("photos")):
        return filled, f"{told} Until photos are chosen here, these count, too: {', '.join(files)}."
    rest = {name: value for name, value in filled.rest.items() if name not in FILES}
    return replace(filled, rest=rest), f"{told} Left out, as the form's photos have their own: {', '.join(files)}."


def _writer(deployment: Deployment, project: str, now_ms: int) -> str:
    """Return the newest job that wrote captions, or is to: another one can have its model. "" if the project has no model for that."""
    found = (
        page_of_jobs(deployment, project, JobFilters(kind="caption", states=states), now_ms, limit=1).jobs
        for states in WROTE
    )
    return next((jobs[0].id for jobs in found if jobs), "")


def _first(bases: Sequence[BaseView]) -> str:
    """Return the first base that is ready, by name; "" without one."""
    return next((base.name for base in bases if base.state == "ready"), "")


def _chosen(sent: SentForm) -> str:
    return sent.text("hub") or HUB if sent.text("base") == HUB else sent.text("base")


def _usable(datasets: Sequence[DatasetView]) -> list[DatasetView]:
    """Return the data sets that a job can train on, now or after their check, the newest first."""
    usable = (each for each in datasets if each.newest.state != "refused")
    return sorted(usable, key=lambda each: each.newest.made_ms, reverse=True)


def _reference(deployment: Deployment, project: str, text: str) -> str:
    """Return the version of a data set that an address names, with its number."""
    if not text:
        return ""
    named = parse_dataset_reference(text)
    return f"{named.name}@{ready_version(deployment, project, named)['number']}"
