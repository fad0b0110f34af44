"""Follow a rental to another machine: where its provider moves it, and where a bad machine is left."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from gangline.core.fleet.autoscale import TAKEN_BACK, MoveNode, Rented, SeenInstance
from gangline.core.fleet.reallocation import demand_for, is_wanted, may_reallocate
from gangline.ports.pool import Instance, WithReallocation
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import Look
from gangline.service.fleet.demand import facts_of_offers, load_needs
from gangline.service.fleet.nodes import gone
from gangline.service.fleet.terms import admitted

log = logging.getLogger("gangline.fleet")


def move_rental(deployment: Deployment, move: MoveNode, now_ms: int, *, leaves: str = "") -> str:
    """End the node of a rental that its provider has moved, or is to move away from the place that it `leaves`, and return the next: its
    worker joins from the new place."""
    node, at = deployment.new_id("node"), {"place": move.place, "shown_machine": move.machine, "leaves": leaves}
    following = write("move_rental", id=node, left=move.node, because=move.because, now=now_ms, **at)
    gone(deployment, move.node, move.because, now_ms, lost=not leaves, then=[following])
    log.info("node %s becomes %s: %s", move.node, node, move.because)
    return node


def may_leave(pool: RentedPool, node: Row) -> bool:
    """Return whether a node without work may be moved to another machine, so that a tick decides what becomes of it."""
    quarantined = node["state"] == "quarantined" and not node["proof_failed"]
    return quarantined and bool(node["place"]) and isinstance(pool.driving.driver, WithReallocation)


def leave_bad_machines(
    deployment: Deployment, pool: RentedPool, nodes: Sequence[Rented], look: Look, now_ms: int
) -> bool:
    """Let the provider move nodes whose machines are in quarantine, if it can and the pool would rent others for them. Return whether there
    were any. The instances of the rest are stopped as ever.
    """
    if not isinstance(pool.driving.driver, WithReallocation):
        return False
    seen = {instance.name: seen_instance(instance) for instance in look.instances}
    bad = [node for node in nodes if may_reallocate(node, seen.get(node.rental))]
    if not bad:
        return False
    needs = load_needs(deployment, now_ms)
    facts = facts_of_offers(deployment, pool.limits, admitted(pool, look.offers), {}, now_ms)
    offers = {offer.offer: offer for offer in facts}
    left: set[str] = set()
    for node in bad:
        if node.offer not in offers:
            continue
        demand = demand_for(offers[node.offer], needs, deployment.policy)
        coming = [replace(each, state="starting") if each.id in left else each for each in nodes]
        if is_wanted(pool.limits, coming, demand):
            assert node.instance, "its provider shows it"
            left.add(node.id)
            following = move_rental(deployment, MoveNode(node.id, "", node.because), now_ms, leaves=node.place)
            pool.driving.reallocate(following, node.instance, node.because)
    return bool(left)


def seen_instance(instance: Instance) -> SeenInstance:
    ended = instance.billed_to_ms is not None
    return SeenInstance(
        id=instance.id,
        name=instance.name,
        ended=(instance.ended or TAKEN_BACK) if ended else "",
        place=instance.place,
        moved=instance.moved,
        machine=instance.machine,
    )
