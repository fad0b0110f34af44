"""What an operator does with nodes: list them, look at one, drain it, quarantine its machine, and release it."""

import json
from collections.abc import Callable

from gangline.core.errors import BadInput, NotFound
from gangline.core.fleet.nodes import BilledTime, MachineView, NodeBill, NodeDetail, NodeJob, NodeTime, NodeView
from gangline.core.fleet.trust import quarantines_that_count
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import TRIES_MAX, ask_to_stop
from gangline.service.deployment import Deployment
from gangline.service.fleet.health import judged_ms
from gangline.service.fleet.measured.gauges import gauges_of, newest_gauges
from gangline.service.fleet.measured.reputation import load_record
from gangline.service.fleet.measured.slowness import cards_state
from gangline.service.fleet.nodes import gone, saying
from gangline.service.fleet.scaling import give_back
from gangline.service.outage import silences

DRAINED = "drained by an operator"
QUARANTINED = "quarantined by an operator"
RELEASED = "released by an operator"


def nodes(deployment: Deployment, project: str | None, now_ms: int) -> list[NodeView]:
    """List all nodes. A node's jobs are shown to their own project, and to the operator (`project` is None)."""
    jobs: dict[str, list[NodeJob]] = {}
    silence_ms = silences(deployment, now_ms)
    for lease in deployment.store.load("jobs_of_nodes"):
        if project in (None, lease["project"]):
            jobs.setdefault(lease["node"], []).append(_node_job(lease, silence_ms))
    return [_node_view(row, tuple(jobs.get(row["id"], ()))) for row in deployment.store.load("nodes")]


def _node_view(row: Row, jobs: tuple[NodeJob, ...]) -> NodeView:
    return NodeView(
        id=row["id"],
        name=row["name"],
        machine=row["machine"],
        pool=row["pool"],
        state=row["state"],
        because=_why_so(row),
        gpu=row["gpu"],
        slots=row["slots"],
        price_usd_per_hour=row["price_micro_usd_per_hour"] / 1e6,
        price_known=row["price_known"] == 1,
        trust=row["trust"],
        job=jobs[0].job if jobs else None,
        phase=jobs[0].phase if jobs else None,
        jobs=jobs,
        seen_ms=row["seen_ms"],
        gauges=newest_gauges(row),
    )


def _why_so(row: Row) -> str:
    """Return why a node is in its state; of one that starts also how far its provider says that it is."""
    return f"{row['because']}; {row['progress']}" if row["state"] == "starting" and row["progress"] else row["because"]


def node_detail(deployment: Deployment, node: str, project: str | None, now_ms: int) -> NodeDetail:
    """Return all that is known of a node. Its jobs are shown to their own project, and to the operator (`project` is None)."""
    row = _node(deployment, node)
    known = deployment.store.load("machine", id=row["machine"])
    since_ms = now_ms - round(deployment.policy.strike_window_s * 1000)
    gauges, history = (None, ()) if row["state"] == "gone" else gauges_of(deployment, row["id"], now_ms)
    silence_ms = silences(deployment, now_ms)
    leases = deployment.store.load("jobs_of_node", node=node)
    jobs = [_node_job(lease, silence_ms) for lease in leases if project in (None, lease["project"])]
    return NodeDetail(
        id=row["id"],
        name=row["name"],
        pool=row["pool"],
        state=row["state"],
        because=_why_so(row),
        gpu=row["gpu"],
        gpu_memory_gb=row["gpu_memory_gb"],
        slots=row["slots"],
        slots_taken=row["slots_taken"],
        trust=row["trust"],
        price_usd_per_hour=row["price_micro_usd_per_hour"] / 1e6,
        price_known=row["price_known"] == 1,
        rental=row["rental"],
        offer=row["offer"],
        instance=row["instance"],
        place=row["place"],
        since_ms=row["since_ms"],
        joined_ms=row["joined_ms"],
        seen_ms=row["seen_ms"],
        problems=json.loads(row["problems"]),
        capabilities=json.loads(row["capabilities"]),
        jobs=tuple(jobs),
        machine=_machine_view(deployment, known[0], project, since_ms, now_ms) if known else None,
        refused=row["refused"] == 1,
        gauges=gauges,
        gauges_history=history,
        slowed=cards_state(gauges, history, now_ms).says(leases),
    )


def node_bill(deployment: Deployment, node: str) -> NodeBill:
    """Return what a node and the others of its rental have cost so far. Raise `BadInput` if it was not rented."""
    row = _node(deployment, node)
    rental = row["rental"]
    if rental is None:
        raise BadInput(
            f"{row['name']} was not rented", hint="`gangline docs money` says what a node costs that joins by hand"
        )
    times = deployment.store.load("time_of_rental", rental=rental)
    instances = deployment.store.load("instances_of_rental", rental=rental)
    here = deployment.store.load("nodes_of_rental_here", rental=rental)
    return NodeBill(
        rental=rental,
        price_usd_per_hour=row["price_micro_usd_per_hour"] / 1e6,
        price_known=row["price_known"] == 1,
        cost_usd=sum(time["micro_usd"] for time in times) / 1e6,
        times=tuple(
            NodeTime(cause=time["cause"], seconds=time["ms"] / 1000, cost_usd=time["micro_usd"] / 1e6) for time in times
        ),
        billed=tuple(
            BilledTime(
                instance=each["id"].removeprefix(f"{rental}/"),
                from_ms=each["billed_from_ms"],
                to_ms=each["billed_to_ms"],
            )
            for each in instances
        ),
        settled=not here and all(each["settled"] for each in instances),
    )


def _node_job(lease: Row, silence_ms: Callable[[int], int]) -> NodeJob:
    phase = "silent" if silence_ms(lease["beat_ms"]) else lease["phase"]
    return NodeJob(job=lease["job"], phase=phase, step=lease["step"], slots=lease["slots"])


def _machine_view(deployment: Deployment, row: Row, project: str | None, since_ms: int, now_ms: int) -> MachineView:
    strikes = deployment.store.load("strikes", machine=row["id"], since=since_ms)
    quarantined = row["quarantined_until_ms"] > now_ms
    return MachineView(
        id=row["id"],
        strikes=sum(strike["quarters"] for strike in strikes) / 4,
        quarantines=quarantines_that_count(row["quarantines"], row["quarantined_ms"], now_ms, deployment.policy),
        quarantined_until_ms=row["quarantined_until_ms"] if quarantined else None,
        rests_until_ms=row["rest_until_ms"] if row["rest_until_ms"] > now_ms else None,
        on_trial=bool(row["on_trial"]),
        because=row["because"],
        record=load_record(deployment, row, project, now_ms),
    )


def drain(deployment: Deployment, node: str, now_ms: int, *, stop: bool) -> None:
    """Give a node no more work. Its jobs run to their end, or are saved and handed back if `stop` is true; a rented node without a job is
    given back at once, and so is one that has not joined. Repeating this changes nothing. Raise `BadInput` if the node is gone.
    """
    row = _node(deployment, node)
    if row["state"] == "gone":
        raise BadInput(f"{row['name']} is gone", hint="to rent no more, pause its pool: `gangline pools pause`")
    if row["state"] == "starting":
        # The next look at the provider stops its instance, also one that appears only then: it belongs to no node any more.
        gone(deployment, node, DRAINED, now_ms, then=[write("look_at_pool", name=row["pool"], now=now_ms)])
        return
    # One that goes at this moment needs no draining.
    deployment.store.apply(write("drain_node", id=node, because=DRAINED))
    if stop:
        _stop_jobs(deployment, node, DRAINED, now_ms)
    give_back(deployment, node)


def quarantine(deployment: Deployment, node: str, now_ms: int, *, lasts_s: float, stop: bool, reason: str = "") -> None:
    """Give the node's machine no work for `lasts_s` seconds, also when it joins as another node. Then it is on trial. The `reason` is shown
    with the node, its machine and the jobs that it hands back. Raise `BadInput` if the node has no machine yet.
    """
    row, because = _node(deployment, node), f"{QUARANTINED}: {reason}" if reason else QUARANTINED
    for _ in range(TRIES_MAX):
        machine = _machine(deployment, row)
        facts = {"until_ms": now_ms + round(lasts_s * 1000), "because": because, "now": now_ms}
        before = quarantines_that_count(machine["quarantines"], machine["quarantined_ms"], now_ms, deployment.policy)
        once = guard(
            "quarantine_machine", id=machine["id"], quarantines=before + 1, judged_ms=judged_ms(machine), **facts
        )
        states = saying(deployment, machine["id"], because, "quarantined")
        if deployment.store.apply(once, *states):
            break
    if stop:
        _stop_jobs(deployment, node, because, now_ms)
    give_back(deployment, node)


def release(deployment: Deployment, node: str, now_ms: int) -> None:
    """Let a node that drains, is in quarantine or on trial work again, and forget its machine's strikes so far. Raise `BadInput` if it is
    gone, or failed its probe.
    """
    row = _node(deployment, node)
    machine = _machine(deployment, row)
    if row["state"] == "gone" or row["proof_failed"]:
        why = "is gone" if row["state"] == "gone" else "failed its probe"
        raise BadInput(f"{row['name']} {why}", hint="start its worker again: it then joins as a new node")
    states = saying(deployment, machine["id"], RELEASED, "ready", among=("quarantined", "on_trial", "draining"))
    deployment.store.apply(write("release_machine", id=machine["id"], now=now_ms), *states)


def _stop_jobs(deployment: Deployment, node: str, because: str, now_ms: int) -> None:
    for lease in deployment.store.load("jobs_of_node", node=node):
        ask_to_stop(deployment, lease, because, now_ms)


def _node(deployment: Deployment, node: str) -> Row:
    rows = deployment.store.load("node", id=node)
    if not rows:
        raise NotFound(f"there is no node {node}", hint="`gangline nodes ls` lists them")
    return rows[0]


def _machine(deployment: Deployment, node: Row) -> Row:
    rows = deployment.store.load("machine", id=node["machine"]) if node["machine"] else []
    if not rows:
        raise BadInput(f"{node['name']} has not joined yet", hint="it has no machine so far")
    return rows[0]
