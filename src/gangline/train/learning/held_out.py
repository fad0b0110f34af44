"""Measure samples that are never trained on, on the way: a curve with its noise, and which step was the best."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

import torch

from gangline.core.specs.sample import TrainingSpec
from gangline.train.run.sample_tensors import StepSamples

GROUPS = 16
"""The number of fixed groups, by the samples' numbers, that are measured: what two steps differ by in each of them says how much of the
difference is chance."""


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """The mean over all samples after `step`. `noise` is the standard error of its difference to the best value before: a difference below
    twice this says nothing."""

    step: int
    value: float
    noise: float


@dataclass(slots=True)
class HeldOutCurve:
    """All measurements of a run. `best` are the means of the groups at the best step."""

    higher_is_better: bool = False
    points: list[HeldOutPoint] = field(default_factory=list)
    best_step: int | None = None
    best: list[float] = field(default_factory=list)
    worse: int = 0

    def add(self, step: int, value: float, groups: list[float]) -> HeldOutPoint:
        """Add a measurement. `worse` counts those since the best one."""
        noise = standard_error([now - then for now, then in zip(groups, self.best, strict=True)]) if self.best else 0.0
        if self.best_step is None or self._is_better(value):
            self.best_step, self.best, self.worse = step, groups, 0
        else:
            self.worse += 1
        self.points.append(HeldOutPoint(step, value, noise))
        return self.points[-1]

    def _is_better(self, value: float) -> bool:
        before = next(point.value for point in self.points if point.step == self.best_step)
        return value > before if self.higher_is_better else value < before

    def to_json(self) -> dict[str, Any]:
        points = [[point.step, point.value, point.noise] for point in self.points]
        return {"points": points, "best_step": self.best_step, "best": self.best, "worse": self.worse}

    def told(self, name: str) -> list[dict[str, float]]:
        """Return the curve for a report, with values under the metric's name."""
        return [{"step": point.step, name: point.value, "noise": point.noise} for point in self.points]

    def restore(self, told: Any) -> None:
        """Take over what `to_json` returned, or what checkpoints of Gangline 0.1 have: pairs of step and value, none of them the best."""
        if isinstance(told, list):
            self.points = [HeldOutPoint(step, value, 0.0) for step, value in told]
            return
        self.points = [HeldOutPoint(*point) for point in told["points"]]
        self.best_step, self.best, self.worse = told["best_step"], told["best"], told["worse"]


def standard_error(differences: Sequence[float]) -> float:
    """Return the standard error of the mean of independent differences, 0 if there are fewer than two."""
    return stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class HeldOutSamples:
    """The samples that are never trained on: this rank's share of all `rows`, with the number of each. A share may be padded with numbers
    from `rows` on, so that every rank has as many."""

    spec: TrainingSpec
    samples: Sequence[StepSamples] = ()
    numbers: Sequence[torch.Tensor] = ()
    rows: int = 0

    def due(self, step: int, *, last: bool = False) -> bool:
        every = self.spec.held_out_every_steps
        return bool(self.samples) and (last or step in (0, self.spec.steps) or bool(every and step % every == 0))

    def measure(self, learner: Any, step: int) -> dict[str, float]:
        """Measure with the weights that would be the result now, add that to the learner's curve, and return it as metrics."""
        sums = torch.zeros(2, GROUPS, dtype=torch.float64, device=learner.device)
        with learner.as_result():
            for samples, numbers in zip(self.samples, self.numbers, strict=True):
                start = 0
                for piece in samples.pieces(learner.at_a_time):
                    own = numbers[start : start + len(piece)].to(learner.device)
                    values = learner.network.score(learner.measure(piece)).double()
                    counts = (own < self.rows).double()
                    sums.index_add_(1, own % GROUPS, torch.stack((values * counts, counts)))
                    start += len(piece)
        total, count = learner.ranks.sum(sums).tolist()
        groups = [part / of for part, of in zip(total, count, strict=True) if of]
        point = learner.curve.add(step, sum(total) / self.rows, groups)
        if learner.curve.best_step == step:
            learner.keep_best()
        name = learner.network.measures
        return {name: point.value, f"{name}_noise": point.noise}
