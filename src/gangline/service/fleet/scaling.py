"""Rent nodes for queued jobs, over all pools together, and give back those that have no work."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from gangline.core.errors import GanglineError
from gangline.core.fleet.autoscale import Drain, GiveUp, Reallocate, Rented, StartNode, StopInstance, starts_max
from gangline.core.fleet.plan import Planned, PoolNow, plan
from gangline.ports.pool import Offer, Rental
from gangline.ports.store import Write, write
from gangline.service.access.access import adding_rental
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.fleet.demand import (
    facts_of_offers,
    load_histories,
    load_needs,
    load_paces,
    rooms_by_hand,
)
from gangline.service.fleet.moving import leave_bad_machine, may_leave
from gangline.service.fleet.nodes import gone
from gangline.service.fleet.rented import RentedNodes

BATCH_MAX = 200
"""The number of nodes that are written in one transaction."""
log = logging.getLogger("gangline.fleet")


@dataclass(frozen=True, slots=True)
class Looked:
    """A pool and the offers that its provider showed last; nothing is rented there if there are none to go by (None). `movable` nodes are
    on bad machines, and it can move them to others."""

    pool: RentedPool
    offers: list[Offer] | None
    movable: Sequence[Rented] = ()


def scale(deployment: Deployment, looked: Sequence[Looked], ours: RentedNodes, now_ms: int) -> bool:
    """Rent and give back nodes in all pools. Return whether a provider refused a node at once."""
    needs = load_needs(deployment, now_ms)
    held = [(each, ours.of(each.pool.limits.name)) for each in looked]
    rents = bool(needs) or any(len(nodes) < each.pool.limits.nodes_min for each, nodes in held)
    histories = load_histories(deployment, now_ms) if rents else {}
    pools = [
        PoolNow(
            limits=each.pool.limits,
            nodes=nodes,
            offers=facts_of_offers(deployment, each.pool.limits, each.offers or (), histories, now_ms) if rents else (),
            starts_max=_starts_left(deployment, each.pool, nodes, now_ms) if rents else 0,
            movable=each.movable,
            is_away=each.offers is None,
        )
        for each, nodes in held
    ]
    others = rooms_by_hand(deployment, now_ms) if needs else []
    paces = load_paces(deployment, now_ms) if rents else []
    refused = False
    planned = plan(pools, others, needs, paces, now_ms, deployment.policy)
    for look in looked:
        pool, actions = look.pool, planned[look.pool.limits.name]
        offers = {offer.id: offer for offer in look.offers or ()}
        for starts, run in groupby(actions, key=lambda action: isinstance(action, StartNode)):
            if starts:
                wanted = [each for each in run if isinstance(each, StartNode)]
                refused |= not _rent(deployment, pool, wanted, offers, now_ms)
            else:
                _carry_out(deployment, look, run, now_ms)
        if actions:
            ours.forget(pool.limits.name)
    return refused


def _carry_out(deployment: Deployment, look: Looked, actions: Iterable[Planned], now_ms: int) -> None:
    bad = {node.id: node for node in look.movable}
    for action in actions:
        match action:
            case Drain():
                drain = write("drain_idle", id=action.node, because=action.because)
                deployment.store.apply(write("hold_node", id=action.node), drain)
                give_back(deployment, action.node)
            case GiveUp():
                gone(deployment, action.node, action.because, now_ms)
            case Reallocate():
                leave_bad_machine(deployment, look.pool, bad[action.node], now_ms)
            case StopInstance():
                look.pool.driving.stop(action.instance)
            case StartNode():
                raise AssertionError("it was rented")


def _starts_left(deployment: Deployment, pool: RentedPool, nodes: Sequence[Rented], now_ms: int) -> int:
    """Return how many nodes may be started now.

    None for a while after a start has failed, for lack of capacity or because the worker ended at once; few while nodes fail their probe.
    """
    since = now_ms - round(deployment.policy.start_pause_s * 1000)
    if deployment.store.load("failed_starts", pool=pool.limits.name, since=since):
        return 0
    failed = deployment.store.load("failed_probes", pool=pool.limits.name)[0]
    return starts_max(pool.limits, nodes, failed["nodes"], failed["last_ms"], now_ms, deployment.policy)


def _rent(
    deployment: Deployment, pool: RentedPool, starts: Sequence[StartNode], offers: Mapping[str, Offer], now_ms: int
) -> bool:
    """Rent nodes, and return whether the provider refused none of them at once.

    They are rented in batches, a transaction for each, and each is twice as large as the one before: so that many nodes take few
    transactions, and a provider that has nothing left is asked in vain no more often than it had something.
    """
    left, size, refused = list(starts), 1, False
    while left := [each for each in left if not deployment.recent.is_refused(pool.limits.name, each.offer, now_ms)]:
        batch, left = left[:size], left[size:]
        refused |= bool(_rent_batch(deployment, pool, batch, offers, now_ms))
        size = min(2 * size, BATCH_MAX)
    return not refused


def _rent_batch(
    deployment: Deployment, pool: RentedPool, starts: Sequence[StartNode], offers: Mapping[str, Offer], now_ms: int
) -> set[str]:
    """Rent nodes, and return those that the provider refused at once.

    The nodes' rows are written before the requests, so that no instance is ever unknown.
    """
    name, writes, rentals = pool.limits.name, list[Write](), list[Rental]()
    for start in starts:
        node, token = deployment.new_id("node"), deployment.new_secret("join")
        writes += [
            _adding_node(pool, node, offers[start.offer], start.because, now_ms),
            adding_rental(token, node, name, now_ms),
        ]
        rentals.append(Rental(name=node, server=deployment.url, token=token))
    deployment.store.apply(*writes)
    for start, rental in zip(starts, rentals, strict=True):
        deployment.recent.forget_refusal(name, start.offer)
        pool.driving.start(start.offer, rental)
    refused = heed_refusals(deployment, pool, now_ms)
    for start, rental in zip(starts, rentals, strict=True):
        if rental.name not in refused:
            log.info("node %s starts: %s", rental.name, start.because)
    return refused & {rental.name for rental in rentals}


def _adding_node(pool: RentedPool, node: str, offer: Offer, because: str, now_ms: int) -> Write:
    return write(
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
    )


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
