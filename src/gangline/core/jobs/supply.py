"""Find which nodes could be started for a job that no node can run, by the providers' last answers, and what would help."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.money.budget import Purse, over_budget, reservation, unaccountable
from gangline.core.policy import Policy
from gangline.core.runs.proof import isolation_of
from gangline.core.server.isolation import LEVELS
from gangline.core.words import one


@dataclass(frozen=True, slots=True, kw_only=True)
class Rentable:
    """A kind of node that a provider offers. `exhausted` says that it had none left at the last request."""

    gpu: str
    gpu_memory_gb: float
    slots: int
    trust: int
    price_micro_usd_per_hour: int
    price_known: bool = True
    exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSeen:
    """A pool that starts nodes: it rents them, or runs them on this machine. `away` says why its offers are not known, else it is empty.
    While it is `paused`, it starts none. One of the server's own settings is not `editable`."""

    name: str
    rented: int
    nodes_max: int
    offers: tuple[Rentable, ...] = ()
    away: str = ""
    paused: bool = False
    editable: bool = True
    nodes_min: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The pools that start nodes, and the `names` of all pools: some have only nodes that join by hand."""

    pools: tuple[PoolSeen, ...] = ()
    names: frozenset[str] = frozenset()


def needs(*, gpu_memory_gb: float, gpu: str, slots: int, pool: str, trust: int, numerics: str, wanted: str) -> str:
    """Return a job's requirements for a node in words; empty if every node will do."""
    parts = [
        f"{gpu_memory_gb:g} GB of GPU memory" if gpu_memory_gb else "",
        one(gpu) if gpu else "",
        f"{slots} GPUs" if slots > 1 else "",
        f"the pool {pool}" if pool else "",
        f"trust {trust}" if trust else "",
        f"isolation {isolation_of(wanted)}" if isolation_of(wanted) != LEVELS[0] else "",
        "the numerics of its checkpoints" if numerics else "",
    ]
    return ", ".join(part for part in parts if part)


def needs_of(job: ClaimCandidate) -> str:
    return needs(
        gpu_memory_gb=job.gpu_memory_gb,
        gpu=job.gpu,
        slots=job.slots,
        pool=job.pool,
        trust=job.trust,
        numerics=job.numerics,
        wanted=job.wanted,
    )


def what_helps(job: ClaimCandidate, purse: Purse, supply: Supply, policy: Policy) -> str:
    """Return why no node is started for a job, or what the user can do about it."""
    if job.pool and job.pool not in supply.names:
        return f"its pool {job.pool} does not exist: the pools are {', '.join(sorted(supply.names))}"
    pools = [pool for pool in supply.pools if job.pool in ("", pool.name)]
    if not pools:
        asked = needs_of(job)
        return f"start a worker that has {asked}: `gangline worker`" if asked else "start a worker: `gangline worker`"
    active = [pool for pool in pools if not pool.paused]
    answered = [pool for pool in active if not pool.away]
    said = [_why_not_rented(job, purse, answered, policy)] if answered else []
    away = [f"the provider of {pool.name} {pool.away}" for pool in active if pool.away]
    return "; ".join([*said, *away, *(f"the pool {pool.name} is paused" for pool in pools if pool.paused)])


def could_rent(job: ClaimCandidate, purse: Purse, supply: Supply, policy: Policy) -> list[tuple[PoolSeen, Rentable]]:
    """Return the offers that may be started for a job, in pools that it may use and that have room."""
    may = [pool for pool in supply.pools if job.pool in ("", pool.name) and not pool.paused]
    pools = [pool for pool in may if pool.rented < pool.nodes_max]
    fitting = [(pool, offer) for pool, offer in fitting_offers(job, pools) if not offer.exhausted]
    return [(pool, offer) for pool, offer in fitting if _is_affordable(job, purse, offer, policy)]


def fitting_offers(job: ClaimCandidate, pools: Sequence[PoolSeen]) -> list[tuple[PoolSeen, Rentable]]:
    """Return the offers of these pools that meet all needs of a job, whatever they cost."""
    return [(pool, offer) for pool in pools for offer in pool.offers if not _lacks(job, [offer])]


def _is_affordable(job: ClaimCandidate, purse: Purse, offer: Rentable, policy: Policy) -> bool:
    accountable = offer.price_known or purse.budget is None
    return accountable and over_budget(purse, _to_reserve(job, offer, policy)) is None


def _why_not_rented(job: ClaimCandidate, purse: Purse, pools: Sequence[PoolSeen], policy: Policy) -> str:
    offers = [offer for pool in pools for offer in pool.offers]
    fitting = fitting_offers(job, pools)
    if not fitting:
        return _lacks(job, offers) or "no single offer of any pool meets all of its needs"
    accountable = [offer for _, offer in fitting if offer.price_known or purse.budget is None]
    if not accountable:
        return unaccountable(purse, f"a node of {fitting[0][0].name}")
    too_much = over_budget(purse, min(_to_reserve(job, offer, policy) for offer in accountable))
    if too_much:
        return too_much
    room = [(pool, offer) for pool, offer in fitting if pool.rented < pool.nodes_max]
    if not room:
        full = {pool.name: f"{pool.name} has {pool.rented} of at most {pool.nodes_max} nodes" for pool, _ in fitting}
        return f"no pool may grow: {', '.join(full.values())}"
    left = [pool.name for pool, offer in room if not offer.exhausted]
    if not left:
        return f"the provider of {room[0][0].name} has no fitting node left now; the server keeps asking"
    return f"a node of {left[0]} will be started for it"


def _lacks(job: ClaimCandidate, offers: Sequence[Rentable]) -> str:
    """Return the first requirement of the job that none of these offers meets; empty if each is met by some offer."""
    if not offers:
        return "no pool offers a node now"
    if job.gpu and all(offer.gpu != job.gpu for offer in offers):
        kinds = ", ".join(sorted({offer.gpu or "no GPU" for offer in offers}))
        return f"no pool offers {one(job.gpu)} (the offers have {kinds})"
    most = max(offer.gpu_memory_gb for offer in offers)
    if job.gpu_memory_gb > most:
        return f"no pool offers a GPU with {job.gpu_memory_gb:g} GB (the largest offer has {most:g} GB)"
    if job.slots > max(offer.slots for offer in offers):
        return f"no pool offers a node with {job.slots} GPUs (the largest offer has {max(o.slots for o in offers)})"
    if job.trust > max(offer.trust for offer in offers):
        return (
            f"no pool offers a node of trust {job.trust} (the highest trust on offer is {max(o.trust for o in offers)})"
        )
    return ""


def _to_reserve(job: ClaimCandidate, offer: Rentable, policy: Policy) -> int:
    return reservation(offer.price_micro_usd_per_hour * job.slots // offer.slots, job.download_bytes, policy)
