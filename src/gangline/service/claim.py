"""Claim: a node asks for work, and gets one job that nobody else gets."""

import json

from gangline.core.claim import SLOTS_OF_A_JOB, Candidate, Choice, Nothing, choose
from gangline.core.contract import parse_manifest
from gangline.core.files import File
from gangline.core.job import Node
from gangline.core.keys import blob_key
from gangline.core.spec import parse_spec
from gangline.ports.server import Assignment, Hold, NoWork, Resumable, Stored
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import end_overdue, event
from gangline.service.deployment import Deployment

TRIES_MAX = 20
CANDIDATES_MAX = 64


def claim(at: Deployment, node_id: str, now_ms: int) -> Assignment | NoWork:
    end_overdue(at, now_ms)
    for _ in range(TRIES_MAX):
        node = _load_node(at, node_id)
        choice = choose(_load_candidates(at), node)
        if isinstance(choice, Nothing):
            at.store.apply(write("node_seen", id=node_id, now=now_ms))
            return NoWork(because=choice.because)
        assignment = _take(at, node, choice, now_ms)
        if assignment:
            return assignment
    return NoWork(because="other nodes were faster each time; ask again")


def _load_node(at: Deployment, node_id: str) -> Node:
    row = at.store.load("node", id=node_id)[0]
    taken = at.store.load("slots_taken", node=node_id)[0]["slots"]
    return Node(
        id=row["id"],
        machine=row["machine"],
        name=row["name"],
        slots=row["slots"],
        slots_free=row["slots"] - taken,
        price_micro_usd_per_hour=row["price_micro_usd_per_hour"],
    )


def _load_candidates(at: Deployment) -> list[Candidate]:
    rows = at.store.load("candidates", limit=CANDIDATES_MAX)
    return [
        Candidate(id=row["id"], project=row["project"], fencing=row["fencing"], version=row["version"]) for row in rows
    ]


def _take(at: Deployment, node: Node, choice: Choice, now_ms: int) -> Assignment | None:
    """None where the job is no longer as it was seen, or the node's slot is gone."""
    job = choice.job
    checkpoints = at.store.load("checkpoints", job=job.id)[: at.policy.checkpoints_kept]
    from_step = checkpoints[0]["step"] if checkpoints else 0
    hold = Hold(attempt=at.new_id("attempt"), fencing=job.fencing + 1)
    lease = {
        "attempt": hold.attempt,
        "rank": hold.rank,
        "node": node.id,
        "fencing": hold.fencing,
        "slots": SLOTS_OF_A_JOB,
        "expires_ms": now_ms + at.policy.lease_ms,
        "from_step": from_step,
        "now": now_ms,
    }
    attempt = {
        "id": hold.attempt,
        "job": job.id,
        "node": node.id,
        "machine": node.machine,
        "fencing": hold.fencing,
        "because": choice.because,
        "slots": SLOTS_OF_A_JOB,
        "price_micro_usd_per_hour": node.price_of(SLOTS_OF_A_JOB),
        "from_step": from_step,
        "now": now_ms,
    }
    taken = at.store.apply(
        guard("take_job", id=job.id, version=job.version, because=choice.because),
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
