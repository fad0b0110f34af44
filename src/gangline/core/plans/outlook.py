"""How long a job would take on each class of card that could run it, what that would cost, and the memory it needs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gangline.core.estimates.forecast import Forecast, MeasuredPace, forecast, remembered, uncounted
from gangline.core.estimates.memory import Memory
from gangline.core.gpus import GpuKind, kind_of_device
from gangline.core.jobs.placement import FittingNode, PlacementView, RentableNode, Took
from gangline.core.plans.base import KnownBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.words import one

CPU = "CPU"
"""How a node without a GPU is called here: in the fleet its class has no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """Seconds on one node, from the first photo that is prepared to the last picture; downloads and starts are not in it."""

    low_s: float
    middle_s: float
    high_s: float
    how: Literal["measured", "computed"]
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    low: float
    middle: float
    high: float
    price_usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What training takes of a card, in 10⁹ bytes; `fits` says whether a card of this class has as much, with one sample at a time."""

    low_gb: float
    high_gb: float
    fits: Literal["yes", "perhaps", "no"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEstimate:
    """For cards of one class and price. `nodes` of it are here, `pool` would start one where none is. What cannot be told is None, and
    `unknown` says why."""

    gpu: str
    gpu_memory_gb: float | None
    nodes: int
    pool: str
    price_usd_per_hour: float | None
    time: TimeEstimate | None
    usd: CostEstimate | None
    memory: GpuMemory | None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    gpu: str
    gpu_memory_gb: float | None
    price_usd_per_hour: float | None
    nodes: int = 0
    pool: str = ""

    @property
    def kind(self) -> GpuKind | None:
        return kind_of_device(self.gpu, self.gpu_memory_gb)

    @property
    def memory_gb(self) -> float | None:
        """Return the memory that this kind of card is sold with, else what the node reported."""
        return self.kind.memory_gb if self.kind else self.gpu_memory_gb


def estimates(spec: LoraSpec | ScratchSpec, base: KnownBase, placed: PlacementView | None) -> tuple[CardEstimate, ...]:
    """Return an estimate for each class of card that fits: those of running nodes, else of nodes that could be started,
    else what the job asks for. The class of the node that would get the job comes first."""
    took = placed.took if placed else ()
    return tuple(_estimate(spec, base, each, took) for each in _classes(spec, placed))


def _classes(spec: LoraSpec | ScratchSpec, placed: PlacementView | None) -> list[Class]:
    if placed and placed.fitting:
        return _of_nodes(placed.fitting)
    if placed and placed.rentable:
        return _of_offers(placed.rentable)
    return [Class(gpu=spec.needs.gpu, gpu_memory_gb=None, price_usd_per_hour=None)]


def _of_nodes(nodes: Sequence[FittingNode]) -> list[Class]:
    counts: dict[tuple[str, float, float | None], int] = {}
    for node in sorted(nodes, key=lambda node: node.busy):
        key = (node.gpu, node.gpu_memory_gb, node.price_usd_per_hour)
        counts[key] = counts.get(key, 0) + 1
    return [
        Class(gpu=gpu or CPU, gpu_memory_gb=memory, price_usd_per_hour=price, nodes=count)
        for (gpu, memory, price), count in counts.items()
    ]


def _of_offers(offers: Sequence[RentableNode]) -> list[Class]:
    known = {(offer.pool, offer.gpu, offer.gpu_memory_gb, offer.price_usd_per_hour) for offer in offers}
    found = sorted(known, key=lambda each: (each[3] is None, each[3] or 0.0, each[:3]))
    return [
        Class(gpu=gpu or CPU, gpu_memory_gb=memory, price_usd_per_hour=price, pool=pool)
        for pool, gpu, memory, price in found
    ]


def _estimate(spec: LoraSpec | ScratchSpec, base: KnownBase, card: Class, took: Sequence[Took]) -> CardEstimate:
    counted, why_not = _counted(spec, base, card)
    measured, kinds = _measured(took)
    found = remembered(counted or _nothing(spec), card.kind, measured, kinds, gpu=card.gpu)
    time = _time(found)
    return CardEstimate(
        gpu=card.kind.name if card.kind else card.gpu,
        gpu_memory_gb=card.memory_gb,
        nodes=card.nodes,
        pool=card.pool,
        price_usd_per_hour=card.price_usd_per_hour,
        time=time,
        usd=_usd(found, card.price_usd_per_hour),
        memory=_memory(counted, card) if counted and card.gpu != CPU else None,
        unknown="" if time else why_not or found.because[0],
    )


def _counted(spec: LoraSpec | ScratchSpec, base: KnownBase, card: Class) -> tuple[Forecast | None, str]:
    """Return what can be computed without a measurement, and why nothing, or no time, can be."""
    if base.family is None:
        return None, "the files of the base were not read, so the time is known only after such a job has run"
    if base.is_of_another_size:
        words = base.family.words
        return None, f"the base is not as large as {words}, so the time is known only after such a job has run"
    found = forecast(spec, base.family, card.kind)
    if card.kind or not card.gpu:
        return found, ""
    if card.gpu == CPU:
        return found, "no such job has run on a CPU yet"
    return found, f"the speed of {one(card.gpu)} is not known, so the time is known only after such a job has run"


def _nothing(spec: LoraSpec | ScratchSpec) -> Forecast:
    none = Memory(low_gb=0, high_gb=0, parts={})
    return replace(uncounted(spec, None, none, none, 1), because=())


def _time(found: Forecast) -> TimeEstimate | None:
    seconds = found.seconds
    if seconds is None or found.how == "unknown":
        return None
    return TimeEstimate(
        low_s=seconds.low, middle_s=seconds.middle, high_s=seconds.high, how=found.how, because=tuple(found.because)
    )


def _usd(found: Forecast, price_usd_per_hour: float | None) -> CostEstimate | None:
    cost = found.usd(price_usd_per_hour) if price_usd_per_hour is not None else None
    if cost is None or price_usd_per_hour is None:
        return None
    return CostEstimate(low=cost.low, middle=cost.middle, high=cost.high, price_usd_per_hour=price_usd_per_hour)


def _memory(counted: Forecast, card: Class) -> GpuMemory:
    has = card.memory_gb
    return GpuMemory(
        low_gb=counted.memory.low_gb,
        high_gb=counted.memory.high_gb,
        fits=counted.least_memory.fits(has) if has else None,
    )


def _measured(took: Sequence[Took]) -> tuple[list[MeasuredPace], list[GpuKind]]:
    """Return the measurements, and the kinds of their cards that are known, because a class without a name is only
    known by these."""
    kinds = {each.gpu: kind_of_device(each.gpu) for each in took}
    names = {gpu: kind.name if kind else gpu or CPU for gpu, kind in kinds.items()}
    measured = [
        MeasuredPace(gpu=names[each.gpu], seconds_per_step=one) for each in took for one in each.seconds_per_step
    ]
    return measured, [kind for kind in kinds.values() if kind]
