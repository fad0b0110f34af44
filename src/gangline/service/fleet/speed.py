"""Find machines to replace, while they work and when they come again.

Those that are slow beside their peers lose their job; sound ones are returned if others are expected to do the work ahead for less. A job
that is slow as its card is throttled, or as it spilled into the machine's memory, says so: `gangline.core.fleet.slowness`. One that spilled
needs a larger card only where no machine of the class is known to do the work faster.
"""

import logging
import math
from collections import defaultdict
from dataclasses import dataclass

from gangline.core.fleet.pace import Outlook, Paces, compare_paces, too_slow, worth_replacing
from gangline.core.fleet.slowness import GIB
from gangline.core.job import Node
from gangline.core.jobs.failure import failure_sentence
from gangline.core.money.cost import HOUR_MS
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import ask_to_stop, event
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.larger import finds_larger
from gangline.service.fleet.measured.slowness import load_cards_state

PACES_MAX = 250
"""The number of machines whose paces are compared, at most."""

WAITING_MAX = 10_000
TRIED_LAST = 100
"""The number of most recent nodes from which the chance is estimated that the next machine never came before."""

log = logging.getLogger("gangline.fleet")


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """The leases of one workload on one GPU class whose speed is known and that were not asked to stop."""

    leases: list[Row]
    seen: Paces
    returned: Paces


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """What is ahead of a pool: the jobs that wait, for each node, and the chance that its next machine never came before."""

    pool: str
    waiting: float
    new_share: float
    drains_max: int
    """How many nodes may be drained now, so that no more than a share of `seek_share_max` drains at a time."""


def heed_speed(deployment: Deployment, leases: list[Row], now_ms: int) -> None:
    """Ask those attempts to stop whose work another machine would do for less."""
    groups = peer_groups(deployment, leases)
    slow = {attempt for group in groups for attempt in _move_slow(deployment, group, now_ms)}
    for lease in leases:
        if lease["attempt"] in slow or lease["stop"] or not lease["memory_bytes"]:
            continue  # what spilled beside faster peers fits into such a card
        # Few leases need a look at their node's gauges: a card's memory is about what its class has.
        if lease["memory_bytes"] > lease["gpu_memory_gb"] * GIB:
            _move_spilled(deployment, lease, now_ms)
    if deployment.policy.seek_faster and deployment.pools:
        jobs = deployment.store.load("queue_length", limit=WAITING_MAX)[0]["jobs"]
        ahead = [_ahead(deployment, pool, jobs) for pool in deployment.pools]
        foreseen = (write("foresee", pool=each.pool, waiting=each.waiting, new_share=each.new_share) for each in ahead)
        deployment.store.apply(*foreseen)
        rented = _by_pool(groups)
        for each in ahead:
            _seek_faster(deployment, each, rented.get(each.pool, []), now_ms)


def _ahead(deployment: Deployment, pool: str, jobs: int) -> _Ahead:
    here = deployment.store.load("rented_in_pool", pool=pool)[0]
    return _Ahead(
        pool=pool,
        waiting=jobs / max(1, here["nodes"]),
        new_share=_new_share(deployment, pool),
        drains_max=math.ceil(deployment.policy.seek_share_max * here["nodes"]) - here["draining"],
    )


def _by_pool(groups: list[PeerGroup]) -> dict[str, list[tuple[PeerGroup, Row]]]:
    """Return the leases of rented nodes, each with its group, by their pool."""
    found: dict[str, list[tuple[PeerGroup, Row]]] = defaultdict(list)
    for group in groups:
        for lease in group.leases:
            if lease["rented"]:
                found[lease["pool"]].append((group, lease))
    return found


def peer_groups(deployment: Deployment, leases: list[Row]) -> list[PeerGroup]:
    """Return the leases whose speed is known in groups that can be compared."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for lease in leases:
        if lease["seconds_per_step"] and not lease["stop"]:
            found[lease["workload"], lease["gpu"]].append(lease)
    known: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in deployment.store.load("paces_at_work", limit=PACES_MAX) if found else []:
        known[row["workload"], row["gpu"]].append(row)
    return [PeerGroup(group, *_paces(known[key], group)) for key, group in found.items()]


def _paces(rows: list[Row], leases: list[Row]) -> tuple[Paces, Paces]:
    """Return the last known paces of all machines that were tried, and of those among them that are not here now."""
    now = {lease["machine"]: lease["seconds_per_step"] for lease in leases}
    known = {row["machine"]: row["seconds_per_step"] for row in rows} | now
    away = (row["seconds_per_step"] for row in rows if not row["working"] and row["machine"] not in now)
    return Paces(known.values()), Paces(away)


def _move_spilled(deployment: Deployment, lease: Row, now_ms: int) -> None:
    """Ask a job to stop whose memory spilled, if a card would hold it all; its need of memory is raised at once."""
    spill = load_cards_state(deployment, lease, now_ms).spill(lease)
    if spill is None:
        return
    left_s = max(0, lease["steps"] - lease["step"]) * (lease["seconds_per_step"] or 0)
    if left_s <= deployment.policy.move_s:
        return
    if finds_larger(deployment, lease["job"], spill.needs_gb, now_ms):
        because = f"{spill.says}; it asks for a GPU with {spill.needs_gb:g} GB or more from now on"
        raised = write("raise_need", id=lease["job"], gpu_memory_gb=spill.needs_gb)
        ask_to_stop(deployment, lease, because, now_ms, raised, kind="spilled")
        return
    _tell_slowed(
        deployment,
        lease,
        f"{failure_sentence('spilled', spill.says)}. No node that it may use has {spill.needs_gb:g} GB, and none can be rented now, so it "
        "continues: a smaller batch or resolution needs less",
        now_ms,
    )


def _tell_slowed(deployment: Deployment, lease: Row, because: str, now_ms: int) -> None:
    """Record once for each attempt that it is slowed and continues."""
    of = {"job": lease["job"], "attempt": lease["attempt"]}
    if not deployment.store.load("events_of_attempt", **of, kind="slowed"):
        deployment.store.apply(event(of["job"], "slowed", because, now_ms, attempt=of["attempt"], node=lease["node"]))


def _move_slow(deployment: Deployment, group: PeerGroup, now_ms: int) -> list[str]:
    """Ask the attempts to stop that are slow beside their peers, if moving pays. Return all that are slow."""
    peers = compare_paces(group.seen.sorted, deployment.policy)
    if peers is None:
        return []
    slow = [lease for lease in group.leases if lease["seconds_per_step"] > peers.slow]
    for lease in slow:
        mine = lease["seconds_per_step"]
        cards = load_cards_state(deployment, lease, now_ms)
        if not cards.settled and not cards.spill(lease):
            continue  # a later look can tell a throttled card from a slow one
        cause = cards.cause(lease)
        because = too_slow(mine, peers, max(0, lease["steps"] - lease["step"]), deployment.policy)
        if because:
            said = f"{cause.says}; {because}" if cause.says else because
            ask_to_stop(deployment, lease, said, now_ms, kind=cause.kind)
        elif cause.says:
            pace = f"{mine:.3g} s a step, against {peers.usual:.3g} on {peers.machines} machines"
            _tell_slowed(deployment, lease, f"{failure_sentence(cause.kind, cause.says)}; {pace}", now_ms)
    return [lease["attempt"] for lease in slow]


def _seek_faster(deployment: Deployment, ahead: _Ahead, measured: list[tuple[PeerGroup, Row]], now_ms: int) -> None:
    """Drain the slowest nodes of a pool that are worth replacing."""
    if ahead.drains_max <= 0:
        return
    found = list[tuple[float, Row, str]]()
    for group, lease in measured:
        outlook = Outlook(seen=group.seen, returned=group.returned, new_share=ahead.new_share)
        because = _outpaced(deployment, lease, outlook, ahead.waiting)
        if because:
            found.append((lease["seconds_per_step"], lease, because))
    for _, lease, because in sorted(found, key=lambda one: (-one[0], one[1]["attempt"]))[: ahead.drains_max]:
        why = failure_sentence("outpaced", because)
        drain = guard("set_node_state", id=lease["node"], before=lease["node_state"], state="draining", because=why)
        if ask_to_stop(deployment, lease, because, now_ms, drain, kind="outpaced"):
            log.info("node %s drains: %s", lease["node"], why)


def _outpaced(deployment: Deployment, lease: Row, outlook: Outlook, waiting: float) -> str | None:
    """Return why to replace a node by a faster one, or None.

    A job that has moved often moves only if its own remaining steps justify it.
    """
    left = max(0, lease["steps"] - lease["step"])
    because = worth_replacing(lease["seconds_per_step"], outlook, left + waiting * lease["steps"], deployment.policy)
    if because and deployment.store.load("moves", job=lease["job"])[0]["moves"] >= deployment.policy.moves_max:
        return worth_replacing(lease["seconds_per_step"], outlook, left, deployment.policy)
    return because


def turned_away(deployment: Deployment, node: Node, job: str, now_ms: int) -> str | None:
    """Return why to return a machine before it has work, as it came before and was slow at such jobs; or None."""
    if not deployment.policy.seek_faster or not node.rented:
        return None
    known = deployment.store.load("pace_at_job", job=job, gpu=node.gpu, machine=node.machine)
    if not known:
        return None
    ahead = deployment.store.load("foreseen", pool=node.pool)
    if not ahead:
        return None
    mine, steps, workload = (known[0][name] for name in ("seconds_per_step", "steps", "workload"))
    came = deployment.store.load("nodes_of_machine_since", machine=node.machine, since=now_ms - HOUR_MS)[0]["nodes"]
    if came > deployment.policy.moves_max:
        return None  # the provider seems to have no other machine
    rows = deployment.store.load("paces", workload=workload, gpu=node.gpu, limit=PACES_MAX)
    seen, returned = _paces(rows, [])
    outlook = Outlook(seen=seen, returned=returned, new_share=ahead[0]["new_share"])
    because = worth_replacing(mine, outlook, steps * (1 + ahead[0]["waiting"]), deployment.policy)
    if because is None:
        return None
    why = failure_sentence("outpaced", because)
    drained = deployment.store.apply(
        guard("set_node_state", id=node.id, before=node.state, state="draining", because=why)
    )
    return why if drained else None


def _new_share(deployment: Deployment, pool: str) -> float:
    """Return the chance that the next machine of a pool never came before; 1 if none came yet."""
    tried = deployment.store.load("machines_tried", pool=pool, last=TRIED_LAST)[0]
    return tried["new"] / tried["nodes"] if tried["nodes"] else 1.0
