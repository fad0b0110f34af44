"""Choose among the offers of all pools by what a finished step is expected to cost."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from gangline.core.fleet.needs import NodeShape, QueuedWork
from gangline.core.gpus import KINDS as GPU_KINDS
from gangline.core.money.budget import UNPRICED_MICRO_USD, reservation
from gangline.core.money.cost import HOUR_MS
from gangline.core.policy import Policy
from gangline.core.runs.daly import run_factor
from gangline.core.runs.saving import NEVER_S, TYPICAL_HELD_UP_S, SaveCost, choose_saving, saving_terms

PRIOR_INTERRUPTIONS_PER_HOUR = 0.05
"""What is assumed of an offer that was never tried: one interruption in twenty hours. It is low, so that a cheap offer is tried."""
PRIOR_HOURS = 0.5
"""The assumption weighs as much as this many hours of the offer's nodes: what is seen soon counts more. With twice as many it took
longer to leave an offer that is interrupted often."""
COLD_STARTS = 3.0
"""The assumed cold start of `move_s` weighs as much as this many measured ones."""
BENEFIT_OF_DOUBT = 1.25
"""An offer whose class of GPU was not measured at such a job gets one node, if it might be this many times cheaper than is expected."""
FAILED_PROBES_MAX = 30
"""More failed probes in a row of one offer count as this many."""
FACTOR_MAX = 1e6
"""An offer on which a job hardly ever ends counts as this many times dearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of an offer's nodes: for how many milliseconds they were billed in all, and how many were `lost`. `boots` of them
    joined; all together were starting for `boots_ms`. `starts` of their attempts took their first step, `starts_ms` after their claims."""

    lost: int = 0
    ms: int = 0
    boots: int = 0
    boots_ms: int = 0
    starts: int = 0
    starts_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFacts:
    """An offer of a pool with its history. Its `shape` is that of its nodes, with the kinds of jobs that the pool's nodes are expected to
    have the libraries for. `failed_probes` of its nodes in a row failed their probe. One that is `refused` had none left at the last
    request."""

    offer: str
    shape: NodeShape
    price_micro_usd_per_hour: int
    price_known: bool = True
    history: History = History()
    failed_probes: int = 0
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPace:
    """The mean pace of a class of GPU at a workload, over the machines that were measured."""

    workload: str
    gpu: str
    seconds_per_step: float


class PaceTable:
    """The paces that were measured, by workload and class of GPU."""

    def __init__(self, paces: Iterable[ClassPace]) -> None:
        self._paces: dict[str, dict[str, float]] = {}
        for pace in paces:
            self._paces.setdefault(pace.workload, {})[pace.gpu] = pace.seconds_per_step
        self._widest = max(self._paces.values(), key=len, default=dict[str, float]())
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}

    def seconds_per_step(self, workload: str, gpu: str) -> tuple[float, bool]:
        """Return the seconds per step of this class of GPU, and whether they were measured. A workload that was never measured is compared
        by the one that was measured on most classes, so its seconds are relative.

        A class that was not measured at the workload is taken for as fast as it was at others, compared with those that were measured at
        it; else for as fast as its vendor's figures say; without figures for as fast as the best, else a class that was never tried would
        never be, or as the typical one if there is none.
        """
        key = workload, gpu
        if key not in self._known:
            self._known[key] = self._find(workload, gpu)
        return self._known[key]

    def has(self, workload: str) -> bool:
        return workload in self._paces

    def _find(self, workload: str, gpu: str) -> tuple[float, bool]:
        known = self._paces.get(workload) or self._widest
        if gpu in known:
            return known[gpu], workload in self._paces
        others = [at for at in self._paces.values() if gpu in at]
        ratios = [known[other] * at[gpu] / at[other] for at in others for other in at if other in known]
        if not ratios and gpu in _PEAKS:
            ratios = [seconds * _PEAKS[other] / _PEAKS[gpu] for other, seconds in known.items() if other in _PEAKS]
        if ratios:
            return math.exp(sum(map(math.log, ratios)) / len(ratios)), False
        if known:
            return min(known.values()), False
        return _TYPICAL / _PEAKS.get(gpu, _TYPICAL), False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a job is expected to take and to cost on an offer. `seconds_per_step` was `measured`, or follows from what was; it is `relative`
    if nothing is known of the job's workload: then the dollars only compare offers. `factor` is the seconds that are paid per second of
    training: it has what interruptions repeat and restart."""

    micro_usd_per_step: float
    seconds_per_step: float
    measured: bool
    relative: bool
    interruptions_per_hour: float
    cold_start_s: float
    factor: float
    egress_micro_usd: float


def expect(need: QueuedWork, offer: OfferFacts, paces: PaceTable, policy: Policy, *, shared_by: int) -> Expectation:
    """Return what one job of the need is expected to cost on this offer, if `shared_by` of a node's slots have work.

    The time is that of Daly (2006; see gangline.core.runs.daly) for a job that needs a new node and a cold start after each interruption;
    each start downloads what the job needs. Each node in a row that failed its probe doubles the cost, else an offer whose
    image lacks the libraries would be rented for ever.
    """
    seconds, measured = paces.seconds_per_step(need.workload, offer.shape.gpu)
    rate, cold_s = interruptions_per_hour(offer.history), cold_start_s(offer.history, policy)
    steps = max(1.0, need.steps)  # a command need not say how many it has
    between_s, training_s = 3600 / rate, max(steps * seconds, 1e-9)
    terms = saving_terms(policy, between_s, every_s=need.save_s or NEVER_S)
    interval_s = min(choose_saving(terms, SaveCost(held_up_s=TYPICAL_HELD_UP_S)).every_s, training_s) or training_s
    restart_s = boot_s(offer.history) + cold_s
    factor = min(
        run_factor(interval_s, between_s=between_s, checkpoint_s=TYPICAL_HELD_UP_S, restart_s=restart_s), FACTOR_MAX
    )
    paid_s = cold_s + training_s * factor
    starts = 1 + paid_s / between_s
    egress = starts * need.download_bytes * policy.egress_micro_usd_per_byte
    price = offer.price_micro_usd_per_hour * need.slots / max(need.slots, min(shared_by, offer.shape.slots))
    again = 2.0 ** min(offer.failed_probes, FAILED_PROBES_MAX)
    return Expectation(
        micro_usd_per_step=again * (price * paid_s / 3600 + egress) / steps,
        seconds_per_step=seconds,
        measured=measured,
        relative=not paces.has(need.workload),
        interruptions_per_hour=rate,
        cold_start_s=cold_s,
        factor=paid_s / training_s,
        egress_micro_usd=egress,
    )


def interruptions_per_hour(history: History) -> float:
    """Return the expected rate: the mean of a gamma distribution that began at the assumption and learned from the history."""
    hours = history.ms / HOUR_MS
    return (PRIOR_INTERRUPTIONS_PER_HOUR * PRIOR_HOURS + history.lost) / (PRIOR_HOURS + hours)


def boot_s(history: History) -> float:
    """Return the expected billed time until a node joins. Nodes that were lost while they started count to those that joined."""
    return history.boots_ms / 1000 / (1 + history.boots)


def cold_start_s(history: History, policy: Policy) -> float:
    """Return the expected time from a job's claim to its first step."""
    return (policy.move_s * COLD_STARTS + history.starts_ms / 1000) / (COLD_STARTS + history.starts)


_PEAKS = {kind.name: math.sqrt(kind.tflops * kind.memory_gb_per_s) for kind in GPU_KINDS}
"""How fast each class of GPU is by its vendor's figures: training needs its products and its memory's bandwidth alike."""
_TYPICAL = median(_PEAKS.values())


def is_paid(need: QueuedWork, offer: OfferFacts, policy: Policy) -> bool:
    """Return whether what the project's budget has left pays for one of these jobs here."""
    return need.left is None or reserve(need, offer, need.least_bytes, policy) <= need.left


def reserve(need: QueuedWork, offer: OfferFacts, download_bytes: float, policy: Policy) -> int:
    """Return what one of these jobs reserves of a budget here, in micro-dollars; if the price is unknown, more than any budget has."""
    if not offer.price_known:
        return UNPRICED_MICRO_USD * need.slots
    price = offer.price_micro_usd_per_hour * need.slots // offer.shape.slots
    return reservation(price, math.ceil(download_bytes), policy)
