"""The table of an experiment: its jobs, or its combinations of settings, by what differs between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from gangline.core.experiments.comparison import (
    CombinationView,
    differing_settings,
    ranked_combinations,
    ranked_groups,
    ranked_runs,
    value_of_run,
)
from gangline.core.experiments.views import ExperimentRunView, ExperimentView

FIGURES = ("value", "held_out_loss", "loss", "step", "training_s", "cost_usd", "rung", "state")
"""What a table can be ordered by, beside the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """The jobs of one combination of settings, the best first, or one of them. `value` is the mean of what they are compared by, `noise`
    its standard deviation over the seeds; None where fewer than two have a value."""

    together: CombinationView
    runs: Sequence[ExperimentRunView]
    value: float | None
    noise: float | None
    is_best: bool

    @property
    def id(self) -> str:
        return f"run-{min(run.number for run in self.runs)}"

    @property
    def step(self) -> int:
        return sum(run.step for run in self.runs)

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs)

    @property
    def rung(self) -> int:
        return max(run.rung for run in self.runs)

    @property
    def has_cost(self) -> bool:
        """Return whether one of its jobs has been worked on."""
        return bool(self.together.cost_usd or self.together.cost_lacks or self.step)

    @property
    def state(self) -> str:
        """Return the states of its jobs in few words."""
        states = [run.state for run in self.runs]
        if len(states) == 1:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    @property
    def because(self) -> str:
        """Return why its job is where it is; of several, of the first that has not succeeded."""
        return next((run.because for run in self.runs if run.state != "succeeded"), "")

    @property
    def figures(self) -> Mapping[str, Any]:
        """Return what the table can be ordered by."""
        return {
            "value": self.value,
            "held_out_loss": self.together.held_out_loss,
            "loss": self.together.loss,
            "step": self.step,
            "training_s": self.together.training_s,
            "cost_usd": self.together.cost_usd,
            "rung": self.rung,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTable:
    """The rows of an experiment. `settings` are the columns that differ; `sort` is what the rows are ordered by, with "-" before it from
    the largest, "" for the best first. `by_job`: each row is a job; `several`: some jobs differ in their seeds alone."""

    rows: Sequence[ComparedRow]
    settings: Sequence[str]
    sort: str
    by_job: bool
    several: bool

    def other_way(self, name: str) -> str:
        """Return what a click on a column orders by."""
        return f"-{name}" if self.sort == name else name

    def direction(self, name: str) -> str:
        """Return how the rows are ordered by a column, in ARIA's words."""
        return "ascending" if self.sort == name else "descending" if self.sort == f"-{name}" else "none"


def compared(
    found: ExperimentView, runs: Sequence[ExperimentRunView], *, sort: str = "", by_job: bool = False
) -> ComparedTable:
    """Return the table of an experiment."""
    groups = ranked_groups(runs, found.measure)
    several = any(len(group) > 1 for group in groups)
    by_job = by_job or not several
    shown = [(run,) for run in ranked_runs(runs, found.measure)] if by_job else groups
    rows = [_row(found, group) for group in shown]
    settings = differing_settings(runs, found.settings)
    return ComparedTable(
        rows=_ordered(rows, settings, sort), settings=settings, sort=sort, by_job=by_job, several=several
    )


def _row(found: ExperimentView, runs: Sequence[ExperimentRunView]) -> ComparedRow:
    (together,) = ranked_combinations(runs, found.measure)
    values = [value for run in runs if (value := value_of_run(run, found.measure)) is not None]
    return ComparedRow(
        together=together,
        runs=runs,
        value=sum(values) / len(values) if values else None,
        noise=stdev(values) if len(values) > 1 else None,
        is_best=found.best is not None and any(run.job == found.best.job for run in runs),
    )


def _ordered(rows: Sequence[ComparedRow], settings: Sequence[str], sort: str) -> Sequence[ComparedRow]:
    """Return the rows in this order, those without a value last in both directions. What is no column leaves the best first."""
    name, backwards = sort.removeprefix("-"), sort.startswith("-")
    read: Callable[[ComparedRow], Any]
    if name in FIGURES:
        read = lambda row: row.figures[name]  # noqa: E731
    elif name in settings:
        read = lambda row: row.together.settings.get(name)  # noqa: E731
    else:
        return rows
    known = [row for row in rows if read(row) is not None]
    known.sort(key=lambda row: sort_key(read(row)), reverse=backwards)
    return [*known, *(row for row in rows if read(row) is None)]


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Return a key that orders numbers by their size, and everything else behind them by its text."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, "" if is_number else str(value)
