"""Read what lists show of jobs: a few statements for a whole page, however many jobs it has."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from gangline.core.access import OwnerView
from gangline.core.job import HELD
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.lists.ids import as_list
from gangline.core.jobs.queue.helps import TURN, turn_of
from gangline.core.jobs.supply import Supply
from gangline.core.jobs.why import Fit, NodesHere, fit_key, fit_of, nodes_here, why_queued
from gangline.core.money.budget import Purse
from gangline.core.money.cost import unknown_parts
from gangline.core.specs.kinds import KINDS
from gangline.core.views import JobSummary
from gangline.ports.store import Row
from gangline.service.attempts import WAITS
from gangline.service.content.imports import why_waiting
from gangline.service.content.inputs import checkpoints_to_resume
from gangline.service.deployment import Deployment
from gangline.service.fleet.supply import load_supply
from gangline.service.jobs.claim import as_candidate
from gangline.service.money.bill import load_purse, spent_so_far, stored_micro_usd
from gangline.service.nodes_here import load_nodes_here
from gangline.service.outage import silences

SAVES_FIRST = "its node saves first"


def summaries(deployment: Deployment, project: str, ids: Sequence[str], now_ms: int) -> tuple[JobSummary, ...]:
    """Return the summaries of these jobs, in their order."""
    if not ids:
        return ()
    listed = as_list(ids)
    rows = deployment.store.load("job_summaries", **listed)
    page = _Page(
        deployment=deployment,
        now_ms=now_ms,
        here=_here(deployment, project, now_ms),
        labels=_labels(deployment.store.load("labels_of_jobs", **listed)),
        banned=_banned(deployment, rows),
        stored=stored_micro_usd(deployment, listed, now_ms),
        imports=_imports(deployment, rows),
        held=_held(deployment, rows),
        silence_ms=silences(deployment, now_ms),
    )
    return tuple(page.summary(row) for row in rows)


def _labels(rows: Iterable[Row]) -> Mapping[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        found[row["job"]][row["key"]] = row["value"]
    return found


def _banned(deployment: Deployment, rows: Sequence[Row]) -> Mapping[str, frozenset[str]]:
    """Return the machines that each job which waits again is banned from."""
    again = [row["id"] for row in rows if row["state"] == "queued" and row["fencing"]]
    found: dict[str, set[str]] = defaultdict(set)
    for row in deployment.store.load("bans_of_jobs", **as_list(again)) if again else []:
        found[row["job"]].add(row["machine"])
    return {job: frozenset(machines) for job, machines in found.items()}


def _imports(deployment: Deployment, rows: Sequence[Row]) -> Mapping[str, Row]:
    """Return how far the photos of each job are that waits for them."""
    waiting = [row["id"] for row in rows if row["state"] == "queued" and row["fetching"] not in (0, HELD)]
    found = deployment.store.load("imports_of_jobs", **as_list(waiting)) if waiting else []
    return {row["job"]: row for row in found}


def _held(deployment: Deployment, rows: Sequence[Row]) -> Mapping[str, Row]:
    """Return the experiment of each job that waits for it."""
    waiting = [row["id"] for row in rows if row["state"] == "queued" and row["fetching"] == HELD]
    found = deployment.store.load("experiments_of_jobs", **as_list(waiting)) if waiting else []
    return {row["job"]: row for row in found}


def why_held(experiment: Row) -> str:
    """Return why a job waits for its experiment, of which the name and the reason are given."""
    return f"waits for its experiment {experiment['name']}: {experiment['because']}"


def saved_step(row: Row) -> int:
    """Return the step of the newest checkpoint of a job; 0 if it has none.

    Checkpoints of a job that has ended may have expired, but the step was reached.
    """
    reached = (row["committed_step"] or 0) if row["ended_ms"] else 0
    return reached if row["kept_step"] is None else row["kept_step"]


@dataclass(frozen=True, slots=True)
class _Here:
    """The things that a project's queued jobs wait for: money, and nodes that are here or could be started."""

    purse: Purse
    nodes: NodesHere
    supply: Supply


def _here(deployment: Deployment, project: str, now_ms: int) -> Callable[[], _Here]:
    """Return a function that loads it at the first call only: most pages have no queued job."""

    def look() -> _Here:
        nodes = load_nodes_here(deployment)
        return _Here(load_purse(deployment, project), nodes_here(nodes, now_ms), load_supply(deployment, nodes))

    return cache(look)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """What is read once for all jobs of a page."""

    deployment: Deployment
    now_ms: int
    here: Callable[[], _Here]
    labels: Mapping[str, dict[str, str]]
    banned: Mapping[str, frozenset[str]]
    stored: Mapping[str, int]
    imports: Mapping[str, Row]
    held: Mapping[str, Row]
    silence_ms: Callable[[int], int]
    fits: dict[Hashable, tuple[Fit, str]] = field(default_factory=dict)

    def summary(self, row: Row) -> JobSummary:
        live = row["last_state"] == "live"
        committed = self._committed(row)
        done = row["state"] == "succeeded" and KINDS[row["kind"]].ours
        step = (row["ended_step"] or row["steps"]) if done else max(row["step"], committed)
        pausing, pace = live and row["stop_kind"] == "paused", row["seconds_per_step"]
        unpriced = row["unpriced"] > 0
        silent = live and self.silence_ms(row["beat_ms"]) > 0
        return JobSummary(
            id=row["id"],
            name=row["name"],
            kind=row["kind"],
            state=row["state"],
            because=f"{row['because']}: {SAVES_FIRST}" if pausing else self._because(row),
            steps=row["steps"],
            step=step,
            committed_step=committed,
            phase=("silent" if silent else "pausing" if pausing else row["phase"]) if live else None,
            node_name=row["node_name"],
            loss=row["loss"],
            seconds_per_step=pace,
            eta_s=round(pace * (row["steps"] - step), 1)
            if live and not silent and pace and step < row["steps"]
            else None,
            attempts=row["attempts"],
            interruptions=row["interruptions"],
            cost_usd=(spent_so_far(row, self.now_ms) + self.stored.get(row["id"], 0)) / 1e6,
            cost_lacks=unknown_parts(self.deployment.policy, node_time=unpriced) if row["attempts"] else (),
            submitted_ms=row["submitted_ms"],
            ended_ms=row["ended_ms"],
            owner=OwnerView(id=row["owner"], name=row["owner_name"] or "") if row["owner"] else None,
            labels=self.labels.get(row["id"], {}),
        )

    def _committed(self, row: Row) -> int:
        """Return the step that no interruption can undo: of the newest checkpoint, or of the one that it begins from."""
        if row["kept_step"] is None and row["begins_from"]:
            inherited = checkpoints_to_resume(self.deployment, row["id"], row["begins_from"])
            if inherited:
                return inherited[0]["step"]
        return saved_step(row)

    def _because(self, row: Row) -> str:
        """Return the reason of the job's state; for a queued job, why it waits now."""
        if row["state"] != "queued":
            return row["because"]
        if row["fetching"] == HELD:
            return why_held(self.held[row["id"]])
        if row["fetching"]:
            return why_waiting(self.imports.get(row["id"]), self.now_ms)
        found, waiting = self.here(), as_candidate(row)
        fit, turn = self._fit(found, waiting, self.banned.get(row["id"], frozenset()))
        said, policy = row["because"], self.deployment.policy
        if said == WAITS or said.startswith(TURN):
            said = turn + said.removeprefix(WAITS).removeprefix(TURN)  # on which nodes: that was not known before
        return why_queued(waiting, said, found.purse, fit, found.supply, self.now_ms, policy)

    def _fit(self, found: _Here, waiting: ClaimCandidate, banned: frozenset[str]) -> tuple[Fit, str]:
        """Return how the nodes fit a job, and where it waits for its turn. Jobs of equal needs share it: there may be hundreds of nodes."""
        key = fit_key(waiting, banned, self.now_ms)
        if key not in self.fits:
            fit = fit_of(waiting, found.purse, found.nodes, banned, self.now_ms)
            self.fits[key] = fit, turn_of(fit)
        return self.fits[key]
