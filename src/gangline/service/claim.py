"""Claim: a node asks for work, and gets one job that nobody else gets."""

import json
from dataclasses import fields

from gangline.core.budget import reservation
from gangline.core.claim import NOTHING, Candidate, Choice, Nothing, by_fair_share, choose, refusal
from gangline.core.contract import parse_manifest
from gangline.core.files import File
from gangline.core.job import Node
from gangline.core.keys import blob_key
from gangline.core.spec import parse_spec
from gangline.ports.server import Assignment, Hold, NoWork, Resumable, Stored
from gangline.ports.store import Row, guard, write
from gangline.service import bill
from gangline.service.attempts import TRIES_MAX, end_overdue, event, load_node
from gangline.service.deployment import Deployment
from gangline.service.fleet import give_back
from gangline.service.speed import turned_away

CANDIDATES_MAX = 16
CANDIDATE_COLUMNS = tuple(field.name for field in fields(Candidate) if field.name != "banned")


def claim(at: Deployment, node_id: str, now_ms: int) -> Assignment | NoWork:
    end_overdue(at, now_ms)
    for _ in range(TRIES_MAX):
        node = load_node(at, node_id)
        choice = refusal(node, now_ms) or _choose(at, node, now_ms)
        if isinstance(choice, Choice) and (why := turned_away(at, node, choice.job.id, now_ms)):
            choice = Nothing(why)
        if isinstance(choice, Nothing):
            at.store.apply(write("node_seen", id=node_id, now=now_ms))
            give_back(at, node_id)
            return NoWork(because=choice.because)
        assignment = _take(at, node, choice, now_ms)
        if assignment:
            return assignment
    return NoWork(because="other nodes were faster each time; ask again")


def _choose(at: Deployment, node: Node, now_ms: int) -> Choice | Nothing:
    """What was interrupted first, whoever owns it; then project by project, who used least of its share first."""
    held = frozenset(row["base"] for row in at.store.load("bases", node=node.id))
    said = NOTHING
    reserve = {"reserve": reservation(node.price_of(1), 0, at.policy), "egress": at.policy.egress_micro_usd_per_byte}
    more = {"machine": node.machine, "numerics": node.numerics, "now": now_ms}
    again = _candidates(at, "interrupted_candidates", node, **more, **reserve)
    for project in dict.fromkeys(job.project for job in again):
        theirs = [job for job in again if job.project == project]
        choice = choose(theirs, node, bill.load_purse(at, project), held, now_ms, at.policy)
        if isinstance(choice, Choice):
            return choice
        said = choice
    purses = [bill.as_purse(row) for row in at.store.load("waiting_projects")]
    for purse in by_fair_share(purses, now_ms, at.policy):
        fresh = _candidates(at, "fresh_candidates", node, project=purse.project, **reserve)
        choice = choose(fresh, node, purse, held, now_ms, at.policy)
        if isinstance(choice, Choice):
            return choice
        said = choice
    return said


def _candidates(at: Deployment, query: str, node: Node, **values: object) -> list[Candidate]:
    """The first jobs that fit, left out early what the decision would refuse for this node anyhow."""
    fit = {name: getattr(node, name) for name in ("gpu", "gpu_memory_gb", "pool", "trust", "slots_free")}
    rows = at.store.load(query, limit=CANDIDATES_MAX, **fit, **values)
    return [as_candidate(row) for row in rows]


def as_candidate(row: Row) -> Candidate:
    """One that is banned is no candidate."""
    return Candidate(**{name: row[name] for name in CANDIDATE_COLUMNS}, banned=False)


def _take(at: Deployment, node: Node, choice: Choice, now_ms: int) -> Assignment | None:
    """None where the job is no longer as it was seen, the node's slot is gone, or the budget."""
    job = choice.job
    now_ms = max(now_ms, node.meter_ms)  # another request may have come and gone while this one was under way
    checkpoints = at.store.load("checkpoints", job=job.id)[: at.policy.checkpoints_kept]
    from_step = checkpoints[0]["step"] if checkpoints else 0
    hold = Hold(attempt=at.new_id("attempt"), fencing=job.fencing + 1)
    lease = {
        "attempt": hold.attempt,
        "rank": hold.rank,
        "node": node.id,
        "fencing": hold.fencing,
        "slots": job.slots,
        "price_micro_usd_per_hour": node.price_of(job.slots),
        "expires_ms": now_ms + at.policy.lease_ms,
        "from_step": from_step,
        "reserved": choice.reserve,
        "now": now_ms,
    }
    attempt = {
        "id": hold.attempt,
        "job": job.id,
        "node": node.id,
        "machine": node.machine,
        "pool": node.pool,
        "gpu": node.gpu,
        "gpu_memory_gb": node.gpu_memory_gb,
        "fencing": hold.fencing,
        "because": choice.because,
        "slots": job.slots,
        "price_micro_usd_per_hour": node.price_of(job.slots),
        "from_step": from_step,
        "now": now_ms,
    }
    entry = bill.usage_with(bill.load_purse(at, job.project), at.policy.entry_charge_usd * 1e6, now_ms, at.policy)
    taken = at.store.apply(
        guard("take_job", id=job.id, version=job.version, because=choice.because),
        guard("reserve", id=job.project, micro_usd=choice.reserve),
        write("use", id=job.project, usage=entry, now=now_ms),
        *bill.meter(node, now_ms),
        write("add_attempt", **attempt),
        guard("add_lease", **lease),
        event(job.id, "claimed", choice.because, now_ms, attempt=hold.attempt, node=node.id),
        write("node_seen", id=node.id, now=now_ms),
    )
    if not taken:
        return None
    return _assignment(at.store.load("job", id=job.id)[0], hold, checkpoints)


def _assignment(job: Row, hold: Hold, checkpoints: list[Row]) -> Assignment:
    value = json.loads(job["spec"])
    inputs = parse_spec(value).input_files()
    return Assignment(
        job=job["id"],
        name=job["name"],
        hold=hold,
        kind=job["kind"],
        spec=value,
        inputs=tuple(
            _stored(file, path, blob_key(job["project"], file.sha256)) for path, file in sorted(inputs.items())
        ),
        resume=tuple(_resumable(row) for row in checkpoints),
    )


def _resumable(row: Row) -> Resumable:
    manifest = json.loads(row["manifest"])
    files = parse_manifest(manifest).files
    return Resumable(
        id=row["id"],
        step=row["step"],
        manifest=manifest,
        files=tuple(_stored(file, file.path, f"{row['prefix']}/{file.path}") for file in files),
    )


def _stored(file: File, path: str, key: str) -> Stored:
    return Stored(path=path, bytes=file.bytes, sha256=file.sha256, key=key)
