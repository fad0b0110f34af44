"""Plan a fleet over all of its pools: which nodes to rent for the waiting jobs, and which to give back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gangline.core.fleet.autoscale import Drain, GiveUp, PoolLimits, Reallocate, Rented, StartNode, StopInstance
from gangline.core.fleet.choice import BENEFIT_OF_DOUBT, ClassPace, OfferFacts, PaceTable, expect, is_paid, reserve
from gangline.core.fleet.needs import Cover, NodeShape, QueuedWork, Room, cover, fits
from gangline.core.policy import Policy
from gangline.core.words import counted

TRIES_FROM_JOBS = 4
"""A class of GPU that was not measured is tried only where at least this many jobs need nodes: nobody's only job is an experiment."""
Planned = StartNode | Reallocate | StopInstance | Drain | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNow:
    """A pool as it is. `starts_max` nodes may be rented now; `movable` nodes are on bad machines, and its provider can move them to others.
    While it `is_away`, nothing is rented, and no node is given back."""

    limits: PoolLimits
    nodes: Sequence[Rented]
    offers: Sequence[OfferFacts] = ()
    starts_max: int
    movable: Sequence[Rented] = ()
    is_away: bool = False

    @property
    def name(self) -> str:
        return self.limits.name


@dataclass(slots=True)
class _Pool:
    """A pool while it is planned for. `tried` are the classes of GPU of all nodes, in all pools."""

    now: PoolNow
    actions: list[Planned]
    working: int
    coming: int
    idle: list[Rented]
    room: int
    starts: int
    movable: list[Rented]
    tried: set[str]
    waiting: int = 0
    stuck: int = 0
    """How many jobs wait that could run on a further node of the pool, and how many of those can run on no existing node."""

    def most(self, offer: OfferFacts) -> int:
        """Return how many nodes of an offer may be rented: within the limit, or by leaving a bad machine for another."""
        moves = sum(node.offer == offer.offer for node in self.movable)
        return 0 if offer.refused or self.now.is_away else max(0, min(self.starts, self.room + moves))

    def rent(self, offer: OfferFacts, count: int, because: str) -> None:
        """Rent nodes; those that the provider can move to other machines come before new ones."""
        moved = [node for node in self.movable if node.offer == offer.offer][:count]
        self.movable = [node for node in self.movable if node not in moved]
        self.actions += [Reallocate(node.id) for node in moved]
        self.actions += [StartNode(offer.offer, because)] * (count - len(moved))
        self.tried.add(offer.shape.gpu)
        self.room -= count - len(moved)
        self.starts -= count
        self.coming += count


def plan(
    pools: Sequence[PoolNow],
    others: Sequence[Room],
    needs: Sequence[QueuedWork],
    measured: Sequence[ClassPace],
    now_ms: int,
    policy: Policy,
) -> dict[str, list[Planned]]:
    """Return what to do in each pool.

    Waiting jobs are left to the nodes that are coming, or are idle and may take them; `others` are nodes that nobody rents. For the rest,
    nodes are rented from the offers, of all pools together, on which a finished step is expected to cost least. A node whose machine is
    bad is moved to another one instead of renting one more of its offer, or its instance is stopped. Nodes that stay idle are given back.
    One that does so while jobs wait may run none of them: it makes room for one that may, and only then may a pool have fewer nodes than
    its minimum.
    """
    paces = PaceTable(measured)
    tried = {node.shape.gpu for pool in pools for node in pool.nodes} | {room.shape.gpu for room in others}
    planned = [_begin(pool, tried, now_ms, policy) for pool in pools]
    idle_ms = round(policy.idle_s * 1000)
    covered = cover(needs, [*others, *_rooms(pools, planned, now_ms, idle_ms)], recent_ms=now_ms - idle_ms)
    affordable = _affordable(needs, pools, policy)
    takable: dict[str, int] = {}
    for pool in planned:
        shapes = {offer.shape for offer in pool.now.offers}
        here = [index for index, need in enumerate(needs) if any(fits(need, shape) for shape in shapes)]
        takable[pool.now.name] = sum(min(covered.left[index], affordable[index]) for index in here)
        pool.waiting = sum(needs[index].jobs for index in here)
        pool.stuck = sum(needs[index].jobs for index in here if needs[index].stuck)
    _rent(planned, needs, affordable, covered, paces, policy)
    for pool in planned:
        if not pool.now.is_away:
            _keep_minimum(pool, needs, paces, policy)
            pool.actions += [_stop(node) for node in pool.movable]
            _drain(pool, covered.nodes, takable[pool.now.name], now_ms, policy)
    return {pool.now.name: pool.actions for pool in planned}


def _begin(pool: PoolNow, tried: set[str], now_ms: int, policy: Policy) -> _Pool:
    starting = [node for node in pool.nodes if node.state == "starting"]
    late = [node for node in starting if now_ms - node.since_ms > policy.starting_s * 1000]
    working = [node for node in pool.nodes if node.state in ("ready", "on_trial")]
    idle = [(node.idle_since_ms, node.id, node) for node in working if node.idle_since_ms is not None]
    return _Pool(
        now=pool,
        actions=[GiveUp(node.id, f"has not joined in {policy.starting_s / 60:.0f} min") for node in late],
        working=len(working),
        coming=len(starting) - len(late),
        idle=[node for _, _, node in sorted(idle, key=lambda each: each[:2])],
        room=pool.limits.nodes_max - (len(pool.nodes) - len(late)),  # one that is draining still costs money
        starts=pool.starts_max,
        movable=list(pool.movable),
        tried=tried,
    )


def _stop(node: Rented) -> StopInstance:
    assert node.instance, "its provider shows it"
    return StopInstance(node.instance, f"{node.id} is {node.state}")


def _rooms(pools: Sequence[PoolNow], planned: Sequence[_Pool], now_ms: int, idle_ms: int) -> list[Room]:
    rooms: list[Room] = []
    for pool, begun in zip(pools, planned, strict=True):
        gone = {action.node for action in begun.actions if isinstance(action, GiveUp)}
        for node in sorted(pool.nodes, key=_busiest_last, reverse=True):
            coming = node.state == "starting"
            if node.free and node.id not in gone and (coming or node.state in ("ready", "on_trial")):
                old = node.idle_since_ms is None or now_ms - node.idle_since_ms >= idle_ms
                rooms.append(Room(node=node.id, shape=node.shape, free=node.free, coming=coming, old=old))
    return rooms


def _busiest_last(node: Rented) -> tuple[bool, int, str]:
    return node.idle_since_ms is None, node.idle_since_ms or 0, node.id


def _affordable(needs: Sequence[QueuedWork], pools: Sequence[PoolNow], policy: Policy) -> list[int]:
    """Return how many jobs of each need their project's budget can still reserve, on the cheapest offers that fit."""
    taken: dict[str, float] = {}
    found: list[int] = []
    for need in needs:
        offers = [offer for pool in pools for offer in pool.offers if fits(need, offer.shape)]
        if not offers:
            found.append(0)
            continue
        jobs = need.jobs
        if need.left is not None:
            left = need.left - taken.get(need.project, 0)
            each = min(reserve(need, offer, need.download_bytes, policy) for offer in offers)
            least = min(reserve(need, offer, need.least_bytes, policy) for offer in offers)
            jobs = 0 if least > left else max(1, min(jobs, int(left // each) if each else jobs))
            taken[need.project] = taken.get(need.project, 0) + jobs * each
        found.append(jobs)
    return found


def _rent(
    planned: Sequence[_Pool],
    needs: Sequence[QueuedWork],
    affordable: Sequence[int],
    covered: Cover,
    paces: PaceTable,
    policy: Policy,
) -> None:
    """Rent for the jobs that no node covers, those that have waited longest first."""
    if not any(_may_rent(pool) for pool in planned):
        return
    left = [
        max(0, min(covered.left[index], affordable[index] - sum(covered.by_pool[index].values())))
        for index in range(len(needs))
    ]
    work = _Work(needs, left, {offer.shape for pool in planned if _may_rent(pool) for offer in pool.now.offers})
    spare: list[Room] = []  # slots of the nodes that are rented here
    for index in sorted(range(len(needs)), key=lambda index: (needs[index].since_ms, index)):
        need = needs[index]
        if spare and left[index]:
            found = cover([replace(need, jobs=left[index])], spare, recent_ms=0)
            spare = _less(spare, found, need)
            work.take(need, left[index] - found.left[0])
            left[index] = found.left[0]
        while left[index]:
            best = _best(planned, need, work, left[index], paces, policy)
            if best is None:
                break
            pool, offer, most = best
            each = min(offer.shape.slots // need.slots, left[index])
            nodes = min(pool.most(offer), max(1, left[index] // each), most)
            pool.rent(offer, nodes, _why(pool))
            work.take(need, nodes * each)
            left[index] -= nodes * each
            free = offer.shape.slots - each * need.slots
            spare += [
                Room(node=f"{offer.offer} {len(spare) + number}", shape=offer.shape, free=free, coming=True)
                for number in range(nodes if free else 0)
            ]


class _Work:
    """The slots that the jobs which have no node yet would take on nodes of each shape."""

    def __init__(self, needs: Sequence[QueuedWork], left: Sequence[int], shapes: Iterable[NodeShape]) -> None:
        waiting = [(need, jobs * need.slots) for need, jobs in zip(needs, left, strict=True) if jobs]
        self._slots = {shape: sum(slots for need, slots in waiting if fits(need, shape)) for shape in shapes}
        self.jobs = sum(left)

    def on(self, shape: NodeShape) -> int:
        return self._slots[shape]

    def take(self, need: QueuedWork, jobs: int) -> None:
        """Count that this number of jobs of a need have a node."""
        self.jobs -= jobs
        for shape in self._slots:
            if fits(need, shape):
                self._slots[shape] -= jobs * need.slots


def _may_rent(pool: _Pool) -> bool:
    return any(pool.most(offer) for offer in pool.now.offers)


def _less(rooms: list[Room], found: Cover, need: QueuedWork) -> list[Room]:
    """Return the rooms without the slots that these jobs took."""
    if not found.nodes:
        return rooms
    jobs, less = sum(found.by_pool[0].values()), list[Room]()
    for room in rooms:
        taken = min(jobs, room.free // need.slots) if room.node in found.nodes else 0
        jobs -= taken
        less.append(replace(room, free=room.free - taken * need.slots))
    return [room for room in less if room.free]


def _best(
    planned: Sequence[_Pool],
    need: QueuedWork,
    work: _Work,
    jobs: int,
    paces: PaceTable,
    policy: Policy,
) -> tuple[_Pool, OfferFacts, int] | None:
    """Return the offer to rent, and at most how many nodes of it. Where several jobs wait, one of them tries a class of GPU that
    was not measured yet, if that might be cheaper."""
    found: list[tuple[float, str, str, bool, _Pool, OfferFacts]] = []
    for pool in planned:
        for offer in pool.now.offers:
            if not pool.most(offer) or not fits(need, offer.shape) or not is_paid(need, offer, policy):
                continue
            shared_by = max(work.on(offer.shape), need.slots * jobs)
            expected = expect(need, offer, paces, policy, shared_by=shared_by)
            unknown = not expected.measured and offer.shape.gpu not in pool.tried
            found.append((expected.micro_usd_per_step, pool.now.name, offer.offer, unknown, pool, offer))
    if not found:
        return None
    cost, *_, pool, offer = min(found, key=lambda each: each[:3])
    if work.jobs >= TRIES_FROM_JOBS:
        doubtful = [
            each
            for each in found
            if each[3] and each[5].shape.gpu != offer.shape.gpu and each[0] / BENEFIT_OF_DOUBT < cost
        ]
        if doubtful:
            *_, other, untried = min(doubtful, key=lambda each: each[:3])
            return other, untried, 1
    return pool, offer, jobs


def _keep_minimum(pool: _Pool, needs: Sequence[QueuedWork], paces: PaceTable, policy: Policy) -> None:
    missing = pool.now.limits.nodes_min - pool.working - pool.coming
    usable = [offer for offer in pool.now.offers if pool.most(offer)]
    if missing <= 0 or not usable:
        return
    any_job = needs[0] if needs else QueuedWork(project="", wanted="", workload="", jobs=1, since_ms=0)
    usable.sort(
        key=lambda offer: (expect(any_job, offer, paces, policy, shared_by=1 << 30).micro_usd_per_step, offer.offer)
    )
    because = f"the pool keeps at least {counted(pool.now.limits.nodes_min, 'node')}"
    pool.rent(usable[0], min(missing, pool.most(usable[0])), because)


def _drain(pool: _Pool, used: frozenset[str], takable: int, now_ms: int, policy: Policy) -> None:
    useless = [node for node in pool.idle if node.id not in used and _idle_s(node, now_ms) >= policy.idle_s]
    spare = max(takable, pool.working + pool.coming - pool.now.limits.nodes_min)
    why = "it can run none of the waiting jobs" if takable else "there is no work for it"
    pool.actions += [
        Drain(node.id, f"idle for {_idle_s(node, now_ms):.0f} s, and {why}") for node in useless[: max(0, spare)]
    ]


def _idle_s(node: Rented, now_ms: int) -> float:
    assert node.idle_since_ms is not None, "it is idle"
    return (now_ms - node.idle_since_ms) / 1000


def _why(pool: _Pool) -> str:
    """Say what a node is for: the jobs that could run on a further node of this pool. It is shown for as long as the node is known."""
    jobs, stuck = pool.waiting, pool.stuck
    refused = ""
    if stuck and pool.working:
        which = "" if stuck == jobs else f", {stuck} of which"
        refused = f"{which or ' and'} could run on none of the existing nodes"
    others = (
        f"{pool.coming} other nodes were" if pool.coming > 1 else f"{'one' if pool.coming else 'no'} other node was"
    )
    return f"{counted(jobs, 'job')} waited{refused}; {others} starting"
