"""Answer what users ask about one job. Writes nothing."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Protocol, TypeVar

from gangline.core.errors import NotFound, Unreachable
from gangline.core.money.cost import CostPart, lost, time_cost_micro_usd
from gangline.core.places.places import without_keys
from gangline.core.runs.saving import Saving
from gangline.core.views import ArtifactView, AttemptView, EventView, JobSummary, JobView, LogView, SavingView
from gangline.ports.store import Row
from gangline.service.attempts import TRIES_MAX, as_attempt, load_wishes
from gangline.service.content import deliver
from gangline.service.datasets.named import version_of_job
from gangline.service.deployment import Deployment
from gangline.service.jobs import samples
from gangline.service.jobs.lists.summaries import summaries
from gangline.service.jobs.story.verdict import verdict_of

LOG_PAGE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """The log of an attempt: cursors in it are `fencing.0` to `fencing.bytes`."""

    attempt: str
    fencing: int
    bytes: int


class Versioned(Protocol):
    """What was read of a job, with the version that its row had."""

    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=Versioned)


def at_one_moment(deployment: Deployment, job_id: str, read: Callable[[], V]) -> V:
    """Return what is read of a job as it was at one moment: it is read again if the job moved on meanwhile. Raise `Unreachable` if it never
    stands still."""
    for _ in range(TRIES_MAX):
        found = read()
        if [row["version"] for row in deployment.store.load("job_version", id=job_id)] == [found.version]:
            return found
    raise Unreachable(f"{job_id} changed {TRIES_MAX} times while it was read; try again")


def job(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobView:
    """Return the job as it was at one moment. Raise `NotFound`, or `Unreachable` if it never stands still."""
    return at_one_moment(deployment, job_id, lambda: _read(deployment, project, job_id, now_ms))


def _read(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobView:
    row = owned(deployment, project, job_id)
    spec = json.loads(row["spec"])
    if row["imported"]:
        spec |= {"photos": without_keys(spec["photos"])}
    attempts = deployment.store.load("attempts", job=job_id)
    summary = summaries(deployment, project, [job_id], now_ms)[0]
    said, interruptions = verdict_of(deployment, row, summary, attempts, now_ms)
    return JobView(
        summary=summary,
        verdict=said,
        spec=spec,
        attempts=tuple(_attempt(attempt, now_ms) for attempt in attempts),
        steps_redone=lost([as_attempt(attempt) for attempt in attempts]).steps_redone,
        seconds_lost=round(interruptions.ms / 1000, 3),
        samples=samples.samples_view(deployment, job_id),
        delivery=deliver.delivery_view(deployment, job_id) if spec.get("deliver") else None,
        dataset=str(version_of_job(deployment, job_id) or ""),
        asked=() if row["ended_ms"] else tuple(wish.kind for wish in load_wishes(deployment, job_id)),
        version=row["version"],
    )


def summary_of(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobSummary:
    """Return a job without its spec and attempts. Raises `NotFound`."""
    return summaries(deployment, project, [owned(deployment, project, job_id)["id"]], now_ms)[0]


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


def log_page(
    deployment: Deployment, project: str, job_id: str, cursor: str | None, before: str | None = None
) -> LogView:
    """Return one page of what the trainers of all attempts printed, in order, after `cursor` and, if it is given, `before` another one."""
    owned(deployment, project, job_id)
    fencing, first_byte = _parse_log_cursor(cursor)
    until = None if before is None else _parse_log_cursor(before)
    return read_log(deployment, job_id, fencing, first_byte, LOG_PAGE_BYTES, until)


def read_log(
    deployment: Deployment,
    job_id: str,
    fencing: int,
    first_byte: int,
    bytes_max: int,
    until: tuple[int, int] | None = None,
) -> LogView:
    """Read the log from a byte of an attempt on, up to the chunks that begin at `until`, an attempt's fencing number and a byte of it.

    The last chunk is read to its end, so the text may be longer than `bytes_max`.
    """
    text, size = "", 0
    for row in deployment.store.load("log_chunks", job=job_id, fencing=fencing, first_byte=first_byte):
        if size >= bytes_max or (until is not None and (row["fencing"], row["first_byte"]) >= until):
            break
        text += _chunk(deployment, row, text)
        size += row["bytes"]
        fencing, first_byte = row["fencing"], row["first_byte"] + 1
    return LogView(text=text, next=f"{fencing}.{first_byte}")


def log_extents(deployment: Deployment, job_id: str) -> list[LogExtent]:
    """Return how much of a log each attempt has that printed something, in their order."""
    return [LogExtent(**row) for row in deployment.store.load("log_extents", job=job_id)]


def _chunk(deployment: Deployment, row: Row, before: str) -> str:
    """Return a chunk of a log; if the object store has lost it, a line that says so."""
    try:
        return deployment.objects.read(row["key"]).decode(errors="replace")
    except NotFound:
        start = "" if before.endswith("\n") or not before else "\n"
        return f"{start}[{row['bytes']} bytes of this log are lost]\n"


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
