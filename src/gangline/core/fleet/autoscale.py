"""Compare our nodes with the provider's list; and the actions by which a pool gets and loses nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.core.fleet.needs import NodeShape
from gangline.core.job import NodeState
from gangline.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """The minimum and maximum number of nodes in a pool."""

    name: str
    nodes_min: int
    nodes_max: int

    def __post_init__(self) -> None:
        assert 0 <= self.nodes_min <= self.nodes_max, "a pool's limits are in order"


def may_rent(limits: PoolLimits | None, *, rented: int, gives_back: int) -> bool:
    """Return whether a pool that has `rented` nodes and gives back `gives_back` may rent another. A pool without limits rents none."""
    return limits is not None and rented - gives_back < limits.nodes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A node of the pool, which its provider knows by the name of its `rental`. `idle_since_ms` is None while it works; `missing` counts
    the provider's last lists in a row without it, before this one. `place` is the machine as the provider calls it, if it ever moves one,
    and `leaves` the one that its provider was asked to move it away from. An `unfit` node failed its probe. Of its slots, `free` may take
    work now.
    """

    id: str
    rental: str
    state: NodeState
    since_ms: int
    idle_since_ms: int | None
    heard_ms: int
    instance: str | None
    missing: int
    place: str = ""
    shown_machine: str = ""
    leaves: str = ""
    offer: str = ""
    unfit: bool = False
    because: str = ""
    progress: str = ""
    shape: NodeShape
    free: int = 1


@dataclass(frozen=True, slots=True)
class StartNode:
    """The action to rent a node of this offer."""

    offer: str
    because: str


@dataclass(frozen=True, slots=True)
class Drain:
    node: str
    because: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The action to mark a node as gone: it never joined, or the provider no longer has it."""

    node: str
    because: str


@dataclass(frozen=True, slots=True)
class Reallocate:
    """The action to have the provider move a node, whose machine is in quarantine, to another machine."""

    node: str


@dataclass(frozen=True, slots=True)
class StopInstance:
    instance: str
    because: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """The action to record that `instance` of the provider was rented as `node`."""

    node: str
    instance: str


@dataclass(frozen=True, slots=True)
class PlaceNode:
    """The action to record where, and on which machine, the provider shows a node that has not joined from elsewhere."""

    node: str
    place: str
    machine: str = ""


@dataclass(frozen=True, slots=True)
class MoveNode:
    """The action to end a node whose rental the provider has moved, and to expect the rental's next node at `place`."""

    node: str
    place: str
    because: str
    machine: str = ""


LISTS_WITHOUT_MAX = 3
LOST_MS = 600_000
"""The end of an instance that was in no list of its provider for this long will not be seen."""
LEAVES_MS_MAX = 300_000
"""A provider moves a node to another machine within this time, or it is given up."""


def starts_max(
    limits: PoolLimits, nodes: Sequence[Rented], failed: int, last_ms: int, now_ms: int, policy: Policy
) -> int:
    """Return how many nodes the pool may rent now, after `failed` nodes in a row failed their probe, the last at `last_ms`.

    An image without the libraries must not be rented repeatedly: after a failure the pool rents one node at a time, with a pause
    that doubles, until one passes.
    """
    if not failed:
        return limits.nodes_max
    pause_s = min(policy.rest_max_s, policy.start_pause_s * 2 ** min(failed - 1, 20))
    waits = now_ms - last_ms < 1000 * pause_s or any(node.state == "starting" for node in nodes)
    return 0 if waits else 1


TAKEN_BACK = "the provider took it back"
MOVED = "the provider moved it to another machine"
Reconciling = Adopt | StopInstance | GiveUp | PlaceNode | MoveNode


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInstance:
    """An instance in the provider's list; `ended` says why it no longer exists, and is empty while it does. `place` is where it is, and
    `moved` says why it left its last place."""

    id: str
    name: str
    ended: str = ""
    place: str = ""
    moved: str = ""
    machine: str = ""


def reconcile(
    nodes: Sequence[Rented], instances: Sequence[SeenInstance], now_ms: int, policy: Policy
) -> list[Reconciling]:
    """Compare our nodes with the provider's list: stop instances that we do not want, give up nodes that it no longer has, and follow those
    that it moved.

    A node that is missing is given up only after `LISTS_WITHOUT_MAX` lists and if it is silent: a list may be incomplete.
    """
    actions: list[Reconciling] = []
    ours = {node.rental: node for node in nodes}
    alive = [instance for instance in instances if not instance.ended]
    listed = {instance.id for instance in instances}
    for instance in alive:
        node = ours.get(instance.name)
        if node is None or node.state == "gone":
            actions.append(StopInstance(instance.id, "it belongs to none of our nodes"))
        elif node.instance is None:
            ours[node.rental] = replace(node, instance=instance.id, missing=0)
            actions.append(Adopt(node.id, instance.id))
            actions += _follow(node, instance, now_ms)
        elif node.instance != instance.id:  # a request that timed out and was repeated may have started two
            actions.append(StopInstance(instance.id, f"a duplicate of {node.id}"))
        elif node.state in ("draining", "quarantined") and node.idle_since_ms is not None:
            actions.append(StopInstance(instance.id, f"{node.id} is {node.state}"))
        else:
            actions += _follow(node, instance, now_ms)
    running = {instance.name for instance in alive}
    ended = {instance.name: instance.ended for instance in instances if instance.ended and instance.name not in running}
    for node in ours.values():
        if node.state == "gone":
            continue
        if node.rental in ended:
            actions.append(GiveUp(node.id, ended[node.rental]))
        elif node.instance not in listed and node.missing + 1 >= LISTS_WITHOUT_MAX and _silent(node, now_ms, policy):
            actions.append(GiveUp(node.id, f"missing from {node.missing + 1} lists of the provider"))
    return actions


def unseen_end_ms(
    *, billed_from_ms: int, node_gone_ms: int, lists: int, missing_since_ms: int, now_ms: int
) -> int | None:
    """Return until when an instance counts as billed whose nodes are gone, and which `lists` lists in a row were without, the first of them
    at `missing_since_ms`; None while its end may still be seen.

    Nobody knows more of it than when its last node was gone.
    """
    if lists < LISTS_WITHOUT_MAX or now_ms - missing_since_ms < LOST_MS:
        return None
    return max(billed_from_ms, node_gone_ms)


def may_reallocate(node: Rented, instance: SeenInstance | None) -> bool:
    """Return whether a node has nothing left to do on its machine, which is in quarantine, and its provider still shows it there.

    A node that failed its probe may do so on any machine, as its image is the same: it is given back.
    """
    if instance is None or instance.ended or node.state != "quarantined" or node.idle_since_ms is None or node.unfit:
        return False
    return node.instance == instance.id and node.place == instance.place != ""


def _follow(node: Rented, instance: SeenInstance, now_ms: int) -> list[Reconciling]:
    known = node.place == instance.place and (node.state != "starting" or node.shown_machine == instance.machine)
    if known or not instance.place:
        return []
    if instance.place == node.leaves:
        late = now_ms - node.since_ms > LEAVES_MS_MAX
        return [GiveUp(node.id, "its provider did not move it to another machine")] if late else []
    if node.state == "starting" or not node.place:
        return [PlaceNode(node.id, instance.place, instance.machine)]
    return [MoveNode(node.id, instance.place, instance.moved or MOVED, instance.machine)]


def _silent(node: Rented, now_ms: int, policy: Policy) -> bool:
    return now_ms - node.heard_ms > policy.lease_ms
