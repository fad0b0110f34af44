"""Show what an experiment would take before it is submitted: jobs, steps, hours and dollars."""

from dataclasses import dataclass

from gangline.core.experiments.halving import rungs_of
from gangline.core.experiments.terms import ExperimentAsked
from gangline.core.experiments.views import ExperimentPlanView
from gangline.core.jobs.placement import PlacementView
from gangline.core.specs.spec import Spec, workload
from gangline.core.words import counted, times_in_words
from gangline.service.deployment import Deployment
from gangline.service.experiments.submit import PlannedExperiment, plan_runs
from gangline.service.jobs.placing.placement import place_spec

WORKS_MAX = 20
"""At most this many kinds of work are looked up for one plan: each takes some milliseconds, and drawn settings make hundreds."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Seconds and dollars of a step, at the least and at the most; None where no node says."""

    seconds: tuple[float, float] | None
    usd: tuple[float, float] | None


def experiment_plan(deployment: Deployment, project: str, asked: ExperimentAsked, now_ms: int) -> ExperimentPlanView:
    """Return what an experiment would take. Nothing is changed, and its files need not be uploaded. Raise as submitting it would."""
    planned = plan_runs(deployment, project, asked)
    ranges = _ranges(deployment, project, planned, now_ms)
    steps = sum(run.spec.steps for run in planned.runs)
    share = _share_left(asked, planned)
    of_runs = [(run.spec.steps, ranges[workload(run.spec)]) for run in planned.runs]
    seconds = [(count, known.seconds) for count, known in of_runs]
    usd = [(count, known.usd) for count, known in of_runs]
    hours_low, hours_high = _sum(seconds, 0, share / 3600), _sum(seconds, 1, 1 / 3600)
    prepares = len({run.prepares for run in planned.runs} - {""})
    return ExperimentPlanView(
        jobs=len(planned.runs),
        settings=planned.settings,
        combinations=planned.combinations,
        seeds=asked.seeds,
        steps=steps,
        steps_least=round(steps * share),
        hours_low=hours_low,
        hours_high=hours_high,
        usd_low=_sum(usd, 0, share),
        usd_high=_sum(usd, 1, 1.0),
        prepares=prepares,
        measure=planned.measure,
        because=_because(planned, steps, prepares, hours_low),
    )


def planned_price(deployment: Deployment, project: str, planned: PlannedExperiment, now_ms: int) -> float | None:
    """Return the mean price of a step in micro-dollars, on the most expensive node that is known for each kind of work, as any of
    them may take a job; None if none is known."""
    ranges = _ranges(deployment, project, planned, now_ms)
    total = _sum([(run.spec.steps, ranges[workload(run.spec)].usd) for run in planned.runs], 1, 1e6)
    return None if total is None else total / sum(run.spec.steps for run in planned.runs)


def _ranges(deployment: Deployment, project: str, planned: PlannedExperiment, now_ms: int) -> dict[str, _Range]:
    """Return what a step of each kind of work takes. Of very many kinds some are looked up, and the others are between those."""
    works = {workload(run.spec): run.spec for run in planned.runs}
    asked = [*works][:WORKS_MAX]
    found = {work: _range(deployment, project, works[work], now_ms) for work in asked}
    others = _Range(_widest([each.seconds for each in found.values()]), _widest([each.usd for each in found.values()]))
    return {work: found.get(work, others) for work in works}


def _widest(ranges: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [each for each in ranges if each is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if len(known) == len(ranges) else None


def _range(deployment: Deployment, project: str, spec: Spec, now_ms: int) -> _Range:
    found = place_spec(deployment, project, spec, now_ms)
    paces = [seconds for took in found.took for seconds in took.seconds_per_step]
    usd = [seconds * price / 3600 for gpu, price in _prices(found) for seconds in _paces_of(found, gpu)]
    return _Range(
        (min(paces), max(paces)) if paces else None,
        (min(usd), max(usd)) if usd else None,
    )


def _prices(found: PlacementView) -> list[tuple[str, float]]:
    """Return the class of GPU and the dollars an hour of each node that could take the job, or could be rented for it."""
    offers = [*found.fitting, *found.rentable]
    return [(each.gpu, each.price_usd_per_hour) for each in offers if each.price_usd_per_hour is not None]


def _paces_of(found: PlacementView, gpu: str) -> tuple[float, ...]:
    return next((took.seconds_per_step for took in found.took if took.gpu == gpu), ())


def _sum(runs: list[tuple[int, tuple[float, float] | None]], which: int, factor: float) -> float | None:
    """Return the sum over all jobs; None if it is not known of one."""
    known = [(count, both) for count, both in runs if both is not None]
    return round(factor * sum(count * both[which] for count, both in known), 6) if len(known) == len(runs) else None


def _share_left(asked: ExperimentAsked, planned: PlannedExperiment) -> float:
    """Return the share of all steps that is left with halving: of the jobs at each rung, the best 1/eta continue."""
    if not asked.halving:
        return 1.0
    steps, jobs = planned.runs[0].spec.steps, len(planned.runs)
    total, before, left = 0, 0, jobs
    for rung in (*rungs_of(asked.halving, steps), steps):
        total, before = total + left * (rung - before), rung
        left = max(1, left // asked.halving.eta)
    return total / (jobs * steps)


def _because(planned: PlannedExperiment, steps: int, prepares: int, hours: float | None) -> str:
    jobs = len(planned.runs)
    took = "" if hours is not None else "; how long a step takes is not known, as no node has done such work yet"
    if jobs == 1:
        return f"1 job of {counted(steps, 'step')}{', which prepares its photos once' * bool(prepares)}{took}"
    shared = f", which prepare their photos {times_in_words(prepares)} in all" if prepares else ""
    return f"{counted(jobs, 'job')} of {steps:,} steps together{shared}{took}"
