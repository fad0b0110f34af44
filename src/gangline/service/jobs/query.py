"""Answer what users ask about jobs and nodes. Writes nothing."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache

from gangline.core.errors import NotFound
from gangline.core.job import Node
from gangline.core.jobs.supply import Supply
from gangline.core.jobs.why import why_queued
from gangline.core.money.budget import Purse
from gangline.core.money.cost import CostPart, lost, time_cost_micro_usd, unknown_parts
from gangline.core.places.places import without_keys
from gangline.core.runs.saving import Saving
from gangline.core.specs.kinds import KINDS
from gangline.core.views import (
    ArtifactView,
    AttemptView,
    EventView,
    JobPage,
    JobSummary,
    JobView,
    LogView,
    SavingView,
)
from gangline.ports.store import Row
from gangline.service.attempts import as_attempt, load_wishes
from gangline.service.content import deliver
from gangline.service.content.imports import why_waiting
from gangline.service.content.inputs import checkpoints_to_resume
from gangline.service.deployment import Deployment
from gangline.service.fleet.supply import load_supply
from gangline.service.jobs import samples
from gangline.service.jobs.claim import as_candidate
from gangline.service.money.bill import load_purse, stored_micro_usd

PAGE_MAX = 200
LOG_PAGE_BYTES = 1_000_000
FAR_FUTURE_MS = 2**62
PAUSING = "paused by its owner: its node saves first"


def jobs(deployment: Deployment, project: str, now_ms: int, *, limit: int, cursor: str | None) -> JobPage:
    before_ms, before_id = _parse_cursor(cursor)
    rows = deployment.store.load(
        "jobs_page", project=project, before_ms=before_ms, before_id=before_id, limit=min(limit, PAGE_MAX) + 1
    )
    page, here = rows[: min(limit, PAGE_MAX)], _here(deployment, project)
    following = f"{page[-1]['submitted_ms']}.{page[-1]['id']}" if len(rows) > len(page) else None
    return JobPage(jobs=tuple(_summary(deployment, row, here, now_ms) for row in page), next=following)


def jobs_named(deployment: Deployment, project: str, named: str, now_ms: int, *, limit: int) -> JobPage:
    """Return the jobs that have this name, or whose id is this, or begins or ends with it, with or without `job-`; newest first, at most
    `limit`.
    """
    rows = deployment.store.load(
        "jobs_named", project=project, named=named, length=len(named), limit=min(limit, PAGE_MAX)
    )
    here = _here(deployment, project)
    return JobPage(jobs=tuple(_summary(deployment, row, here, now_ms) for row in rows), next=None)


def job(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobView:
    row = owned(deployment, project, job_id)
    spec = json.loads(row["spec"])
    if row["imported"]:
        spec |= {"photos": without_keys(spec["photos"])}
    attempts = deployment.store.load("attempts", job=job_id)
    cost_of_interruptions = lost([as_attempt(attempt) for attempt in attempts])
    return JobView(
        summary=_summary(deployment, row, _here(deployment, project), now_ms),
        spec=spec,
        attempts=tuple(_attempt(attempt, now_ms) for attempt in attempts),
        steps_redone=cost_of_interruptions.steps_redone,
        seconds_lost=round(cost_of_interruptions.ms / 1000, 3),
        samples=samples.samples_view(deployment, job_id),
        delivery=deliver.delivery_view(deployment, job_id) if spec.get("deliver") else None,
        asked=() if row["ended_ms"] else tuple(wish.kind for wish in load_wishes(deployment, job_id)),
    )


def owned(deployment: Deployment, project: str, job_id: str) -> Row:
    """Return the job's row. Raise `NotFound` if there is none, if it belongs to another project, or if it was deleted."""
    rows = deployment.store.load("job", id=job_id)
    if not rows or rows[0]["project"] != project or rows[0]["removed_ms"] is not None:
        raise NotFound(f"there is no job {job_id}", hint="`gangline jobs ls` lists them")
    return rows[0]


def events_after(deployment: Deployment, project: str, job_id: str, after: int) -> list[EventView]:
    owned(deployment, project, job_id)
    return [EventView(**row) for row in deployment.store.load("events", job=job_id, after=after)]


def artifacts_of(deployment: Deployment, project: str, job_id: str, now_ms: int) -> list[ArtifactView]:
    owned(deployment, project, job_id)
    return [
        ArtifactView(
            path=row["path"],
            bytes=row["bytes"],
            sha256=row["sha256"],
            url=deployment.objects.sign_get(row["key"], now_ms=now_ms, seconds=deployment.policy.url_s).url,
        )
        for row in deployment.store.load("artifacts", job=job_id)
    ]


def log_page(deployment: Deployment, project: str, job_id: str, cursor: str | None) -> LogView:
    """Return one page of what the trainers of all attempts printed, in order, after `cursor`."""
    owned(deployment, project, job_id)
    fencing, first_byte = _parse_log_cursor(cursor)
    return read_log(deployment, job_id, fencing, first_byte, LOG_PAGE_BYTES)


def read_log(deployment: Deployment, job_id: str, fencing: int, first_byte: int, bytes_max: int) -> LogView:
    """Read the log from a byte of an attempt on. The last chunk is read to its end, so the text may be longer than `bytes_max`."""
    text, size = "", 0
    for row in deployment.store.load("log_chunks", job=job_id, fencing=fencing, first_byte=first_byte):
        if size >= bytes_max:
            break
        text += _chunk(deployment, row, text)
        size += row["bytes"]
        fencing, first_byte = row["fencing"], row["first_byte"] + 1
    return LogView(text=text, next=f"{fencing}.{first_byte}")


def _chunk(deployment: Deployment, row: Row, before: str) -> str:
    """Return a chunk of a log; if the object store has lost it, a line that says so."""
    try:
        return deployment.objects.read(row["key"]).decode(errors="replace")
    except NotFound:
        start = "" if before.endswith("\n") or not before else "\n"
        return f"{start}[{row['bytes']} bytes of this log are lost]\n"


@dataclass(frozen=True, slots=True)
class _Here:
    """The things that a project's queued jobs wait for: money, and nodes that are here or could be started."""

    purse: Purse
    nodes: tuple[Node, ...]
    supply: Supply


def _here(deployment: Deployment, project: str) -> Callable[[], _Here]:
    """Return a function that loads it at the first call only: most pages have no queued job."""

    def look() -> _Here:
        nodes = tuple(Node(**row) for row in deployment.store.load("nodes_here"))
        return _Here(load_purse(deployment, project), nodes, load_supply(deployment, nodes))

    return cache(look)


def _because(deployment: Deployment, job: Row, here: Callable[[], _Here], now_ms: int) -> str:
    """Return the reason of the job's state; for a queued job, why it waits now."""
    if job["state"] != "queued":
        return job["because"]
    if job["fetching"]:
        return why_waiting(deployment, job["id"], now_ms)
    bans = deployment.store.load("bans", job=job["id"]) if job["fencing"] else []
    banned = frozenset(ban["machine"] for ban in bans)
    found = here()
    waiting, said = as_candidate(job), job["because"]
    return why_queued(waiting, said, found.purse, found.nodes, found.supply, banned, now_ms, deployment.policy)


def _summary(deployment: Deployment, row: Row, here: Callable[[], _Here], now_ms: int) -> JobSummary:
    attempts = deployment.store.load("attempts", job=row["id"])
    checkpoints = checkpoints_to_resume(deployment, row["id"], row["begins_from"])
    last = attempts[-1] if attempts else None
    live = last if last and last["state"] == "live" else None
    committed = checkpoints[0]["step"] if checkpoints else _committed(row, attempts)
    taken = last["step"] if last else 0  # 0 until the attempt reports a step
    done = row["state"] == "succeeded" and KINDS[row["kind"]].ours
    step = (row["ended_step"] or row["steps"]) if done else max(taken, committed)
    pausing = live is not None and live["stop_kind"] == "paused"
    pace = last["seconds_per_step"] if last else None
    spent = sum(_micro_usd(attempt, now_ms) for attempt in attempts)
    return JobSummary(
        id=row["id"],
        name=row["name"],
        kind=row["kind"],
        state=row["state"],
        because=PAUSING if pausing else _because(deployment, row, here, now_ms),
        steps=row["steps"],
        step=step,
        committed_step=committed,
        phase="pausing" if pausing else live["phase"] if live else None,
        node_name=last["node_name"] if last else None,
        loss=last["loss"] if last else None,
        seconds_per_step=pace,
        eta_s=round(pace * (row["steps"] - step), 1) if live and pace and step < row["steps"] else None,
        attempts=len(attempts),
        interruptions=sum(attempt["state"] in ("interrupted", "released") for attempt in attempts),
        cost_usd=(spent + stored_micro_usd(deployment, row["id"], now_ms)) / 1e6,
        cost_lacks=_lacks(deployment, attempts),
        submitted_ms=row["submitted_ms"],
        ended_ms=row["ended_ms"],
    )


def _committed(job: Row, attempts: list[Row]) -> int:
    """Return the committed step of a job that has ended: its checkpoints may have expired, but the step was reached."""
    return max((attempt["committed_step"] for attempt in attempts), default=0) if job["ended_ms"] else 0


def _attempt(row: Row, now_ms: int) -> AttemptView:
    shown = [field.name for field in fields(AttemptView) if not field.name.startswith(("cost_", "saving"))]
    lacks: tuple[CostPart, ...] = () if row["price_known"] else ("node time",)
    return AttemptView(
        **{name: row[name] for name in shown},
        cost_usd=_micro_usd(row, now_ms) / 1e6,
        cost_lacks=lacks,
        saving=_saving(row["saving"]),
    )


def _saving(stored: str) -> SavingView | None:
    if not stored:
        return None
    saving = Saving(**json.loads(stored))
    return SavingView(**asdict(saving), because=saving.sentence)


def _lacks(deployment: Deployment, attempts: list[Row]) -> tuple[CostPart, ...]:
    """Return which parts of these attempts' cost are unknown; none if there was no attempt."""
    unpriced = any(not attempt["price_known"] for attempt in attempts)
    return unknown_parts(deployment.policy, node_time=unpriced) if attempts else ()


def _micro_usd(attempt: Row, now_ms: int) -> int:
    """Return the attempt's cost in the ledger; for a live attempt, plus what its time would cost if it ended now."""
    known = attempt["micro_usd"] or 0
    if attempt["state"] != "live":
        return known
    return known + time_cost_micro_usd(
        price_micro_usd_per_hour=attempt["price_micro_usd_per_hour"],
        from_ms=attempt["started_ms"],
        to_ms=now_ms,
    )


def _parse_cursor(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return FAR_FUTURE_MS, ""
    at_ms, _, job_id = cursor.partition(".")
    if not is_number(at_ms):
        raise NotFound(f"there is no page {cursor}", hint="use the `next` of the previous page")
    return int(at_ms), job_id


def _parse_log_cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    fencing, _, first_byte = cursor.partition(".")
    if not (is_number(fencing) and is_number(first_byte)):
        raise NotFound(f"there is no piece {cursor} of a log", hint="use the `next` of the previous piece")
    return int(fencing), int(first_byte)


def is_number(text: str) -> bool:
    """Return whether the text is a number that fits into a column of the store."""
    return text.isdecimal() and len(text) < 19
