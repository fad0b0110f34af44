"""Define the answers of the API about experiments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gangline.core.access import OwnerView
from gangline.core.experiments.best import BestView
from gangline.core.experiments.halving import SavedView
from gangline.core.experiments.runs import ExperimentState
from gangline.core.experiments.terms import HalvingTerms, Measure
from gangline.core.job import JobState
from gangline.core.money.cost import CostPart

ExperimentRunState = Literal["held"] | JobState
"""The state of a job of an experiment: `held` is a queued one that waits for its experiment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentView:
    """An experiment. `because` says what it waits for, or how it ended. `settings` are those that its jobs differ in, `counts` its jobs by
    state, `held` among them.

    `spent_usd` is the known part of the cost so far, without the parts in `cost_lacks`. `expected_usd` is what it comes to if each job that
    is left trains to its end, None while the price of a step is not known. `best` is the best job so far; `saved` is what halving saved.
    """

    id: str
    name: str
    state: ExperimentState
    because: str
    jobs: int
    settings: tuple[str, ...]
    counts: Mapping[str, int]
    measure: Measure
    at_once: int | None
    budget_usd: float | None
    halving: HalvingTerms | None
    spent_usd: float
    expected_usd: float | None
    best: BestView | None
    saved: SavedView | None
    made_ms: int
    ended_ms: int | None
    cost_lacks: tuple[CostPart, ...] = ()
    owner: OwnerView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPage:
    """A page of a list of experiments, newest first. `next` is the `cursor` of the following page; it is None on the last one."""

    experiments: tuple[ExperimentView, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRunView:
    """A job of an experiment, with the settings in which it differs. `training_s` is the time that its attempts spent on steps. Losses are
    as of the server's last look, a few seconds ago; `best_held_out_loss` is the least. `rung` is how often halving let it continue."""

    number: int
    job: str
    name: str
    settings: Mapping[str, Any]
    seed: int
    state: ExperimentRunState
    because: str
    step: int
    steps: int
    held_out_loss: float | None
    best_held_out_loss: float | None
    best_step: int
    loss: float | None
    training_s: float
    cost_usd: float
    rung: int
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlanView:
    """What an experiment would take, before it is submitted. `steps` are those of all jobs, `steps_least` those that are left of them
    with halving. Hours of all GPUs together and dollars are by the paces and prices of nodes that are known, None if none is. `prepares`
    counts how often latents and embeddings are made: once for all jobs that can share them. `because` is a sentence for people."""

    jobs: int
    settings: tuple[str, ...]
    combinations: int
    seeds: int
    steps: int
    steps_least: int
    hours_low: float | None
    hours_high: float | None
    usd_low: float | None
    usd_high: float | None
    prepares: int
    measure: Measure
    because: str
