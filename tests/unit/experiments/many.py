"""Jobs of an experiment for tests of decisions, and a fleet that plays what they decide."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from gangline.core.experiments.halving import next_step, rungs_of
from gangline.core.experiments.release import next_release
from gangline.core.experiments.runs import Experiment, ExperimentRun, Measurements
from gangline.core.experiments.terms import HalvingTerms

STEPS = 100
PRICE = 1000
"""Micro-dollars a step."""


def run(number: int, **given: Any) -> ExperimentRun:
    known: dict[str, Any] = {
        "job": f"job-{number}",
        "name": f"e-{number:03d}",
        "number": number,
        "settings": {"rank": number},
        "seed": 0,
        "state": "queued",
        "version": 1,
        "held": True,
        "steps": STEPS,
    }
    return ExperimentRun(**(known | given))


def experiment(**given: Any) -> Experiment:
    known: dict[str, Any] = {
        "id": "e",
        "name": "e",
        "state": "running",
        "because": "",
        "measure": "held_out_loss",
        "at_once": None,
        "budget": None,
        "halving": None,
        "price": None,
    }
    return Experiment(**(known | given))


@dataclass
class Fleet:
    """Plays jobs: each round, what is decided is done, and then those that run take some steps, fail or are interrupted by chance."""

    terms: Experiment
    runs: dict[int, ExperimentRun]
    rng: Random
    most: int = 0
    made: list[str] = field(default_factory=list)
    peak_micro_usd: int = 0

    def look(self) -> None:
        """Do what is decided now."""
        if self.terms.halving:
            step = next_step(list(self.runs.values()), self.terms.halving, STEPS)
            for each in step.pause:
                self._set(each.run, state="paused", pausing=True, waits="rung")
            for each in step.advance:
                again = {"state": "queued", "held": True, "pausing": False} if each.run.state == "paused" else {}
                self._set(each.run, rung=each.run.rung + 1, **again)
            for each in step.drop:
                ends = {} if each.run.has_ended else {"state": "canceled", "held": False}
                self._set(each.run, dropped=True, **ends)
        decided = next_release(self.terms, list(self.runs.values()))
        for each in decided.pause:
            self._set(each, state="paused", pausing=True)
        for each in decided.jobs:
            self._set(each, held=False)
        going = [each for each in self.runs.values() if each.in_progress]
        self.most = max(self.most, len(going))

    def work(self) -> None:
        """Let time pass."""
        for each in [each for each in self.runs.values() if each.in_progress]:
            chance = self.rng.random()
            if chance < 0.02:
                self._set(each, state="failed")
            elif chance < 0.2:
                self._set(each, state="queued")  # interrupted, it waits for a node again
            else:
                self._train(each)
        self.peak_micro_usd = max(self.peak_micro_usd, sum(each.micro_usd for each in self.runs.values()))

    def play(self, rounds: int = 3000, rounds_between: int = 1) -> None:
        """Play until all have ended. Between two looks there are several rounds, in which jobs may pass their rungs."""
        for _ in range(rounds):
            self.look()
            if all(each.has_ended for each in self.runs.values()):
                self.look()
                return
            for _ in range(rounds_between):
                self.work()

    def _train(self, before: ExperimentRun) -> None:
        if not before.trained:
            self.made += [before.prepares] if not self._prepared(before) else []
        step = min(STEPS, before.step + 10)
        state = "succeeded" if step == STEPS else "running"
        at = rungs_of(self.terms.halving, STEPS) if self.terms.halving else ()
        loss = self.loss(before)
        measured = Measurements(
            held_out_loss=loss,
            best_held_out_loss=loss,
            best_step=step,
            at_rungs={rung: loss for rung in at if step >= rung},
        )
        cost = before.micro_usd + PRICE * (step - before.step)
        self._set(before, state=state, step=step, trained=True, micro_usd=cost, measured=measured)

    def _prepared(self, before: ExperimentRun) -> bool:
        return any(each.trained for each in self.runs.values() if each.prepares == before.prepares)

    def loss(self, of: ExperimentRun) -> float:
        return float((of.number * 7919) % 101)

    def _set(self, before: ExperimentRun, **changes: Any) -> None:
        self.runs[before.number] = replace(self.runs[before.number], **changes)


def fleet(count: int, seed: int, *, halving: HalvingTerms | None = None, groups: int = 1, **terms: Any) -> Fleet:
    runs = {number: run(number, prepares=f"group {number % groups}") for number in range(1, count + 1)}
    return Fleet(experiment(halving=halving, **terms), runs, Random(seed))
