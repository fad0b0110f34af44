"""Follow a rental to another machine: where its provider moves it, and where it is asked to."""

import logging
from collections.abc import Sequence

from gangline.core.fleet.autoscale import TAKEN_BACK, MoveNode, Rented, SeenInstance, may_reallocate
from gangline.ports.pool import Instance, WithReallocation
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import Look
from gangline.service.fleet.nodes import gone

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


def movable(pool: RentedPool, nodes: Sequence[Rented], look: Look) -> list[Rented]:
    """Return the nodes whose machines are in quarantine, and which the pool's provider can move to others."""
    if not isinstance(pool.driving.driver, WithReallocation):
        return []
    seen = {instance.name: seen_instance(instance) for instance in look.instances}
    return [node for node in nodes if may_reallocate(node, seen.get(node.rental))]


def leave_bad_machine(deployment: Deployment, pool: RentedPool, node: Rented, now_ms: int) -> None:
    """Have the provider move a node to another machine."""
    assert node.instance, "its provider shows it"
    following = move_rental(deployment, MoveNode(node.id, "", node.because), now_ms, leaves=node.place)
    pool.driving.reallocate(following, node.instance, node.because)


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
