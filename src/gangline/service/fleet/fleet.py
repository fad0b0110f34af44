"""Reconcile the fleet: what providers list against what the store has; rent nodes for queued jobs, and return nodes without work."""

import logging
from collections.abc import Sequence
from contextlib import suppress

from gangline.core.errors import GanglineError
from gangline.core.fleet.autoscale import (
    Adopt,
    Demand,
    Drain,
    GiveUp,
    MoveNode,
    OfferRate,
    PlaceNode,
    Rented,
    StartNode,
    StopInstance,
    cheapest,
    reconcile,
    scale,
    starts_max,
)
from gangline.core.money.cost import DAY_MS, HOUR_MS
from gangline.ports.pool import Instance, Offer, Rental
from gangline.ports.store import guard, write
from gangline.service.access.access import adding_rental
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import Look
from gangline.service.fleet.demand import find_demand, suits
from gangline.service.fleet.moving import leave_bad_machines, may_leave, move_rental, seen_instance
from gangline.service.fleet.nodes import gone
from gangline.service.fleet.terms import admitted, note_seen, refresh_pools
from gangline.service.money import bill
from gangline.service.outage import back_since_ms

REMOVED = "its pool is being removed"
log = logging.getLogger("gangline.fleet")


def tend(deployment: Deployment, now_ms: int) -> None:
    """Reconcile and scale every pool once, by what its driver said last. A provider that did not answer is asked again."""
    covered: set[str] = set()
    refresh_pools(deployment, asks=True)
    for name, pool in deployment.pools.items():
        try:
            if pool.state == "removing":
                _drain_removed(deployment, pool)
            _heed_refusals(deployment, pool, now_ms)
            look = pool.driving.look(now_ms)
            if look is None:
                continue
            nodes = _rented(deployment, pool, now_ms)
            if deployment.recent.is_new_look(name, look.number):
                if leave_bad_machines(deployment, pool, nodes, look, covered, now_ms):
                    nodes = _rented(deployment, pool, now_ms)
                nodes = _agree(deployment, pool, nodes, look, now_ms)
                note_seen(deployment, pool, look.offers, look.lacks, now_ms)
            # A job that this pool covers is not rented for in the next one again.
            covered |= _scale(deployment, pool, nodes, admitted(pool, look.offers), look.lacks, covered, now_ms)
        except GanglineError as error:
            deployment.recent.note_offers(name, None, error.message)
            note_seen(deployment, pool, (), error.message, now_ms)
            log.warning("pool %s: %s; trying again", name, error.message)
    settle(deployment)


def _heed_refusals(deployment: Deployment, pool: RentedPool, now_ms: int) -> set[str]:
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


def _agree(deployment: Deployment, pool: RentedPool, ours: list[Rented], look: Look, now_ms: int) -> list[Rented]:
    """Reconcile the pool's nodes with the provider's instances. Return our nodes as they are afterwards."""
    instances = look.instances
    _note_bills(deployment, instances, now_ms)
    listed = {instance.id for instance in instances}
    for node in ours:
        # One that was rented since the list was asked for cannot be in it.
        if node.since_ms < look.began_ms and (node.missing or node.instance not in listed):
            deployment.store.apply(write("count_missing", id=node.id, listed=int(node.instance in listed)))
    ends = {instance.id: instance.billed_to_ms for instance in instances}
    rented_as = {node.id: node.instance for node in ours}
    seen_now = [seen_instance(instance) for instance in instances]
    actions = reconcile(ours, seen_now, now_ms, deployment.policy)
    for action in actions:
        match action:
            case Adopt():
                deployment.store.apply(write("adopt", id=action.node, instance=action.instance))
            case StopInstance():
                pool.driving.stop(action.instance)
            case GiveUp():
                gone(deployment, action.node, action.because, now_ms, ended_ms=ends.get(rented_as[action.node] or ""))
            case PlaceNode():
                deployment.store.apply(write("place_node", id=action.node, place=action.place))
            case MoveNode():
                move_rental(deployment, action, now_ms)
    return _rented(deployment, pool, now_ms) if actions else ours


def _drain_removed(deployment: Deployment, pool: RentedPool) -> None:
    """Take a pool that is being removed out of service: its nodes get no more work, and the idle ones are given back."""
    name = pool.limits.name
    for row in deployment.store.load("nodes_to_drain", pool=name):
        drained = write("set_node_state", id=row["id"], before=row["state"], state="draining", because=REMOVED)
        deployment.store.apply(drained)
        give_back(deployment, row["id"])
    deployment.store.apply(write("forget_pool", name=name))


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


def _note_bills(deployment: Deployment, instances: Sequence[Instance], now_ms: int) -> None:
    """Record from when until when the provider bills each instance, if that is new."""
    ended = [instance.billed_to_ms for instance in instances if instance.billed_to_ms is not None]
    known = {
        row["id"]: row["billed_to_ms"]
        for row in deployment.store.load("known_instances", since=min(ended, default=now_ms))
    }
    for instance in instances:
        told = instance.id in known and known[instance.id] == instance.billed_to_ms
        if instance.billed_from_ms is not None and not told:
            seen = {"billed_from_ms": instance.billed_from_ms, "billed_to_ms": instance.billed_to_ms}
            deployment.store.apply(write("see_instance", id=instance.id, node=instance.name, **seen))
    _note_unbilled(deployment, instances)


def _note_unbilled(deployment: Deployment, instances: Sequence[Instance]) -> None:
    """Record what the provider does not bill of each instance, if that is new."""
    seen = {(instance.id, *span) for instance in instances for span in instance.unbilled}
    if seen:
        known = {(row["instance"], row["from_ms"], row["to_ms"]) for row in deployment.store.load("unbilled_lately")}
        for instance, from_ms, to_ms in sorted(seen - known):
            deployment.store.apply(write("add_unbilled", instance=instance, from_ms=from_ms, to_ms=to_ms))


def _rented(deployment: Deployment, pool: RentedPool, now_ms: int) -> list[Rented]:
    back_ms = back_since_ms(deployment, now_ms)
    return [
        Rented(
            id=row["id"],
            rental=row["rental"],
            place=row["place"],
            leaves=row["leaves"],
            offer=row["offer"],
            unfit=bool(row["proof_failed"]),
            because=row["because"],
            state=row["state"],
            since_ms=row["since_ms"],
            # A node could not claim while the service was down: that time does not count as idle.
            idle_since_ms=None if row["beat_ms"] else max(row["meter_ms"], back_ms),
            heard_ms=max(row["seen_ms"], row["beat_ms"] or 0),
            instance=row["instance"],
            missing=row["missing"],
        )
        for row in deployment.store.load("nodes_of_pool", pool=pool.limits.name)
        if row["rented"]
    ]


def _scale(
    deployment: Deployment,
    pool: RentedPool,
    nodes: list[Rented],
    offers: list[Offer],
    lacks: str,
    covered: set[str],
    now_ms: int,
) -> set[str]:
    """Rent and drain nodes of this pool. Return the jobs that its nodes, present or coming, cover. `covered` are those of other pools."""
    waiting, stuck = find_demand(deployment, pool.limits, offers, covered, now_ms)
    since_ms = min((job["ready_ms"] for job in waiting), default=now_ms)
    demand = Demand(takable=len(waiting), stuck=len(stuck), since_ms=since_ms)
    plan = scale(pool.limits, nodes, demand, now_ms, deployment.policy)
    left = (
        _starts_left(deployment, pool, nodes, now_ms)
        if any(isinstance(action, StartNode) for action in plan.actions)
        else 0
    )
    ranked = _ranked(deployment, pool.limits.name, offers, now_ms) if left else []
    wanting, covers = iter(waiting), plan.covers
    for action in plan.actions:
        match action:
            case StartNode() if left > 0:
                left -= 1
                job = next(wanting, None)
                fitting = [offer for offer in ranked if job is None or suits(offer, job, deployment.policy)]
                covers += _rent(deployment, pool, fitting, action, now_ms)
            case Drain():
                drain = write("drain_idle", id=action.node, because=action.because)
                deployment.store.apply(write("hold_node", id=action.node), drain)
                give_back(deployment, action.node)
            case GiveUp():
                gone(deployment, action.node, action.because, now_ms)
    deployment.recent.note_offers(pool.limits.name, None if lacks else offers, lacks)
    return {job["id"] for job in waiting[:covers]}


def _starts_left(deployment: Deployment, pool: RentedPool, nodes: list[Rented], now_ms: int) -> int:
    """Return how many nodes may be started now.

    None for a while after a start has failed, for lack of capacity or because the worker ended at once; few while nodes fail their probe.
    """
    since = now_ms - round(deployment.policy.start_pause_s * 1000)
    if deployment.store.load("failed_starts", pool=pool.limits.name, since=since):
        return 0
    failed = deployment.store.load("failed_probes", pool=pool.limits.name)[0]
    return starts_max(pool.limits, nodes, failed["nodes"], failed["last_ms"], now_ms, deployment.policy)


def _ranked(deployment: Deployment, pool: str, offers: list[Offer], now_ms: int) -> list[Offer]:
    """Return the offers, the cheapest per expected step first, as far as the paces of their GPU classes are known."""
    since_ms = now_ms - round(deployment.policy.lacking_s * 1000)
    rows = deployment.store.load("failed_probes_of_offers", pool=pool, since=since_ms)
    failed = {row["offer"]: row["nodes"] for row in rows}
    rates = [_rate(deployment, offer, failed.get(offer.id, 0), now_ms) for offer in offers]
    by_id = {offer.id: offer for offer in offers}
    return [by_id[rate.offer] for rate in cheapest(rates, deployment.policy)]


def _rate(deployment: Deployment, offer: Offer, failed_probes: int, now_ms: int) -> OfferRate:
    pace = deployment.store.load("pace_of_gpu", gpu=offer.gpu)
    lost = deployment.store.load("lost_of_gpu", gpu=offer.gpu, since=now_ms - DAY_MS)[0]
    return OfferRate(
        offer=offer.id,
        price_micro_usd_per_hour=offer.price_micro_usd_per_hour,
        seconds_per_step=pace[0]["seconds_per_step"] if pace else None,
        interruptions_per_hour=lost["interruptions"] * HOUR_MS / lost["ms"] if lost["ms"] else 0,
        failed_probes=failed_probes,
    )


def _rent(deployment: Deployment, pool: RentedPool, ranked: list[Offer], action: StartNode, now_ms: int) -> bool:
    """Rent from the first offer that the provider did not refuse lately, and return whether there was one.

    The node's row is written before the request, so that no instance is ever unknown.
    """
    for offer in ranked:
        if deployment.recent.is_refused(pool.limits.name, offer.id, now_ms):
            continue
        node, token = deployment.new_id("node"), deployment.new_secret("join")
        deployment.store.apply(
            write(
                "rent_node",
                id=node,
                offer=offer.id,
                pool=pool.limits.name,
                called=pool.called,
                because=action.because,
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
        if node not in _heed_refusals(deployment, pool, now_ms):
            log.info("node %s starts: %s", node, action.because)
            return True
    return False


def settle(deployment: Deployment) -> None:
    """Make the ledger agree with the provider's bill for every node that has ended together with its instance."""
    for row in deployment.store.load("instances_to_settle"):
        known = deployment.store.load("known_bill", rental=row["node"])[0]["micro_usd"]
        others = deployment.store.load("settled_instances", node=row["node"])
        due = sum(bill.bill_of(deployment, row["price_micro_usd_per_hour"], each) for each in (row, *others))
        deployment.store.apply(guard("settle", id=row["id"]), *bill.settlement(row, known, due, row["node"]))
