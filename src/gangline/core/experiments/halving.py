"""Decide successive halving (Jamieson & Talwalkar 2016): all jobs train a few steps, the best of them some more, and so on.

A job that has a held-out loss at its rung is paused there until all others of the rung have one, or have ended. Then the best 1/eta of them
continue, at least one, and the others end. Losses are compared at the rung's own step, so the decision does not depend on when it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.errors import BadInput
from gangline.core.experiments.runs import ExperimentRun, price_of_step
from gangline.core.experiments.terms import HalvingTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is decided about a job, and why."""

    run: ExperimentRun
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingStep:
    """What to do now: jobs to pause at their rung, jobs that continue to the next one, and jobs that do not; each with its reason.

    Of those that do not, some may have ended before: they are out as well, else the rung would be decided again among them.
    """

    pause: tuple[Ruling, ...] = ()
    advance: tuple[Ruling, ...] = ()
    drop: tuple[Ruling, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """What halving saved: the steps that the jobs it ended did not train, and their price by the experiment's own mean cost of a step, None
    if that is not known."""

    jobs: int
    steps: int
    usd: float | None


def rungs_of(terms: HalvingTerms, steps: int) -> tuple[int, ...]:
    """Return the steps at which jobs are compared: `min_steps`, `eta` times as many, and so on, below the last step."""
    found, at = list[int](), terms.min_steps
    while at < steps:
        found.append(at)
        at *= terms.eta
    return tuple(found)


def check_halving(terms: HalvingTerms, steps: set[int], every: set[int | None]) -> None:
    """Raise `BadInput` if jobs of these numbers of `steps`, which measure the held-out loss each `every` steps, cannot be halved."""
    if len(steps) != 1:
        raise BadInput("halving: the jobs have different numbers of steps", hint="vary other settings than steps")
    rungs = rungs_of(terms, *steps)
    if not rungs:
        raise BadInput(
            f"halving: min_steps is {terms.min_steps}, and the jobs have {steps.pop()} steps",
            hint="give fewer min_steps",
        )
    if len(every) != 1 or (interval := every.pop()) is None:
        raise BadInput(
            "halving compares held-out losses, and the jobs do not measure them at one interval",
            hint="give held_out photos, and held_out_every_steps",
        )
    missed = next((rung for rung in rungs if rung % interval), None)
    if missed:
        raise BadInput(
            f"halving: the held-out loss is measured every {interval} steps, and not at step {missed}, where jobs are compared",
            hint="give held_out_every_steps that divides min_steps",
        )


def next_step(runs: Sequence[ExperimentRun], terms: HalvingTerms, steps: int) -> HalvingStep:
    """Return what to do now with the jobs of an experiment that have `steps` steps each."""
    pause, advance, drop = list[Ruling](), list[Ruling](), list[Ruling]()
    for number, at in enumerate(rungs_of(terms, steps)):
        here = [run for run in runs if run.rung == number and not run.dropped]
        arrived = [run for run in here if at in run.measured.at_rungs and run.state not in ("failed", "canceled")]
        waiting = [run for run in here if not run.has_ended and at not in run.measured.at_rungs]
        if waiting or any(run.rung < number and not run.has_ended for run in runs):
            pause += [
                Ruling(run=run, because=_why_paused(at)) for run in arrived if run.in_progress and not run.pausing
            ]
        elif arrived:
            ranked = sorted(arrived, key=lambda run: (run.measured.at_rungs[at], run.number))
            kept = max(1, len(ranked) // terms.eta)
            words = [_rank(run, at, place, len(ranked)) for place, run in enumerate(ranked, 1)]
            advance += [
                Ruling(run=run, because=f"continues: {said}") for run, said in zip(ranked[:kept], words, strict=False)
            ]
            drop += [
                Ruling(run=run, because=f"ended by halving: {said}, and the best {kept} continued")
                for run, said in zip(ranked[kept:], words[kept:], strict=True)
            ]
    return HalvingStep(pause=tuple(pause), advance=tuple(advance), drop=tuple(drop))


def saved_by_halving(runs: Sequence[ExperimentRun], planned: float | None) -> SavedView:
    """Return what the jobs that halving ended did not train. One that had ended by itself before saved nothing."""
    dropped = [run for run in runs if run.dropped and run.state == "canceled"]
    steps = sum(run.steps - run.step for run in dropped)
    return saved_view(len(dropped), steps, price_of_step(runs, planned))


def saved_view(jobs: int, steps: int, price: float | None) -> SavedView:
    """Return what this many jobs saved by not training these steps, at this price of a step in micro-dollars."""
    return SavedView(jobs=jobs, steps=steps, usd=None if price is None else round(steps * price / 1e6, 6))


def _why_paused(at: int) -> str:
    return f"paused at step {at} by successive halving until the other jobs have got there or have ended"


def _rank(run: ExperimentRun, at: int, place: int, of: int) -> str:
    return f"its held-out loss at step {at} was {run.measured.at_rungs[at]:.4g}, number {place} of {of}"
