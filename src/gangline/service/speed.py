"""Give sound machines back where others are expected to do the work ahead for less: at their work, or when they come again."""

import logging
import math

from gangline.core.cost import HOUR_MS
from gangline.core.failure import sentence
from gangline.core.job import Node
from gangline.core.pace import Outlook, worth_replacing
from gangline.ports.store import Row, guard
from gangline.service.attempts import ask_to_stop
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.health import by_workload, known_paces, pacing

WAITING_MAX = 10_000
TRIED_LAST = 100
"""So many of the nodes that came last tell how likely the next one is a machine that never came before."""

log = logging.getLogger("gangline.fleet")


def seek_faster(at: Deployment, now_ms: int) -> None:
    """A few of a pool at a time."""
    for pool in at.pools.values() if at.policy.seek_faster else ():
        here = at.store.load("rented_in_pool", pool=pool.limits.name)[0]
        most = math.ceil(at.policy.seek_share_max * here["nodes"]) - here["draining"]
        if most > 0:
            _give_way(at, pool, _waiting(at, here["nodes"]), most, now_ms)


def _give_way(at: Deployment, pool: RentedPool, waiting: float, most: int, now_ms: int) -> None:
    """The slowest first, `most` of them. `waiting`: jobs for each node."""
    found: list[tuple[float, Row, str]] = []
    leases = [lease for lease in at.store.load("live_leases") if lease["rented"] and lease["pool"] == pool.limits.name]
    for (workload, gpu), group in by_workload(pacing(leases)).items():
        outlook = _outlook(at, pool.limits.name, known_paces(at, workload, gpu, group))
        for lease in group:
            ahead = lease["steps"] - lease["step"] + waiting * lease["steps"]
            because = worth_replacing(lease["seconds_per_step"], outlook, ahead, at.policy)
            if because and at.store.load("moves", job=lease["job"])[0]["moves"] < at.policy.moves_max:
                found.append((lease["seconds_per_step"], lease, because))
    for _, lease, because in sorted(found, key=lambda one: (-one[0], one[1]["attempt"]))[:most]:
        why = sentence("outpaced", because)
        drain = guard("set_node_state", id=lease["node"], before=lease["node_state"], state="draining", because=why)
        if ask_to_stop(at, lease, because, now_ms, drain, kind="outpaced"):
            log.info("node %s drains: %s", lease["node"], why)


def turned_away(at: Deployment, node: Node, job: str, now_ms: int) -> str | None:
    """Why a machine that comes again, and is known to be slow at such jobs, is given back before it has work; or None."""
    if not at.policy.seek_faster or not node.rented:
        return None
    known = at.store.load("pace_at_job", job=job, gpu=node.gpu, machine=node.machine)
    if not known:
        return None
    mine, steps, workload = (known[0][name] for name in ("seconds_per_step", "steps", "workload"))
    came = at.store.load("nodes_of_machine_since", machine=node.machine, since=now_ms - HOUR_MS)[0]["nodes"]
    if came > at.policy.moves_max:
        return None  # there seems to be no other
    outlook = _outlook(at, node.pool, known_paces(at, workload, node.gpu, []))
    here = at.store.load("nodes_working", pool=node.pool)[0]["nodes"]
    because = worth_replacing(mine, outlook, steps * (1 + _waiting(at, here)), at.policy)
    if because is None:
        return None
    why = sentence("outpaced", because)
    drained = at.store.apply(guard("set_node_state", id=node.id, before=node.state, state="draining", because=why))
    return why if drained else None


def _outlook(at: Deployment, pool: str, paces: dict[str, float]) -> Outlook:
    here = {row["machine"] for row in at.store.load("machines_working", pool=pool)}
    tried = at.store.load("machines_tried", pool=pool, last=TRIED_LAST)[0]
    return Outlook(
        seen=tuple(paces.values()),
        returned=tuple(pace for machine, pace in paces.items() if machine not in here),
        new_share=tried["new"] / tried["nodes"] if tried["nodes"] else 1.0,
    )


def _waiting(at: Deployment, nodes: int) -> float:
    """Jobs that wait, for each node."""
    return at.store.load("queue_length", limit=WAITING_MAX)[0]["jobs"] / max(1, nodes)
