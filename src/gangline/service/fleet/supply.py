"""Return what could be rented, from this process's memory of the providers' answers: no user's request waits for a provider."""

from collections.abc import Iterable
from dataclasses import replace

from gangline.core.job import Node
from gangline.core.jobs.supply import PoolSeen, Rentable, Supply
from gangline.ports.pool import Offer
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.deployment import Deployment


def load_supply(deployment: Deployment, nodes: Iterable[Node]) -> Supply:
    """Return the supply. A pool exists if a provider rents for it, a join token opens it, or a node is in it."""
    joinable = (token["pool"] for token in deployment.store.load("join_tokens") if token["revoked_ms"] is None)
    names = frozenset({DEFAULT_POOL, *deployment.pools, *joinable, *(node.pool for node in nodes)})
    return Supply(pools=tuple(_seen(deployment, name) for name in deployment.pools), names=names)


def _seen(deployment: Deployment, name: str) -> PoolSeen:
    pool = PoolSeen(
        name=name,
        rented=deployment.store.load("rented_in_pool", pool=name)[0]["nodes"],
        nodes_min=deployment.pools[name].limits.nodes_min,
        nodes_max=deployment.pools[name].limits.nodes_max,
        paused=deployment.pools[name].state != "active",
        editable=deployment.pools[name].terms is not None,
    )
    found = deployment.recent.offers_of(name)
    if found is None or found.offers is None:
        return replace(pool, away=f"did not answer: {found.away}" if found else "has not been asked yet")
    return replace(pool, offers=tuple(_rentable(offer, exhausted=offer.id in found.refused) for offer in found.offers))


def _rentable(offer: Offer, *, exhausted: bool) -> Rentable:
    return Rentable(
        gpu=offer.gpu,
        gpu_memory_gb=offer.gpu_memory_gb,
        slots=offer.slots,
        trust=offer.trust,
        price_micro_usd_per_hour=offer.price_micro_usd_per_hour,
        price_known=offer.price_known,
        exhausted=exhausted,
    )
