"""Decide which job of an experiment is the best so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.experiments.grid import combination_words
from gangline.core.experiments.runs import ExperimentRun, by_combination, mean_value
from gangline.core.experiments.terms import Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class BestView:
    """The best job so far. `value` is what it is compared by, `mean` that of its combination over `seeds` jobs; `because` compares."""

    job: str
    name: str
    settings: Mapping[str, Any]
    seed: int
    value: float
    step: int
    mean: float
    seeds: int
    because: str


def best_so_far(runs: Sequence[ExperimentRun], measure: Measure, *, ended: bool) -> BestView | None:
    """Return the job of the least value in the combination of the least mean; None while no combination has all its values.

    Once the experiment has `ended`, only jobs that succeeded count, so that the best one has a result. Jobs that failed, were canceled, or
    were ended by halving never count. Of equal ones the job with the least number is the best.
    """
    found = list[tuple[float, int, list[ExperimentRun]]]()
    for together in by_combination(runs):
        counting = [run for run in together if _counts(run, measure, ended=ended)]
        value = mean_value([run.measured.value(measure) for run in counting])
        if value is not None:
            found.append((value, counting[0].number, counting))
    if not found:
        return None
    found.sort(key=lambda each: each[:2])
    mean, _, together = found[0]
    run = min(together, key=lambda run: (run.measured.value(measure) or 0.0, run.number))
    return BestView(
        job=run.job,
        name=run.name,
        settings=run.settings,
        seed=run.seed,
        value=run.measured.value(measure) or 0.0,
        step=run.measured.best_step if measure == "held_out_loss" else run.measured.step,
        mean=mean,
        seeds=len(together),
        because=_because(run, measure, mean, len(together), found[1:]),
    )


def best_of_left(recorded: BestView, runs: Sequence[ExperimentRun], measure: Measure) -> BestView:
    """Return the job that was the best when its experiment ended, compared with the jobs that are left: some were deleted since."""
    left = best_so_far(runs, measure, ended=True)
    if left is None:
        return recorded
    if left.job == recorded.job:
        return left
    return replace(recorded, because=f"{recorded.name} was the best before jobs were deleted; {left.because}")


def _counts(run: ExperimentRun, measure: Measure, *, ended: bool) -> bool:
    has_begun = run.step > 0 or run.measured.value(measure) is not None
    return run.state == "succeeded" or (not ended and not run.has_ended and has_begun)


def _because(
    run: ExperimentRun,
    measure: Measure,
    mean: float,
    seeds: int,
    others: Sequence[tuple[float, int, Sequence[ExperimentRun]]],
) -> str:
    what = "held-out loss" if measure == "held_out_loss" else "loss"
    own, next_one = _figures(mean, others[0][0] if others else None)
    over = f"a mean {what} of {own} over {seeds} seeds" if seeds > 1 else f"a {what} of {own}"
    named = f" with {combination_words(run.settings)}" if run.settings else ""
    if not others:
        return f"{run.name}{named} is the only one with a result to compare: {over}"
    return f"{run.name}{named} has {over}, the next combination has {next_one}"


def _figures(own: float, other: float | None) -> tuple[str, str]:
    """Return two values to four digits, or to six where they would look equal."""
    if other is None:
        return f"{own:.4g}", ""
    digits = 4 if f"{own:.4g}" != f"{other:.4g}" else 6
    return f"{own:.{digits}g}", f"{other:.{digits}g}"
