"""Where a job that is not submitted yet could run: which nodes fit, or why none does, what waits before it, and how fast such work
was there. Pure: the same rules as for jobs that wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gangline.core.job import WORKING, Node
from gangline.core.jobs.claim import ClaimCandidate, locked_out
from gangline.core.jobs.supply import PoolSeen, Rentable, Supply, could_rent
from gangline.core.jobs.why import misfits, why_queued
from gangline.core.money.budget import Purse
from gangline.core.policy import Policy

NODES_MAX = 100
"""So many nodes that fit are named, and so many that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingNode:
    """A node that could take the job. `price_usd_per_hour` is that of the slots that the job asks for, None where it is not known;
    `busy` where others hold those slots now; `waits` says why it gets no work now, and is empty where it does."""

    name: str
    pool: str
    gpu: str
    gpu_memory_gb: float
    price_usd_per_hour: float | None
    busy: bool
    waits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitNode:
    name: str
    gpu: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RentableNode:
    """A node that the provider of a pool offers, and that would be started for the job."""

    pool: str
    gpu: str
    gpu_memory_gb: float
    price_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What the same work took on a class of GPU before: `seconds_per_step` of each machine as it was last seen, the fastest first."""

    gpu: str
    seconds_per_step: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """Where a job could run, if it was submitted now. `fitting` and `unfit` have a hundred nodes each at most, of all that are here
    (`nodes`). `because` says why it would wait, and is empty where a node may take it at once. `ahead`: the project's own jobs that
    go first, and interrupted ones; a thousand at most. `budget_left_usd` is None where there is no limit. `copies` says of each of
    the spec's models that the server copies from the hub (`base`, `vae`) whether that is `ready`, or how far it is."""

    nodes: int
    fitting: tuple[FittingNode, ...]
    unfit: tuple[UnfitNode, ...]
    rentable: tuple[RentableNode, ...]
    because: str
    ahead: int
    took: tuple[Took, ...]
    budget_left_usd: float | None
    copies: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePace:
    """Of one machine at the same work."""

    gpu: str
    seconds_per_step: float


def place(
    job: ClaimCandidate,
    purse: Purse,
    nodes: Sequence[Node],
    supply: Supply,
    paces: Sequence[MachinePace],
    now_ms: int,
    policy: Policy,
    *,
    taken: Mapping[str, int],
    ahead: int,
    copies: Mapping[str, str],
) -> PlacementView:
    """`nodes`: all that are here or coming; `taken`: how many slots of each, by its id, others hold."""
    reasons = misfits(job, purse, nodes, frozenset(), now_ms)
    fitting = sorted((node for node in nodes if reasons[node.id] is None), key=lambda node: _preference(job, node))
    unfit = [
        UnfitNode(name=node.name, gpu=node.gpu, because=because) for node in nodes if (because := reasons[node.id])
    ]
    return PlacementView(
        nodes=len(nodes),
        fitting=tuple(_fitting(job, node, taken, now_ms) for node in fitting[:NODES_MAX]),
        unfit=tuple(unfit[:NODES_MAX]),
        rentable=tuple(_rentable(job, pool, offer) for pool, offer in could_rent(job, purse, supply, policy)),
        because=why_queued(job, "", purse, nodes, supply, frozenset(), now_ms, policy),
        ahead=ahead,
        took=_took(paces),
        budget_left_usd=None if purse.budget is None else (purse.budget - purse.spent - purse.reserved) / 1e6,
        copies=dict(copies),
    )


def _preference(job: ClaimCandidate, node: Node) -> tuple[bool, bool, int, str]:
    """Those that get work first; of them those with a price, the cheapest first."""
    return (node.state not in WORKING, not node.price_known, node.price_of(job.slots), node.name)


def _fitting(job: ClaimCandidate, node: Node, taken: Mapping[str, int], now_ms: int) -> FittingNode:
    return FittingNode(
        name=node.name,
        pool=node.pool,
        gpu=node.gpu,
        gpu_memory_gb=node.gpu_memory_gb,
        price_usd_per_hour=node.price_of(job.slots) / 1e6 if node.price_known else None,
        busy=node.slots - taken.get(node.id, 0) < job.slots,
        waits=locked_out(node, now_ms) or "",
    )


def _rentable(job: ClaimCandidate, pool: PoolSeen, offer: Rentable) -> RentableNode:
    price = offer.price_micro_usd_per_hour * job.slots // offer.slots / 1e6
    return RentableNode(
        pool=pool.name,
        gpu=offer.gpu,
        gpu_memory_gb=offer.gpu_memory_gb,
        price_usd_per_hour=price if offer.price_known else None,
    )


def _took(paces: Sequence[MachinePace]) -> tuple[Took, ...]:
    """One for each class, the fastest first."""
    of_class: dict[str, list[float]] = {}
    for pace in paces:
        of_class.setdefault(pace.gpu, []).append(pace.seconds_per_step)
    found = [Took(gpu=gpu, seconds_per_step=tuple(sorted(seconds))) for gpu, seconds in of_class.items()]
    return tuple(sorted(found, key=lambda took: (median(took.seconds_per_step), took.gpu)))
