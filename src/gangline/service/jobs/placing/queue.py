"""Answer who waits, in the order in which nodes would take the jobs, why, and what would help.

The work is bounded, however many jobs wait: statements count them, and jobs that ask the same are explained once.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.core.job import HELD
from gangline.core.jobs.claim import ClaimCandidate, by_fair_share
from gangline.core.jobs.lists.ids import as_list
from gangline.core.jobs.queue.helps import HeldBy, turn_of, what_releases, what_would_help
from gangline.core.jobs.queue.views import QueuedJob, QueueGroup, QueueView
from gangline.core.jobs.supply import Supply, needs_of
from gangline.core.jobs.why import NodesHere, fit_key, fit_of, nodes_here, why_queued
from gangline.core.money.budget import Purse
from gangline.ports.store import Row
from gangline.service.content.imports import why_waiting
from gangline.service.deployment import Deployment
from gangline.service.fleet.supply import load_supply
from gangline.service.jobs.claim import as_candidate
from gangline.service.jobs.lists.summaries import why_held
from gangline.service.money.bill import as_purse
from gangline.service.nodes_here import load_nodes_here

GROUPS_MAX = 100
"""The most groups of one answer."""


def queue_view(deployment: Deployment, project: str | None, now_ms: int, *, limit: int, after: int = 0) -> QueueView:
    """Return the waiting jobs of a project (None: of all) in groups, and a page of at most `limit` of them, after `after` others."""
    counts = deployment.store.load("queue_counts")
    visible = [row for row in counts if project in (None, row["id"])]
    jobs = sum(row["again"] + row["fresh"] + row["unready"] for row in visible)
    groups = deployment.store.load("queue_groups", project=project or "", now=now_ms, limit=GROUPS_MAX)
    page = list(_page(deployment, _parts(deployment, counts, project, now_ms), limit, after))
    purses = {row["id"]: as_purse(row) for row in counts}
    explained = _Explained.load(deployment, purses, groups, [row for row, _ in page], now_ms)
    following = after + len(page)
    return QueueView(
        jobs=jobs,
        without_place=sum(row["unready"] for row in visible),
        groups=tuple(explained.group(row) for row in groups),
        ungrouped=max(0, jobs - sum(row["jobs"] for row in groups)),
        page=tuple(explained.job(row, place) for row, place in page),
        next=following if page and following < jobs else None,
    )


def place_of(deployment: Deployment, job: Row, now_ms: int) -> int | None:
    """Return the place of a job in the queue of all projects, given its row; None if it waits for no node yet, or does not wait."""
    if job["state"] != "queued" or job["fetching"] or job["kind"] == "sample":
        return None
    before = deployment.store.load("jobs_ahead", job=job["id"])[0]["jobs"]
    statement = "queue_again" if job["fencing"] else "queue_fresh"
    parts = _parts(deployment, deployment.store.load("queue_counts"), job["project"], now_ms)
    ahead = next((part.ahead for part in parts if part.statement == statement), None)
    return None if ahead is None else ahead + before + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Jobs that stand together in the queue, in the order of a statement. `ahead` are the jobs before them; None: they have no places."""

    statement: str
    project: str
    jobs: int
    ahead: int | None


def _parts(deployment: Deployment, counts: Sequence[Row], project: str | None, now_ms: int) -> Iterator[_Part]:
    """Yield the parts of the queue that are shown, in its order: that of `gangline.service.jobs.claim`."""
    visible = [row for row in counts if project in (None, row["id"])]
    of = project or ""
    yield _Part(statement="queue_again", project=of, jobs=sum(row["again"] for row in visible), ahead=0)
    ahead, fresh = sum(row["again"] for row in counts), {row["id"]: row["fresh"] for row in counts}
    for purse in by_fair_share([as_purse(row) for row in counts if row["fresh"]], now_ms, deployment.policy):
        if project in (None, purse.project):
            yield _Part(statement="queue_fresh", project=purse.project, jobs=fresh[purse.project], ahead=ahead)
        ahead += fresh[purse.project]
    yield _Part(statement="queue_unready", project=of, jobs=sum(row["unready"] for row in visible), ahead=None)


def _page(deployment: Deployment, parts: Iterator[_Part], limit: int, after: int) -> Iterator[tuple[Row, int | None]]:
    """Yield the jobs of a page with their places. Only those parts are read that it has jobs of."""
    for part in parts:
        if limit > 0 and after < part.jobs:
            wanted = {"limit": min(limit, part.jobs - after), "passed": after}
            rows = _jobs_of(deployment, part, wanted)
            for number, row in enumerate(rows, after + 1):
                again = part.statement == "queue_again"  # its jobs stand among those of other projects
                yield row, row["place"] if again else None if part.ahead is None else part.ahead + number
            limit -= len(rows)
        after = max(0, after - part.jobs)


def _jobs_of(deployment: Deployment, part: _Part, wanted: dict[str, int]) -> list[Row]:
    match part.statement:
        case "queue_again":
            return deployment.store.load("queue_again", project=part.project, **wanted)
        case "queue_fresh":
            return deployment.store.load("queue_fresh", project=part.project, **wanted)
        case _:
            return deployment.store.load("queue_unready", project=part.project, **wanted)


Reason = tuple[str, tuple[str, ...]]
"""Why a job waits, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """What is known once for all jobs of an answer. Jobs of equal needs share a reason."""

    deployment: Deployment
    now_ms: int
    purses: Mapping[str, Purse]
    here: NodesHere
    supply: Supply
    banned: Mapping[str, frozenset[str]]
    imports: Mapping[str, Row]
    experiments: Mapping[str, Row]
    known: dict[Hashable, Reason] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        deployment: Deployment,
        purses: Mapping[str, Purse],
        groups: Sequence[Row],
        page: Sequence[Row],
        now_ms: int,
    ) -> "_Explained":
        nodes, rows = load_nodes_here(deployment), [*groups, *page]
        banned: dict[str, set[str]] = defaultdict(set)
        for row in _of_jobs(deployment, "bans_of_jobs", [row for row in rows if row["fencing"]]):
            banned[row["job"]].add(row["machine"])
        fetching = [row for row in page if row["fetching"] not in (0, HELD)]  # a group has no progress of its own
        held = [row for row in rows if row["fetching"] == HELD]
        return cls(
            deployment=deployment,
            now_ms=now_ms,
            purses=purses,
            here=nodes_here(nodes, now_ms),
            supply=load_supply(deployment, nodes),
            banned={job: frozenset(machines) for job, machines in banned.items()},
            imports={row["job"]: row for row in _of_jobs(deployment, "imports_of_jobs", fetching)},
            experiments={row["job"]: row for row in _of_jobs(deployment, "experiments_of_jobs", held)},
        )

    def job(self, row: Row, place: int | None) -> QueuedJob:
        because, helps = self._reason(row)
        known = {name: row[name] for name in ("name", "project", "kind", "priority", "queued_ms")}
        return QueuedJob(
            place=place, job=row["id"], **known, waited_s=self._waited_s(row), because=because, helps=helps
        )

    def group(self, row: Row) -> QueueGroup:
        because, helps = self._reason(row)
        return QueueGroup(
            job=row["id"],
            **{name: row[name] for name in ("project", "kind", "jobs", "queued_ms")},
            needs=needs_of(as_candidate(row)),
            interrupted=row["fencing"] > 0,
            waited_s=self._waited_s(row),
            because=because,
            helps=helps,
        )

    def _waited_s(self, row: Row) -> float:
        return max(0, self.now_ms - row["queued_ms"]) / 1000

    def _reason(self, row: Row) -> Reason:
        if row["fetching"] == HELD:
            return _why_unreleased(self.experiments.get(row["id"]))
        if row["fetching"]:
            return why_waiting(self.imports.get(row["id"]), self.now_ms), ()
        job = as_candidate(row)
        if job.ready_ms > self.now_ms:
            return f"waits {(job.ready_ms - self.now_ms) / 1000:.0f} s before its next try", ()
        banned = self.banned.get(job.id, frozenset())
        key = fit_key(job, banned, self.now_ms)
        if key not in self.known:
            self.known[key] = self._explain(job, banned)
        return self.known[key]

    def _explain(self, job: ClaimCandidate, banned: frozenset[str]) -> Reason:
        purse, policy = self.purses[job.project], self.deployment.policy
        fit = fit_of(job, purse, self.here, banned, self.now_ms)
        why = why_queued(job, turn_of(fit), purse, fit, self.supply, self.now_ms, policy)
        return why, what_would_help(job, purse, fit, self.supply, policy)


def _why_unreleased(experiment: Row | None) -> Reason:
    if experiment is None:
        return "waits for its experiment", ()
    held = HeldBy(experiment=experiment["id"], at_once=experiment["at_once"], budget=experiment["budget"])
    return why_held(experiment), what_releases(held)


def _of_jobs(deployment: Deployment, statement: str, rows: Sequence[Row]) -> list[Row]:
    """Load what a statement says of these jobs."""
    ids = list(dict.fromkeys(row["id"] for row in rows))
    return deployment.store.load(statement, **as_list(ids)) if ids else []
