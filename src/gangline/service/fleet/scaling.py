"""Rent nodes for queued jobs, over all pools together, and give back those that have no work."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gangline.core.errors import GanglineError
from gangline.core.fleet.autoscale import Drain, GiveUp, Rented, StartNode, starts_max
from gangline.core.fleet.plan import PoolNow, plan
from gangline.ports.pool import Offer, Rental
from gangline.ports.store import write
from gangline.service.access.access import adding_rental
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.fleet.demand import (
    facts_of_offers,
    free_slots,
    kinds_of_pool,
    load_histories,
    load_needs,
    load_paces,
    rooms_by_hand,
    shape_of,
)
from gangline.service.fleet.moving import may_leave
from gangline.service.fleet.nodes import gone
from gangline.service.outage import back_since_ms

log = logging.getLogger("gangline.fleet")


@dataclass(frozen=True, slots=True)
class Looked:
    """A pool and the offers that its provider showed last. Nothing is rented there if there are none to go by (None)."""

    pool: RentedPool
    offers: list[Offer] | None


def scale(deployment: Deployment, looked: Sequence[Looked], now_ms: int) -> bool:
    """Rent and give back nodes in all pools. Return whether a provider refused a node at once."""
    needs = load_needs(deployment, now_ms)
    held = [(each, load_rented(deployment, each.pool, now_ms)) for each in looked]
    rents = bool(needs) or any(len(nodes) < each.pool.limits.nodes_min for each, nodes in held)
    histories = load_histories(deployment, now_ms) if rents else {}
    pools = [
        PoolNow(
            limits=each.pool.limits,
            nodes=nodes,
            offers=facts_of_offers(deployment, each.pool.limits, each.offers or (), histories, now_ms) if rents else (),
            starts_max=_starts_left(deployment, each.pool, nodes, now_ms) if rents else 0,
            is_away=each.offers is None,
        )
        for each, nodes in held
    ]
    others = rooms_by_hand(deployment, now_ms) if needs else []
    paces = load_paces(deployment, now_ms) if rents else []
    refused = False
    for name, actions in plan(pools, others, needs, paces, now_ms, deployment.policy).items():
        pool = deployment.pools[name]
        offers = {offer.id: offer for each in looked if each.pool is pool for offer in each.offers or ()}
        for action in actions:
            match action:
                case StartNode():
                    if not deployment.recent.is_refused(name, action.offer, now_ms):
                        refused |= not _rent(deployment, pool, offers[action.offer], action.because, now_ms)
                case Drain():
                    drain = write("drain_idle", id=action.node, because=action.because)
                    deployment.store.apply(write("hold_node", id=action.node), drain)
                    give_back(deployment, action.node)
                case GiveUp():
                    gone(deployment, action.node, action.because, now_ms)
    return refused


def _starts_left(deployment: Deployment, pool: RentedPool, nodes: list[Rented], now_ms: int) -> int:
    """Return how many nodes may be started now.

    None for a while after a start has failed, for lack of capacity or because the worker ended at once; few while nodes fail their probe.
    """
    since = now_ms - round(deployment.policy.start_pause_s * 1000)
    if deployment.store.load("failed_starts", pool=pool.limits.name, since=since):
        return 0
    failed = deployment.store.load("failed_probes", pool=pool.limits.name)[0]
    return starts_max(pool.limits, nodes, failed["nodes"], failed["last_ms"], now_ms, deployment.policy)


def _rent(deployment: Deployment, pool: RentedPool, offer: Offer, because: str, now_ms: int) -> bool:
    """Rent a node, and return whether the provider did not refuse it at once.

    The node's row is written before the request, so that no instance is ever unknown.
    """
    node, token = deployment.new_id("node"), deployment.new_secret("join")
    deployment.store.apply(
        write(
            "rent_node",
            id=node,
            offer=offer.id,
            pool=pool.limits.name,
            called=pool.called,
            because=because,
            gpu=offer.gpu,
            gpu_memory_gb=offer.gpu_memory_gb,
            trust=offer.trust,
            slots=offer.slots,
            price_micro_usd_per_hour=offer.price_micro_usd_per_hour,
            price_known=int(offer.price_known),
            now=now_ms,
        ),
        adding_rental(token, node, pool.limits.name, now_ms),
    )
    deployment.recent.forget_refusal(pool.limits.name, offer.id)
    pool.driving.start(offer.id, Rental(name=node, server=deployment.url, token=token))
    if node in heed_refusals(deployment, pool, now_ms):
        return False
    log.info("node %s starts: %s", node, because)
    return True


def load_rented(deployment: Deployment, pool: RentedPool, now_ms: int) -> list[Rented]:
    """Return the pool's rented nodes. Those that are starting are expected to have the libraries that its recent ones had."""
    back_ms = back_since_ms(deployment, now_ms)
    rows = deployment.store.load("nodes_of_pool", pool=pool.limits.name)
    starting = any(row["state"] == "starting" for row in rows)
    kinds = kinds_of_pool(deployment, pool.limits.name, now_ms) if starting else ""
    return [
        Rented(
            id=row["id"],
            rental=row["rental"],
            place=row["place"],
            shown_machine=row["shown_machine"],
            leaves=row["leaves"],
            offer=row["offer"],
            unfit=bool(row["proof_failed"]),
            because=row["because"],
            progress=row["progress"],
            state=row["state"],
            since_ms=row["since_ms"],
            # A node could not claim while the service was down: that time does not count as idle.
            idle_since_ms=None if row["beat_ms"] else max(row["meter_ms"], back_ms),
            heard_ms=max(row["seen_ms"], row["beat_ms"] or 0),
            instance=row["instance"],
            missing=row["missing"],
            shape=replace(shape_of(row), kinds=kinds) if row["state"] == "starting" else shape_of(row),
            free=free_slots(row),
        )
        for row in rows
        if row["rented"]
    ]


def heed_refusals(deployment: Deployment, pool: RentedPool, now_ms: int) -> set[str]:
    """Give up the nodes that the provider refused, and return them. Their offers are left alone for `start_pause_s`."""
    until_ms = now_ms + round(deployment.policy.start_pause_s * 1000)
    refused = pool.driving.refusals()
    for refusal in refused:
        marked = [write("refuse_node", id=refusal.node)]
        gone(deployment, refusal.node, refusal.because, now_ms, then=marked)
        if refusal.offer:
            deployment.recent.note_refusal(pool.limits.name, refusal.offer, until_ms)
        what = f"nothing of {refusal.offer}" if refusal.offer else f"{refusal.node} gets no other machine"
        log.info("pool %s: %s: %s", pool.limits.name, what, refusal.because)
    return {refusal.node for refusal in refused}


def give_back(deployment: Deployment, node: str) -> None:
    """Stop the instance of a node that has no more work, at once, as it costs until then.

    If the provider does not answer, a tick will do it; so it will if a move to another machine may be better.
    """
    for row in deployment.store.load("instance_to_end", node=node):
        pool = deployment.pools.get(row["pool"])
        if pool is None or may_leave(pool, row):
            continue
        with suppress(GanglineError):
            pool.driving.stop(row["instance"])
            log.info("node %s ends: %s", node, row["because"])
