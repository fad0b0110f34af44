"""Load the timeline of a job."""

from collections.abc import Iterator, Sequence

from gangline.core.charts.phases import TimelineMark
from gangline.core.jobs.lists.ids import as_list
from gangline.core.jobs.story.band import PaceBand, pace_band
from gangline.core.jobs.story.marks import marks_of
from gangline.core.jobs.story.segments import TriedSpan, segments_of, waits_of
from gangline.core.jobs.story.views import TimelineView
from gangline.core.money.cost import LedgerLine, storage_micro_usd, time_line
from gangline.core.money.spending import spending
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.summaries import summaries
from gangline.service.jobs.query import at_one_moment, owned
from gangline.service.jobs.story.verdict import verdict_of

PACES_MAX = 250
"""The number of machines of a class of GPU whose paces make its band, at most."""


def timeline_of(deployment: Deployment, project: str, job_id: str, now_ms: int) -> TimelineView:
    """Return the timeline of a job as it was at one moment. Raise `NotFound`, or `Unreachable` if it never stands still."""
    return at_one_moment(deployment, job_id, lambda: _read(deployment, project, job_id, now_ms))


def _read(deployment: Deployment, project: str, job_id: str, now_ms: int) -> TimelineView:
    job = owned(deployment, project, job_id)
    attempts = deployment.store.load("attempts", job=job_id)
    events = deployment.store.load("events", job=job_id, after=0)
    summary = summaries(deployment, project, [job_id], now_ms)[0]
    until_ms = max(job["submitted_ms"], now_ms if job["ended_ms"] is None else job["ended_ms"])
    tried = _tried(deployment, job_id, attempts, silent=summary.phase == "silent")
    waits = waits_of(((row["at_ms"], row["kind"], row["state"]) for row in events), job["fetching"])
    return TimelineView(
        job=job_id,
        name=job["name"],
        state=job["state"],
        verdict=verdict_of(deployment, job, summary, attempts, now_ms)[0],
        from_ms=job["submitted_ms"],
        until_ms=until_ms,
        segments=segments_of(job["submitted_ms"], until_ms, waits, tried),
        marks=marks_of([*_moments(deployment, job_id, attempts, events)], tried),
        spent=spending([*_lines(deployment, job_id, attempts, now_ms)], job["submitted_ms"]),
        cost_lacks=summary.cost_lacks,
        bands=_bands(deployment, job["workload"], attempts),
        version=job["version"],
    )


def _tried(deployment: Deployment, job: str, attempts: Sequence[Row], *, silent: bool) -> list[TriedSpan]:
    phases: dict[str, list[tuple[int, str]]] = {row["id"]: [] for row in attempts}
    for row in deployment.store.load("phases_of_job", job=job):
        phases.setdefault(row["attempt"], []).append((row["at_ms"], row["phase"]))
    named = ("node_name", "machine", "gpu", "state", "because", "started_ms", "training_ms", "beat_ms", "ended_ms")
    return [
        TriedSpan(
            attempt=row["id"],
            phases=tuple(phases[row["id"]]),
            silent=silent and row["state"] == "live",
            **{name: row[name] for name in named},
        )
        for row in attempts
    ]


def _moments(
    deployment: Deployment, job: str, attempts: Sequence[Row], events: Sequence[Row]
) -> Iterator[TimelineMark]:
    """Yield what happened, in no order. A commit comes from its checkpoint, which has the step, and not from its event."""
    for row in events:
        if row["kind"] != "committed":
            yield TimelineMark(at_ms=row["at_ms"], kind=row["kind"], attempt=row["attempt"], because=row["because"])
    for row in deployment.store.load("commits_of_job", job=job):
        yield TimelineMark(at_ms=row["committed_ms"], kind="committed", attempt=row["attempt"], step=row["step"])
    for row in attempts:
        if row["from_step"]:
            yield TimelineMark(at_ms=row["started_ms"], kind="resumed", attempt=row["id"], step=row["from_step"])
    for row in deployment.store.load("bans_of_job", job=job):
        yield TimelineMark(at_ms=row["at_ms"], kind="banned", machine=row["machine"], because=row["because"])
    for row in deployment.store.load("strikes_of_job", job=job):
        because = f"{row['kind']}, {row['quarters']} quarters of a strike"
        yield TimelineMark(at_ms=row["at_ms"], kind="strike", attempt=row["attempt"], because=because)


def _lines(deployment: Deployment, job: str, attempts: Sequence[Row], now_ms: int) -> Iterator[LedgerLine]:
    """Yield the job's lines of the ledger, and those that it would have if its attempt ended now and what it stores was deleted."""
    for row in deployment.store.load("ledger_of_job", job=job):
        yield LedgerLine(**{name: row[name] for name in ("cause", "from_ms", "to_ms", "micro_usd")})
    for row in attempts:
        if row["state"] == "live":
            yield time_line("training", row["price_micro_usd_per_hour"], row["started_ms"], now_ms)
    rate = deployment.policy.storage_usd_per_gb_month
    for row in deployment.store.load("stored_of_jobs", **as_list([job])) if rate else []:
        cost = storage_micro_usd(row["bytes"], row["since_ms"], now_ms, rate)
        yield LedgerLine(cause="storage", from_ms=row["since_ms"], to_ms=now_ms, micro_usd=cost)


def _bands(deployment: Deployment, workload: str, attempts: Sequence[Row]) -> tuple[PaceBand, ...]:
    found = list[PaceBand]()
    for gpu in sorted({row["gpu"] for row in attempts}):
        paces = deployment.store.load("paces", workload=workload, gpu=gpu, limit=PACES_MAX)
        band = pace_band(gpu, [row["seconds_per_step"] for row in paces])
        found += [band] if band else []
    return tuple(found)
