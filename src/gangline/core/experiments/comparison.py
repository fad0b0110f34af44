"""Compare the jobs of an experiment side by side: jobs of the same settings together, those with the best results first. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.experiments.runs import by_combination, mean_value
from gangline.core.experiments.terms import Measure
from gangline.core.experiments.views import ExperimentRunView
from gangline.core.money.cost import CostPart

NOT_COMPARED = ("failed", "canceled")
"""Jobs in these states have no result, so what they measured before does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinationView:
    """The jobs of one combination of settings, each with a seed of its own: means over those with a result to compare, and sums of all.

    `compared` counts the jobs that the means are over; None where there is none. `numbers` are those of its jobs, the best first.
    """

    settings: Mapping[str, Any]
    jobs: int
    compared: int
    held_out_loss: float | None
    best_held_out_loss: float | None
    loss: float | None
    training_s: float
    cost_usd: float
    cost_lacks: tuple[CostPart, ...]
    states: tuple[str, ...]
    numbers: tuple[int, ...]


def value_of_run(run: ExperimentRunView, measure: Measure) -> float | None:
    """Return what a job is compared by; None if it has no result to compare."""
    if run.state in NOT_COMPARED:
        return None
    return run.best_held_out_loss if measure == "held_out_loss" else run.loss


def mean_over_seeds(run: ExperimentRunView, runs: Sequence[ExperimentRunView], measure: Measure) -> float | None:
    """Return the mean of the jobs with the settings of this one that `ranked_groups` compares; None if it is alone, or one of them has
    trained and not measured anything."""
    values = [value_of_run(each, measure) for each in runs if each.settings == run.settings and _counts(each, measure)]
    return mean_value(values) if len(values) > 1 else None


def ranked_runs(runs: Sequence[ExperimentRunView], measure: Measure) -> tuple[ExperimentRunView, ...]:
    """Return the jobs, the best first, then those without a result in the order of their numbers."""
    return tuple(sorted(runs, key=lambda run: (*_last_if_none(value_of_run(run, measure)), run.number)))


def ranked_combinations(runs: Sequence[ExperimentRunView], measure: Measure) -> tuple[CombinationView, ...]:
    """Return the combinations as `ranked_groups` orders them."""
    return tuple(_combined(group, measure) for group in ranked_groups(runs, measure))


def ranked_groups(runs: Sequence[ExperimentRunView], measure: Measure) -> list[tuple[ExperimentRunView, ...]]:
    """Return the jobs of each combination, those of the best mean first, then those without one in the order of their numbers.

    As where the best job is decided, a combination has no mean while one of its jobs has trained and not measured anything. In each, the
    best job is the first.
    """

    def order(group: Sequence[ExperimentRunView]) -> tuple[bool, float, int]:
        counting = [run for run in group if _counts(run, measure)]
        number = (counting or group)[0].number
        return *_last_if_none(mean_value([value_of_run(run, measure) for run in counting])), number

    return [ranked_runs(group, measure) for group in sorted(by_combination(runs), key=order)]


def _counts(run: ExperimentRunView, measure: Measure) -> bool:
    has_begun = run.step > 0 or value_of_run(run, measure) is not None
    return run.state == "succeeded" or (run.state not in NOT_COMPARED and has_begun)


def _combined(group: Sequence[ExperimentRunView], measure: Measure) -> CombinationView:
    compared = [run for run in group if value_of_run(run, measure) is not None]
    return CombinationView(
        settings=group[0].settings,
        jobs=len(group),
        compared=len(compared),
        held_out_loss=_mean([run.held_out_loss for run in compared]),
        best_held_out_loss=_mean([run.best_held_out_loss for run in compared]),
        loss=_mean([run.loss for run in compared]),
        training_s=round(sum(run.training_s for run in group), 3),
        cost_usd=round(sum(run.cost_usd for run in group), 6),
        cost_lacks=tuple(dict.fromkeys(part for run in group for part in run.cost_lacks)),
        states=tuple(run.state for run in group),
        numbers=tuple(run.number for run in group),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _last_if_none(value: float | None) -> tuple[bool, float]:
    return value is None, value or 0.0


def differing_settings(
    of: Sequence[ExperimentRunView] | Sequence[CombinationView], settings: Sequence[str]
) -> list[str]:
    """Return the settings that have several values; all of them if none has."""
    found = [name for name in settings if len({repr(each.settings.get(name)) for each in of}) > 1]
    return found or list(settings)


def grid_settings(runs: Sequence[ExperimentRunView], settings: Sequence[str]) -> tuple[str, str] | None:
    """Return the two settings whose values are the rows and the columns of a sheet; None unless exactly two differ."""
    differing = [name for name in settings if len({canonical_json(run.settings.get(name)) for run in runs}) > 1]
    return (differing[0], differing[1]) if len(differing) == 2 else None
