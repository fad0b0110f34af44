"""Find where a job could run before it is submitted: which nodes fit, or why none does, how many jobs are ahead of it, and how fast the
same work was there. The rules are those for queued jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gangline.core.job import WORKING, Node
from gangline.core.jobs.claim import ClaimCandidate, locked_out
from gangline.core.jobs.supply import PoolSeen, Rentable, Supply, could_rent
from gangline.core.jobs.why import UNFIT_MAX, fit_of, nodes_here, why_queued
from gangline.core.money.budget import Purse
from gangline.core.policy import Policy
from gangline.core.runs.schedule import RateAt

NODES_MAX = UNFIT_MAX
"""At most this many nodes that fit are listed, and as many that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingNode:
    """A node that could take the job. `price_usd_per_hour` is the price of the slots that the job asks for, None if it is not known;
    `busy` says that other jobs use them now; `waits` says why the node gets no work now, and is empty if it does."""

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
    """The pace of the same work on a class of GPU: the latest `seconds_per_step` of each machine, the fastest first."""

    gpu: str
    seconds_per_step: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """The answer to the question where a job could run if it were submitted now.

    `nodes` is the number of all nodes; `fitting` and `unfit` list at most a hundred each. `because` says why the job would wait, and is
    empty if a node may take it at once. `ahead` counts the project's jobs that run first and interrupted jobs, up to a thousand.
    `budget_left_usd` is None if there is no limit. `copies` says for each model of the spec that the server copies from the hub (`base`,
    `vae`) whether the copy is `ready`, or its progress. `rates` are the learning rates of the job's first, middle and last step, if it
    trains.
    """

    nodes: int
    fitting: tuple[FittingNode, ...]
    unfit: tuple[UnfitNode, ...]
    rentable: tuple[RentableNode, ...]
    because: str
    ahead: int
    took: tuple[Took, ...]
    budget_left_usd: float | None
    copies: dict[str, str]
    rates: tuple[RateAt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePace:
    """The latest pace of one machine at the same work."""

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
    """Return where the job could run. `nodes` are all that exist or start now; `taken` is the number of used slots by node id."""
    fit = fit_of(job, purse, nodes_here(nodes, now_ms), frozenset(), now_ms)
    fitting = sorted(fit.fitting, key=lambda node: _preference(job, node))
    return PlacementView(
        nodes=len(nodes),
        fitting=tuple(_fitting(job, node, taken, now_ms) for node in fitting[:NODES_MAX]),
        unfit=tuple(UnfitNode(name=node.name, gpu=node.gpu, because=because) for node, because in fit.unfit),
        rentable=tuple(_rentable(job, pool, offer) for pool, offer in could_rent(job, purse, supply, policy)),
        because=why_queued(job, "", purse, fit, supply, now_ms, policy),
        ahead=ahead,
        took=_took(paces),
        budget_left_usd=None if purse.budget is None else (purse.budget - purse.spent - purse.reserved) / 1e6,
        copies=dict(copies),
    )


def _preference(job: ClaimCandidate, node: Node) -> tuple[bool, bool, int, str]:
    """Return the sort key of a node: nodes that get work now come first, then those with a known price, the cheapest first."""
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
    """Return one entry for each class of GPU, the fastest first."""
    of_class: dict[str, list[float]] = {}
    for pace in paces:
        of_class.setdefault(pace.gpu, []).append(pace.seconds_per_step)
    found = [Took(gpu=gpu, seconds_per_step=tuple(sorted(seconds))) for gpu, seconds in of_class.items()]
    return tuple(sorted(found, key=lambda took: (median(took.seconds_per_step), took.gpu)))
