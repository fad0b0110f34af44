"""Decide how many nodes a pool has, which to rent and which to give back; and compare our nodes with the provider's list."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.core.job import NodeState
from gangline.core.policy import Policy
from gangline.core.words import counted


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
    and `leaves` the one that its provider was asked to move it away from. An `unfit` node failed its probe.
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
    leaves: str = ""
    offer: str = ""
    unfit: bool = False
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The queued work for a pool. `takable` jobs could run on a further node of it now, and the first has waited since `since_ms`; `stuck`
    of them may run on none of the existing nodes."""

    takable: int
    stuck: int
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class StartNode:
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
    """The action to record where the provider shows a node that has not joined from elsewhere."""

    node: str
    place: str


@dataclass(frozen=True, slots=True)
class MoveNode:
    """The action to end a node whose rental the provider has moved, and to expect the rental's next node at `place`."""

    node: str
    place: str
    because: str


LISTS_WITHOUT_MAX = 3
LEAVES_MS_MAX = 300_000
"""A provider moves a node to another machine within this time, or it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """The actions to take. `covers` is the number of waiting jobs for which nodes exist already or are starting."""

    actions: list[StartNode | Drain | GiveUp]
    covers: int


def scale(limits: PoolLimits, nodes: Sequence[Rented], demand: Demand, now_ms: int, policy: Policy) -> ScalingPlan:
    """Rent nodes for queued jobs that a further node could take, less those already starting; give back nodes that stay idle.

    A node that stays idle while jobs wait may run none of them: it is given back to make room for one that may. Only then may the pool
    have fewer nodes than its minimum.
    """
    actions: list[StartNode | Drain | GiveUp] = []
    starting = [node for node in nodes if node.state == "starting"]
    for node in starting:
        if now_ms - node.since_ms > policy.starting_s * 1000:
            actions.append(GiveUp(node.id, f"has not joined in {policy.starting_s / 60:.0f} min"))
    room = limits.nodes_max - (len(nodes) - len(actions))  # a node that is draining still costs money
    coming = len(starting) - len(actions)
    working = [node for node in nodes if node.state in ("ready", "on_trial")]
    idle = sorted(
        (node for node in working if node.idle_since_ms is not None), key=lambda node: (node.idle_since_ms, node.id)
    )
    # A node that was idle for long may be about to claim work that has only just come.
    just_came = demand.takable and now_ms - demand.since_ms < policy.idle_s * 1000
    useless = [] if just_came else [node for node in idle if _idle_s(node, now_ms) >= policy.idle_s]
    useful_idle = min(len(idle) - len(useless), max(0, demand.takable - demand.stuck))
    for_work = demand.takable - useful_idle - coming
    for_minimum = limits.nodes_min - len(working) - coming
    because = (
        _why(demand, len(working), coming)
        if for_work > 0
        else f"the pool keeps at least {counted(limits.nodes_min, 'node')}"
    )
    actions += [StartNode(because)] * min(room, max(for_work, for_minimum))
    spare = max(demand.takable, len(working) + coming - limits.nodes_min)
    why = "it can run none of the waiting jobs" if demand.takable else "there is no work for it"
    actions += [Drain(node.id, f"idle for {_idle_s(node, now_ms):.0f} s, and {why}") for node in useless[:spare]]
    return ScalingPlan(actions=actions, covers=useful_idle + coming)


def _idle_s(node: Rented, now_ms: int) -> float:
    assert node.idle_since_ms is not None, "it is idle"
    return (now_ms - node.idle_since_ms) / 1000


def _why(demand: Demand, working: int, coming: int) -> str:
    waiting = "1 job waits" if demand.takable == 1 else f"{demand.takable} jobs wait"
    refused = ""
    if demand.stuck and working:
        which = "" if demand.stuck == demand.takable else f", {demand.stuck} of which"
        refused = f"{which or ' and'} can run on none of the existing nodes"
    return f"{waiting}{refused}; {coming} nodes are starting"


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


def _follow(node: Rented, instance: SeenInstance, now_ms: int) -> list[Reconciling]:
    if instance.place in ("", node.place):
        return []
    if instance.place == node.leaves:
        late = now_ms - node.since_ms > LEAVES_MS_MAX
        return [GiveUp(node.id, "its provider did not move it to another machine")] if late else []
    if node.state == "starting" or not node.place:
        return [PlaceNode(node.id, instance.place)]
    return [MoveNode(node.id, instance.place, instance.moved or MOVED)]


def _silent(node: Rented, now_ms: int, policy: Policy) -> bool:
    return now_ms - node.heard_ms > policy.lease_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRate:
    """An offer with the seconds per step (None: unknown) and the interruptions per hour of its kind of node, and how many of its nodes in a
    row failed their probe."""

    offer: str
    price_micro_usd_per_hour: int
    seconds_per_step: float | None
    interruptions_per_hour: float
    failed_probes: int = 0


FAILED_PROBES_MAX = 30
"""More failed probes in a row of one offer count as this many."""


def cheapest(rates: Sequence[OfferRate], policy: Policy) -> list[OfferRate]:
    """Sort offers by expected cost per step: price × seconds per step × the factor by which interruptions lengthen the work.

    An unknown speed counts as the best known one, else a kind of node that was never tried would never be. Each node in a row that failed
    its probe doubles what is expected of its offer, else one whose image lacks the libraries would be rented for ever.
    """
    known = [rate.seconds_per_step for rate in rates if rate.seconds_per_step]
    best = min(known, default=1.0)

    def expected(rate: OfferRate) -> tuple[float, str]:
        redone = 1 + rate.interruptions_per_hour * policy.move_s / 3600
        cost = rate.price_micro_usd_per_hour * (rate.seconds_per_step or best) * redone
        return cost * 2 ** min(rate.failed_probes, FAILED_PROBES_MAX), rate.offer

    return sorted(rates, key=expected)
