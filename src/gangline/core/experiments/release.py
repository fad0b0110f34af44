"""Decide which held jobs of an experiment may wait for a node now."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.experiments.runs import Experiment, ExperimentRun, price_of_step, spent_micro_usd
from gangline.core.words import counted, usd_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The jobs that are released now, those that are paused as the budget is spent, those that were and continue, as it was raised, and the
    sentence that says what the others wait for. After some continue, it is decided again who is released."""

    jobs: tuple[ExperimentRun, ...] = ()
    pause: tuple[ExperimentRun, ...] = ()
    continued: tuple[ExperimentRun, ...] = ()
    because: str


def next_release(experiment: Experiment, runs: Sequence[ExperimentRun]) -> Release:
    """Return which jobs are released. They are taken in the order of their numbers, those first that have trained before.

    - At most `at_once` are in progress.
    - What was spent, what those in progress are expected to cost, and what the next one is expected to cost stay within the budget. While
      no price is known, one is in progress at a time.
    - Of jobs that can use the same prepared files, one goes first, until it trains: by then it has prepared them all. One that ended before
      leaves that to the next.
    """
    held = sorted((run for run in runs if run.held and not run.has_ended), key=_turn)
    going = [run for run in runs if run.in_progress]
    purse = _Purse.of(experiment, runs, going)
    if purse.is_empty:
        pause = tuple(run for run in going if not run.pausing)
        return Release(pause=pause, because=purse.why_empty)
    again = tuple(run for run in runs if run.waits == "budget" and run.pausing and not run.has_ended)
    if again:
        return Release(continued=again, because=experiment.because)
    chosen, limits, first = list[ExperimentRun](), list[str](), _FirstOfEach.of(runs)
    for run in held:
        why = _why_not(experiment, run, len(going) + len(chosen), purse, first)
        if not why:
            chosen.append(run)
            purse.take(run)
            first.take(run)
        else:
            limits.append(why)
            if why == _full(experiment):
                break
    return Release(jobs=tuple(chosen), because=_because(experiment, runs, len(going) + len(chosen), limits))


def _turn(run: ExperimentRun) -> tuple[int, bool, int]:
    return -run.rung, not run.trained, run.number


def _why_not(experiment: Experiment, run: ExperimentRun, going: int, purse: "_Purse", first: "_FirstOfEach") -> str:
    if experiment.at_once is not None and going >= experiment.at_once:
        return _full(experiment)
    return purse.why_not(run, going) or first.why_not(run)


def _full(experiment: Experiment) -> str:
    return f"{counted(experiment.at_once or 0, 'job')} at a time"


def _because(experiment: Experiment, runs: Sequence[ExperimentRun], going: int, limits: Sequence[str]) -> str:
    left = [run for run in runs if not run.has_ended]
    if not left:
        return "all its jobs have ended"
    paused = sum(run.state == "paused" for run in left)
    parts = [f"{counted(going, 'job')} in progress"]
    if limits:
        parts.append(f"{len(left) - going - paused} held: {limits[0]}")
    if paused:
        parts.append(f"{paused} paused")
    return "; ".join(parts)


@dataclass(slots=True)
class _Purse:
    """The budget while jobs are chosen, in micro-dollars; `price` is that of a step."""

    budget: int | None
    spent: int
    expected: float
    price: float | None

    @classmethod
    def of(cls, experiment: Experiment, runs: Sequence[ExperimentRun], going: Sequence[ExperimentRun]) -> "_Purse":
        price = price_of_step(runs, experiment.price)
        rest = sum(_steps_left(run) for run in going) * (price or 0.0)
        return cls(experiment.budget, spent_micro_usd(runs), rest, price)

    @property
    def is_empty(self) -> bool:
        return self.budget is not None and self.spent >= self.budget

    @property
    def why_empty(self) -> str:
        return f"its budget of {usd_words(self.budget or 0)} is spent ({usd_words(self.spent)}): its jobs are paused until it is raised"

    def why_not(self, run: ExperimentRun, going: int) -> str:
        if self.budget is None:
            return ""
        if self.price is None:
            return "one at a time within the budget, until one has ended and so has a price" if going else ""
        more = _steps_left(run) * self.price
        if self.spent + self.expected + more <= self.budget:
            return ""
        return (
            f"the budget of {usd_words(self.budget)} does not allow the next, for about {usd_words(more)}: "
            f"{usd_words(self.spent)} is spent, and jobs in progress need about {usd_words(self.expected)}"
        )

    def take(self, run: ExperimentRun) -> None:
        self.expected += _steps_left(run) * (self.price or 0.0)


@dataclass(slots=True)
class _FirstOfEach:
    """Groups of jobs that can use the same prepared files: those that have them, and those in which a job is about to make them."""

    prepared: set[str]
    preparing: set[str]

    @classmethod
    def of(cls, runs: Sequence[ExperimentRun]) -> "_FirstOfEach":
        return cls(
            prepared={run.prepares for run in runs if run.trained},
            preparing={run.prepares for run in runs if run.in_progress},
        )

    def why_not(self, run: ExperimentRun) -> str:
        waits = run.prepares and run.prepares not in self.prepared and run.prepares in self.preparing
        return "the first one prepares latents and embeddings for them" if waits else ""

    def take(self, run: ExperimentRun) -> None:
        self.preparing.add(run.prepares)


def _steps_left(run: ExperimentRun) -> int:
    return max(0, run.steps - run.step)
