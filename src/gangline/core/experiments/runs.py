"""Define an experiment and its jobs as decisions see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Literal, Protocol, TypeVar

from gangline.core.canonical import canonical_json
from gangline.core.experiments.terms import HalvingTerms, Measure
from gangline.core.job import ENDED, JobState
from gangline.core.words import listed

RunWaits = Literal["", "rung", "budget"]
ExperimentState = Literal["running", "stopped", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What the metrics of a job come to: its last loss, its last and best held-out loss, each with its step, and the first held-out loss at
    or after each rung's step."""

    loss: float | None = None
    step: int = 0
    held_out_loss: float | None = None
    held_out_step: int = 0
    best_held_out_loss: float | None = None
    best_step: int = 0
    at_rungs: Mapping[int, float] = field(default_factory=dict)

    def value(self, measure: Measure) -> float | None:
        """Return what the job is compared by."""
        return self.best_held_out_loss if measure == "held_out_loss" else self.loss


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRun:
    """A job of an experiment.

    `held`: it waits for its experiment. `step` is the last step that it reported, `trained` says that one of its attempts got as far as
    training, `micro_usd` is what it has cost so far; `priced` says that nothing is missing in that. `prepares` is equal for jobs that
    can use the same prepared files, and empty if there are none. `rung` is how often it was among the best; `dropped`: halving ends it, and
    `because` says why. `pausing`: its node was asked to save and hand it back, or it is paused; `waits` is why its experiment did that.
    """

    job: str
    name: str
    number: int
    settings: Mapping[str, Any]
    seed: int
    state: JobState
    version: int
    held: bool = False
    pausing: bool = False
    steps: int
    step: int = 0
    trained: bool = False
    micro_usd: int = 0
    priced: bool = True
    prepares: str = ""
    rung: int = 0
    dropped: bool = False
    because: str = ""
    waits: RunWaits = ""
    measured: Measurements = Measurements()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def in_progress(self) -> bool:
        """Return whether it waits for a node, or has one. A paused job has none, and waits for nobody but its owner or its experiment."""
        return not self.held and self.state in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """`budget` is in micro-dollars, `price` in micro-dollars a step as it was planned; None: no limit, and not known."""

    id: str
    name: str
    state: ExperimentState
    because: str
    measure: Measure
    at_once: int | None
    budget: int | None
    halving: HalvingTerms | None
    price: float | None


STOPPED_BEFORE = "stopped; "
"""How the reason of an experiment begins that its owner had stopped before it ended."""


def how_jobs_ended(counts: Mapping[str, int]) -> str:
    """Return how the jobs of an experiment ended, given how many of them are in each state."""
    return listed([f"{count} {state}" for state, count in counts.items()]) if counts else "no job is left"


def is_as_recorded(recorded: str, counts: Mapping[str, int]) -> bool:
    """Return whether the jobs of an experiment that has ended are those of its end, given the reason that was recorded then. Behind it
    stands the best job in what earlier servers recorded."""
    said, now = recorded.removeprefix(STOPPED_BEFORE), how_jobs_ended(counts)
    return said == now or said.startswith(f"{now};")


def spent_micro_usd(runs: Sequence[ExperimentRun]) -> int:
    return sum(run.micro_usd for run in runs)


def price_of_step(runs: Sequence[ExperimentRun], planned: float | None) -> float | None:
    """Return what a step costs, in micro-dollars: the mean of the jobs that have ended, else as `planned`. None if that is not known.

    A job that failed before its first step says nothing, and one whose node has no price says nothing either.
    """
    known = [run for run in runs if run.has_ended and run.step and run.priced]
    if not known:
        return planned
    return sum(run.micro_usd for run in known) / sum(run.step for run in known)


class OfCombination(Protocol):
    """A job as whoever compares it sees it: its number, and the settings in which it differs."""

    @property
    def number(self) -> int: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...


OfCombinationT = TypeVar("OfCombinationT", bound=OfCombination)


def by_combination(runs: Sequence[OfCombinationT]) -> list[list[OfCombinationT]]:
    """Return the jobs that differ only in their seeds together, in the order of their numbers."""
    found = dict[str, list[OfCombinationT]]()
    for run in sorted(runs, key=lambda run: run.number):
        found.setdefault(canonical_json(dict(run.settings)), []).append(run)
    return list(found.values())


def mean_value(values: Sequence[float | None]) -> float | None:
    """Return the mean of what jobs are compared by; None while one of them has nothing."""
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None
