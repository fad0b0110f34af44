"""Reconcile the fleet: what providers list against what the store has; rent nodes for queued jobs, and return nodes without work."""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from gangline.core.errors import GanglineError
from gangline.core.fleet.autoscale import (
    LISTS_WITHOUT_MAX,
    Adopt,
    GiveUp,
    MoveNode,
    PlaceNode,
    Rented,
    StopInstance,
    reconcile,
    unseen_end_ms,
)
from gangline.ports.pool import Instance
from gangline.ports.store import guard, write
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import Look
from gangline.service.fleet.moving import movable, move_rental, seen_instance
from gangline.service.fleet.nodes import gone
from gangline.service.fleet.rented import RentedNodes
from gangline.service.fleet.scaling import Looked, give_back, heed_refusals, scale
from gangline.service.fleet.terms import admitted, note_seen, refresh_pools
from gangline.service.money import bill

REMOVED = "its pool is being removed"
log = logging.getLogger("gangline.fleet")


def tend(deployment: Deployment, now_ms: int) -> None:
    """Reconcile every pool once by what its driver said last, and scale the fleet. A provider that did not answer is asked again."""
    refresh_pools(deployment, asks=True)
    ours = _Ours(deployment, RentedNodes(deployment, now_ms))
    looks = {pool.limits.name: _ask(deployment, pool, now_ms) for pool in deployment.pools.values()}
    looked = [_look(deployment, pool, looks[pool.limits.name], ours, now_ms) for pool in deployment.pools.values()]
    # A provider that refuses at once leaves the work to other offers; no offer is asked for twice.
    for _ in range(1 + sum(len(each.offers or ()) for each in looked)):
        if not scale(deployment, looked, ours.nodes, now_ms):
            break
        looked = [replace(each, movable=()) for each in looked]
    settle(deployment)


@dataclass
class _Ours:
    """What we know of all pools, read once for all of them, after what their providers list."""

    deployment: Deployment
    nodes: RentedNodes

    @cached_property
    def open_instances(self) -> set[tuple[str, str]]:
        """Return the instances, each with its rental, that are billed and whose end was not seen."""
        return {(row["id"], row["node"]) for row in self.deployment.store.load("open_instances")}


def _ask(deployment: Deployment, pool: RentedPool, now_ms: int) -> Look | GanglineError | None:
    """Heed what the provider refused, and return what its driver said last."""
    try:
        heed_refusals(deployment, pool, now_ms)
        return pool.driving.look(now_ms)
    except GanglineError as error:
        return error


def _look(
    deployment: Deployment, pool: RentedPool, look: Look | GanglineError | None, ours: _Ours, now_ms: int
) -> Looked:
    """Make our nodes of the pool agree with what its driver said last."""
    name = pool.limits.name
    try:
        if pool.state == "removing":
            _drain_removed(deployment, pool, now_ms)
            ours.nodes.forget(name)
        if isinstance(look, GanglineError):
            raise look
        if look is None:
            return Looked(pool, None)
        bad: list[Rented] = []
        if deployment.recent.is_new_look(name, look.number):
            mine = tuple(each for each in look.instances if not ours.nodes.is_of_another(each.name, name))
            look = replace(look, instances=mine)
            bad = movable(pool, ours.nodes.of(name), look)
            _agree(deployment, pool, ours, look, now_ms, unless={node.instance for node in bad})
            _forget_empty(deployment, pool, ours, look, now_ms)
            note_seen(deployment, pool, look.offers, look.lacks, now_ms)
        offers = admitted(pool, look.offers)
        deployment.recent.note_offers(name, None if look.lacks else offers, look.lacks)
        return Looked(pool, offers, bad)
    except GanglineError as error:
        deployment.recent.note_offers(name, None, error.message)
        note_seen(deployment, pool, (), error.message, now_ms)
        log.warning("pool %s: %s; trying again", name, error.message)
        return Looked(pool, None)


def _agree(
    deployment: Deployment, pool: RentedPool, ours: _Ours, look: Look, now_ms: int, *, unless: Set[str | None]
) -> None:
    """Reconcile the pool's nodes with the provider's instances. Those that could be moved are not stopped yet."""
    instances, nodes = look.instances, ours.nodes.of(pool.limits.name)
    _note_bills(deployment, instances, ours, now_ms)
    _end_unseen(deployment, pool.limits.name, look, now_ms)
    if _count_missing(deployment, nodes, look):
        ours.nodes.forget(pool.limits.name)
    _note_progress(deployment, nodes, instances)
    ends = {instance.id: instance.billed_to_ms for instance in instances}
    ended = [instance for instance in instances if instance.billed_to_ms is not None]
    never_ran = {instance.name for instance in ended if instance.billed_from_ms in (None, instance.billed_to_ms)}
    rented_as = {node.id: node for node in nodes}
    seen_now = [seen_instance(instance) for instance in instances]
    actions = reconcile(nodes, seen_now, now_ms, deployment.policy)
    if actions:
        ours.nodes.forget(pool.limits.name)
    for action in actions:
        match action:
            case Adopt():
                deployment.store.apply(write("adopt", id=action.node, instance=action.instance))
            case StopInstance():
                if action.instance not in unless:
                    pool.driving.stop(action.instance)
            case GiveUp():
                node = rented_as[action.node]
                lost = node.rental not in never_ran  # else it had no machine that could be taken away
                gone(deployment, node.id, action.because, now_ms, ended_ms=ends.get(node.instance or ""), lost=lost)
            case PlaceNode():
                deployment.store.apply(
                    write("place_node", id=action.node, place=action.place, shown_machine=action.machine)
                )
            case MoveNode():
                move_rental(deployment, action, now_ms)


def _count_missing(deployment: Deployment, nodes: Sequence[Rented], look: Look) -> bool:
    """Count the lists in a row without a node. Return whether anything was counted."""
    listed = {instance.id for instance in look.instances}
    # One that was rented since the list was asked for cannot be in it.
    lately = [node for node in nodes if node.since_ms < look.began_ms]
    counted = [node for node in lately if node.missing or node.instance not in listed]
    for node in counted:
        deployment.store.apply(write("count_missing", id=node.id, listed=int(node.instance in listed)))
    return bool(counted)


def _note_progress(deployment: Deployment, ours: Sequence[Rented], instances: Sequence[Instance]) -> None:
    """Record how far the starts of nodes are, if that is new."""
    progress = {instance.name: instance.progress for instance in instances if instance.billed_to_ms is None}
    for node in ours:
        if node.state == "starting" and progress.get(node.rental, node.progress) != node.progress:
            deployment.store.apply(write("note_progress", id=node.id, progress=progress[node.rental]))


def _drain_removed(deployment: Deployment, pool: RentedPool, now_ms: int) -> None:
    """Take a pool that is being removed out of service: its nodes get no more work, and those without any are given back. Forget it once
    its provider was seen to end all that was rented."""
    name = pool.limits.name
    for row in deployment.store.load("nodes_to_drain", pool=name):
        if row["state"] == "starting":
            gone(deployment, row["id"], REMOVED, now_ms)
            continue
        drained = write("set_node_state", id=row["id"], before=row["state"], state="draining", because=REMOVED)
        deployment.store.apply(drained)
        give_back(deployment, row["id"])
    if not deployment.store.load("unseen_rentals", pool=name):
        deployment.store.apply(write("forget_pool", name=name))


def _forget_empty(deployment: Deployment, pool: RentedPool, ours: _Ours, look: Look, now_ms: int) -> None:
    """Forget a pool that is being removed if several lists in a row show that nothing is left of it: a request for a node that was given up
    may still be on its way, and what it rents would be billed for ever if nobody looked any more."""
    name, stays = pool.limits.name, pool.state != "removing"
    left = stays or bool(ours.nodes.of(name)) or any(each.billed_to_ms is None for each in look.instances)
    lists, _ = deployment.recent.count_lists_without(name, look.began_ms, now_ms, missing=not left)
    if lists >= LISTS_WITHOUT_MAX:
        deployment.store.apply(write("forget_pool", name=name))


def _note_bills(deployment: Deployment, instances: Sequence[Instance], ours: _Ours, now_ms: int) -> None:
    """Record from when until when the provider bills each instance, if that is new."""
    ended = [instance.billed_to_ms for instance in instances if instance.billed_to_ms is not None]
    lately = deployment.store.load("ended_instances", since=min(ended)) if ended else []
    known = {(row["id"], row["node"]): row["billed_to_ms"] for row in lately} | dict.fromkeys(ours.open_instances)
    bills = dict[str, str]()
    for instance in instances:
        before = (instance.id, instance.name)  # as the version before wrote it
        bills[instance.id] = bill_id = instance.id if before in known else bill.bill_id(instance.name, instance.id)
        told = (bill_id, instance.name) in known and known[bill_id, instance.name] == instance.billed_to_ms
        if instance.billed_from_ms is not None and not told:
            seen = {"billed_from_ms": instance.billed_from_ms, "billed_to_ms": instance.billed_to_ms}
            deployment.store.apply(write("see_instance", id=bill_id, node=instance.name, **seen))
    _note_unbilled(deployment, {(bills[instance.id], *span) for instance in instances for span in instance.unbilled})


def _end_unseen(deployment: Deployment, pool: str, look: Look, now_ms: int) -> None:
    """End the bills of instances that their provider dropped from its list before anybody saw their end, once their nodes are gone.

    One that it shows as ended, but not since when it was billed, counts as dropped: its bill would have no end.
    """
    shown = [each for each in look.instances if each.billed_to_ms is None or each.billed_from_ms is not None]
    listed = {each for seen in shown for each in (seen.id, bill.bill_id(seen.name, seen.id))}
    for row in deployment.store.load("bills_of_gone_nodes", pool=pool):
        what, missing = f"{pool}/{row['id']}", row["id"] not in listed
        lists, since_ms = deployment.recent.count_lists_without(what, look.began_ms, now_ms, missing=missing)
        to_ms = unseen_end_ms(
            billed_from_ms=row["billed_from_ms"],
            node_gone_ms=row["gone_ms"],
            lists=lists,
            missing_since_ms=since_ms,
            now_ms=now_ms,
        )
        if to_ms is not None:
            deployment.store.apply(write("end_unseen", id=row["id"], billed_to_ms=to_ms))
            log.warning("pool %s: nobody saw the end of %s, so its bill is an estimate", pool, row["id"])


def _note_unbilled(deployment: Deployment, seen: Set[tuple[str, int, int]]) -> None:
    """Record what the provider does not bill: the bill's id, from when and until when, if that is new."""
    if seen:
        known = {(row["instance"], row["from_ms"], row["to_ms"]) for row in deployment.store.load("unbilled_lately")}
        for bill_id, from_ms, to_ms in sorted(seen - known):
            deployment.store.apply(write("add_unbilled", instance=bill_id, from_ms=from_ms, to_ms=to_ms))


def settle(deployment: Deployment) -> None:
    """Make the ledger agree with the provider's bill for every node that has ended together with its instance."""
    for row in deployment.store.load("instances_to_settle"):
        known = deployment.store.load("known_bill", rental=row["node"])[0]["micro_usd"]
        others = deployment.store.load("settled_instances", node=row["node"])
        due = sum(bill.bill_of(deployment, row["price_micro_usd_per_hour"], each) for each in (row, *others))
        deployment.store.apply(guard("settle", id=row["id"]), *bill.settlement(row, known, due, row["node"]))
