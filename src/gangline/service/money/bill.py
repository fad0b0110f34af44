"""Write the ledger: each part of a node's time exactly once, the spending of attempts, storage and downloads."""

from collections import defaultdict
from collections.abc import Mapping

from gangline.core.job import Attempt, AttemptState, Job, Node
from gangline.core.jobs.claim import decayed
from gangline.core.money.budget import Purse
from gangline.core.money.cost import (
    LedgerLine,
    billed_micro_usd,
    egress_micro_usd,
    lines_of_attempt,
    storage_micro_usd,
    time_cost_micro_usd,
    time_line,
)
from gangline.core.policy import Policy
from gangline.core.specs.kinds import KINDS
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment


def meter(node: Node, now_ms: int, *, heard_ms: int) -> list[Write]:
    """Return the writes that bill the node's free slots up to now. `heard_ms` is when the node was last heard from.

    Every transaction that changes what a node's slots are used for must contain them.
    """
    writes = [guard("meter_node", id=node.id, seen=node.meter_ms, now=now_ms, heard=heard_ms)]
    if node.slots_free and now_ms > node.meter_ms:
        line = time_line("idle", node.price_of(node.slots_free), node.meter_ms, now_ms)
        writes.append(_add(line, node=node.id))
    return writes


def spend(
    deployment: Deployment, job: Job, attempt: Attempt, state: AttemptState, ending: Row, now_ms: int
) -> tuple[Write, list[Write]]:
    """Bill an attempt that ends now.

    Return the write that replaces the project's reservation by the real cost, and the lines of the ledger.
    """
    renders = KINDS[ending["job_kind"]].renders
    price = attempt.price_micro_usd_per_hour
    lines = [time_line("samples", price, attempt.started_ms, now_ms)] if renders else []
    lines = lines or lines_of_attempt(attempt, state, now_ms)
    sent = egress_micro_usd(ending["downloaded_bytes"], deployment.policy.egress_usd_per_gb)
    if sent:
        lines.append(LedgerLine(cause="egress", from_ms=attempt.started_ms, to_ms=now_ms, micro_usd=sent))
    total = sum(line.micro_usd for line in lines)
    usage = usage_with(as_purse(ending, "purse_"), total, now_ms, deployment.policy)
    spent = write("spend", id=job.project, reserved=ending["reserved"], micro_usd=total, usage=usage, now=now_ms)
    of = {"node": attempt.node, "attempt": attempt.id, "job": job.id, "project": job.project}
    return spent, [_add(line, **of) for line in lines]


def bill_storage(deployment: Deployment, checkpoint: Row, now_ms: int) -> list[Write]:
    """Return the writes that bill a checkpoint, which is deleted now, from its commit on."""
    return storage_since(deployment, checkpoint, checkpoint["committed_ms"], now_ms)


def storage_since(deployment: Deployment, kept: Row, from_ms: int, now_ms: int) -> list[Write]:
    """Return the writes that bill the storage of a checkpoint or an artifact.

    `kept` has its `bytes` and its node, attempt, job and project.
    """
    cost = storage_micro_usd(kept["bytes"], from_ms, now_ms, deployment.policy.storage_usd_per_gb_month)
    if not cost:
        return []
    of = {name: kept[name] for name in ("node", "attempt", "job", "project")}
    line = {"cause": "storage", "from_ms": from_ms, "to_ms": now_ms, "micro_usd": cost}
    return [write("add_storage_cost", **of, **line)]


def stored_micro_usd(deployment: Deployment, listed: Mapping[str, object], now_ms: int) -> dict[str, int]:
    """Return what each job's current checkpoints and results have cost so far, in micro-dollars. Those that were deleted are in the ledger.

    `listed` has the jobs as statements take them (`gangline.core.jobs.lists.ids.as_list`).
    """
    rate = deployment.policy.storage_usd_per_gb_month
    kept = deployment.store.load("stored_of_jobs", **listed) if rate else []
    costs: dict[str, int] = defaultdict(int)
    for row in kept:
        costs[row["job"]] += storage_micro_usd(row["bytes"], row["since_ms"], now_ms, rate)
    return costs


def spent_so_far(row: Row, now_ms: int) -> int:
    """Return what a job has in the ledger; while an attempt is live, plus what its time would cost if it ended now."""
    known = row["micro_usd"] or 0
    if row["last_state"] != "live":
        return known
    price = row["price_micro_usd_per_hour"]
    return known + time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=row["started_ms"], to_ms=now_ms)


def bill_id(rental: str, instance: str) -> str:
    """Return the id of an instance's bill. The provider's id alone is no key: another cluster counts its jobs from 1, too."""
    return f"{rental}/{instance}"


def bill_of(deployment: Deployment, price_micro_usd_per_hour: int, instance: Row) -> int:
    """Return what the provider bills for an instance that has ended, in micro-dollars."""
    from_ms, to_ms = instance["billed_from_ms"], instance["billed_to_ms"]
    unbilled = [(row["from_ms"], row["to_ms"]) for row in deployment.store.load("unbilled", instance=instance["id"])]
    return billed_micro_usd(price_micro_usd_per_hour, from_ms, to_ms, unbilled)


def settlement(instance: Row, known_micro_usd: int, due_micro_usd: int, node: str) -> list[Write]:
    """Return the lines that make the ledger's total for a node, known so far, equal to what is due to the provider for its instances.

    One that is settled a second time has its start-up in the ledger.
    """
    from_ms, to_ms = instance["billed_from_ms"], instance["billed_to_ms"]
    price, joined_ms = instance["price_micro_usd_per_hour"], to_ms
    own = (instance["instance"], bill_id(instance["node"], instance["instance"] or ""))
    if instance["joined_ms"] is not None and instance["id"] in own:
        joined_ms = min(max(instance["joined_ms"], from_ms), to_ms)
    start_up = time_line("start-up", price, from_ms, joined_ms)
    new = [] if instance["has_start_up"] else [start_up]
    rest = due_micro_usd - known_micro_usd - sum(line.micro_usd for line in new)
    correction = LedgerLine(cause="correction", from_ms=to_ms, to_ms=to_ms, micro_usd=rest)
    return [_add(line, node=node, attempt=instance["id"]) for line in (*new, correction) if line.micro_usd]


def load_purse(deployment: Deployment, project: str) -> Purse:
    return as_purse(deployment.store.load("project", id=project)[0])


def as_purse(row: Row, prefix: str = "") -> Purse:
    known = {name: row[prefix + name] for name in ("usage", "usage_ms", "share", "budget", "spent", "reserved")}
    return Purse(project=row[prefix + "id"], **known)


def usage_with(purse: Purse, micro_usd: float, now_ms: int, policy: Policy) -> float:
    return decayed(purse, now_ms, policy) + micro_usd


def _add(line: LedgerLine, *, node: str, attempt: str = "", job: str = "", project: str = "") -> Write:
    return write(
        "add_cost",
        node=node,
        attempt=attempt,
        cause=line.cause,
        from_ms=line.from_ms,
        to_ms=line.to_ms,
        job=job,
        project=project,
        micro_usd=line.micro_usd,
    )
