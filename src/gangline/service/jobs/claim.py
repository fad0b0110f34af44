"""Claim: a node asks for work and gets one job, which no other node gets."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields, replace
from typing import Any
from zlib import crc32

from gangline.core.errors import BadInput
from gangline.core.fleet.gauges import Gauges
from gangline.core.job import Node
from gangline.core.jobs.claim import NOTHING, Choice, ClaimCandidate, Nothing, by_fair_share, choose, refusal
from gangline.core.money.budget import UNPRICED_MICRO_USD, Purse, reservation
from gangline.core.runs.saving import NEVER_S, SavingTerms, saving_terms
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import without_defaults
from gangline.ports.server import Assignment, Hold, NoWork
from gangline.ports.store import Row, guard, write
from gangline.service.access.secrets import open_secrets
from gangline.service.attempts import TRIES_MAX, end_overdue, event, load_node
from gangline.service.content.inputs import checkpoints_to_resume, inputs_of, prepared_for, resumable
from gangline.service.deployment import Deployment
from gangline.service.fleet.demand import expected_between_s
from gangline.service.fleet.measured.gauges import keep_gauges
from gangline.service.fleet.scaling import give_back
from gangline.service.fleet.speed import turned_away
from gangline.service.jobs.samples import may_render_steps
from gangline.service.jobs.steer import withhold
from gangline.service.money import bill

CANDIDATES_MAX = 16
"""The number of jobs that one query loads for a decision, however long the queue is."""
WITHHELD_MAX = 4
"""The number of jobs of a project that are paused in one claim, as they lack a secret, before it looks at the next project."""
CANDIDATE_COLUMNS = tuple(field.name for field in fields(ClaimCandidate) if field.name != "banned")


def claim(deployment: Deployment, node_id: str, now_ms: int, gauges: Gauges | None = None) -> Assignment | NoWork:
    """Give a node the job that comes first for it, or the reason why there is none. Keep the `gauges` that it sent with its request."""
    if gauges:
        keep_gauges(deployment, node_id, gauges, now_ms)
    if deployment.recent.is_time_to_reap(now_ms):
        end_overdue(deployment, now_ms)
    with deployment.recent.claiming():
        withheld = Counter[str]()
        for _ in range(TRIES_MAX):
            answer = _try(deployment, node_id, now_ms, withheld)
            if answer:
                return answer
    return NoWork(because="other nodes were faster each time; ask again")


def _try(deployment: Deployment, node_id: str, now_ms: int, withheld: Counter[str]) -> Assignment | NoWork | None:
    """Try to claim once. Return None if other nodes were faster."""
    node = load_node(deployment, node_id)
    passed = {project for project, times in withheld.items() if times >= WITHHELD_MAX}
    found = refusal(node, now_ms) or _choose(deployment, node, now_ms, passed)
    if found is None:
        return None
    if isinstance(found, Chosen) and (why := turned_away(deployment, node, found.job.id, now_ms)):
        deployment.recent.leave(found.job)
        found = Nothing(why)
    if isinstance(found, Nothing):
        deployment.store.apply(write("node_seen", id=node_id, now=now_ms))
        if passed and not found.locked_out:  # there may be more: this node is not given back
            return NoWork(because="waiting jobs that lack a secret were paused; ask again")
        give_back(deployment, node_id)
        return NoWork(because=found.because, locked_out=found.locked_out)
    try:
        secrets = _secrets_for(deployment, found.job)
    except BadInput as error:
        deployment.recent.leave(found.job)
        withheld[found.job.project] += 1
        withhold(deployment, found.job.id, f"{error.message}; resume the job once it is set", now_ms)
        return None
    assignment = _take(deployment, node, found, secrets, now_ms)
    if not assignment:
        deployment.recent.lose(found.job, now_ms)
    return assignment


@dataclass(frozen=True, slots=True)
class Chosen:
    choice: Choice
    purse: Purse

    @property
    def job(self) -> ClaimCandidate:
        return self.choice.job


def _choose(deployment: Deployment, node: Node, now_ms: int, passed: Set[str]) -> Chosen | Nothing | None:
    """Return the job to claim, or why there is none; None if other claims are taking all the jobs that would do."""
    said, busy = NOTHING, False
    for purse, rows in _offered(deployment, node, now_ms):
        if purse.project in passed:  # it may have any number of jobs that lack a secret
            continue
        jobs = [as_candidate(row) for row in rows]
        free = [job for job in jobs if not deployment.recent.is_taken(job, now_ms)]
        busy = busy or len(free) < len(jobs)
        held = frozenset(row["base"] for row in rows if row["held"])
        choice = choose(_spread(deployment, free, node, now_ms), node, purse, held, now_ms, deployment.policy)
        if isinstance(choice, Choice):
            return Chosen(choice, purse) if deployment.recent.take(choice.job, now_ms) else None
        said = choice
    return None if busy else said


def _offered(deployment: Deployment, node: Node, now_ms: int) -> Iterator[tuple[Purse, list[Row]]]:
    """Yield candidates in their order: interrupted jobs of any owner first; then new jobs, starting with the project that used least of its
    share; last, if there is nothing to train, jobs that render pictures.
    """
    again = _candidates(
        deployment, "interrupted_candidates", node, machine=node.machine, numerics=node.numerics, now=now_ms
    )
    yield from _by_project(deployment, again)
    purses = [bill.as_purse(row) for row in deployment.store.load("waiting_projects")]
    for purse in by_fair_share(purses, now_ms, deployment.policy):
        yield purse, _candidates(deployment, "fresh_candidates", node, project=purse.project)
    fit = {
        "steps": int(may_render_steps(deployment, node, now_ms)),
        "before": now_ms - round(deployment.policy.base_wait_s * 1000),
    }
    yield from _by_project(
        deployment, _candidates(deployment, "sample_candidates", node, machine=node.machine, now=now_ms, **fit)
    )


def _by_project(deployment: Deployment, rows: list[Row]) -> Iterator[tuple[Purse, list[Row]]]:
    for project in dict.fromkeys(row["project"] for row in rows):
        yield bill.load_purse(deployment, project), [row for row in rows if row["project"] == project]


def _candidates(deployment: Deployment, query: str, node: Node, **values: object) -> list[Row]:
    """Load the first jobs that fit this node, plus as many as concurrent claims may take.

    The query already leaves out what `choose` would refuse.
    """
    fit = {name: getattr(node, name) for name in ("gpu", "gpu_memory_gb", "pool", "trust", "slots_free", "kinds")}
    reserve = reservation(node.price_of(1), 0, deployment.policy) if node.price_known else UNPRICED_MICRO_USD
    costs = {"reserve": reserve, "egress": deployment.policy.egress_micro_usd_per_byte}
    return deployment.store.load(
        query, node=node.id, limit=CANDIDATES_MAX + deployment.recent.claims, **fit, **costs, **values
    )


def _spread(deployment: Deployment, jobs: list[ClaimCandidate], node: Node, now_ms: int) -> list[ClaimCandidate]:
    """Start each node at a different one of the jobs that rank equal to the first, while several servers assign the same jobs."""
    if not jobs or not deployment.recent.has_rivals(now_ms):
        return jobs
    first = jobs[0]
    equals = sum(job.priority == first.priority and bool(job.fencing) == bool(first.fencing) for job in jobs)
    return jobs[crc32(f"{node.id} {now_ms}".encode()) % equals :]


def as_candidate(row: Row) -> ClaimCandidate:
    """Return the row as a candidate. The queries leave out jobs that are banned from the node's machine, so it is never banned."""
    return ClaimCandidate(**{name: row[name] for name in CANDIDATE_COLUMNS}, banned=False)


def _secrets_for(deployment: Deployment, job: ClaimCandidate) -> dict[str, str]:
    """Return the values of a command's secrets. Raise `BadInput` if one is not there any more, or cannot be decrypted."""
    if KINDS[job.kind].ours:
        return {}
    spec = json.loads(deployment.store.load("job", id=job.id)[0]["spec"])
    return open_secrets(deployment, job.project, spec.get("secrets", ()))


def _take(
    deployment: Deployment, node: Node, chosen: Chosen, secrets: dict[str, str], now_ms: int
) -> Assignment | None:
    """Assign the job. Return None if the job changed since it was loaded, or the node's slot or the budget is gone."""
    job, because, reserve = chosen.job, chosen.choice.because, chosen.choice.reserve
    now_ms = max(now_ms, node.meter_ms)  # a concurrent request may have metered the node further
    before = job.fencing or job.begins_from
    checkpoints = (
        checkpoints_to_resume(deployment, job.id, job.begins_from)[: deployment.policy.checkpoints_kept]
        if before
        else []
    )
    hold = Hold(attempt=deployment.new_id("attempt"), fencing=job.fencing + 1)
    common = {
        "node": node.id,
        "fencing": hold.fencing,
        "slots": job.slots,
        "price_micro_usd_per_hour": node.price_of(job.slots),
        "from_step": checkpoints[0]["step"] if checkpoints else 0,
        "now": now_ms,
    }
    lease = {
        "attempt": hold.attempt,
        "rank": hold.rank,
        "expires_ms": now_ms + deployment.policy.lease_ms,
        "reserved": reserve,
    }
    place = {name: getattr(node, name) for name in ("machine", "pool", "gpu", "gpu_memory_gb")}
    priced = {"price_known": node.price_known}
    usage = bill.usage_with(chosen.purse, deployment.policy.entry_charge_usd * 1e6, now_ms, deployment.policy)
    taken = deployment.store.apply(
        guard("take_job", id=job.id, version=job.version, because=because),
        *bill.meter(node, now_ms, heard_ms=now_ms),
        write("add_attempt", id=hold.attempt, job=job.id, because=because, **place, **priced, **common),
        guard("add_lease", **lease, **common),
        event(job.id, "claimed", because, now_ms, attempt=hold.attempt, node=node.id),
        # The project comes last: all claims of a project update that row, and each holds it until its commit.
        guard("enter", id=job.project, micro_usd=reserve, usage=usage, **priced, now=now_ms),
    )
    if not taken:
        return None
    found = _assignment(deployment, deployment.store.load("job", id=job.id)[0], hold, checkpoints, node, now_ms)
    return replace(found, secrets=secrets)


def _assignment(
    deployment: Deployment, job: Row, hold: Hold, checkpoints: list[Row], node: Node, now_ms: int
) -> Assignment:
    spec = json.loads(job["spec"])
    return Assignment(
        job=job["id"],
        name=job["name"],
        hold=hold,
        kind=job["kind"],
        spec=without_defaults(spec),
        inputs=inputs_of(deployment, job),
        resume=tuple(resumable(row) for row in checkpoints),
        prepared=prepared_for(deployment, job, node, now_ms),
        saving=_saving(deployment, spec, node, now_ms) if KINDS[job["kind"]].ours else None,
    )


def _saving(deployment: Deployment, spec: Mapping[str, Any], node: Node, now_ms: int) -> SavingTerms:
    return saving_terms(
        deployment.policy,
        expected_between_s(deployment, node.id, now_ms),
        every_s=spec.get("checkpoint_every_s") or NEVER_S,
        every_steps=(spec.get("checkpoint_every_steps"), spec.get("sample_every_steps")),
    )
