"""Report on a set of jobs: those of a project that meet some filters, or everything that a store has."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from gangline.core.errors import BadInput
from gangline.core.job import ENDED
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.money.cost import CostPart, unknown_parts
from gangline.core.reports.overhead import group_overhead, share_overhead, sum_overhead
from gangline.core.reports.report import JobsReport, report_on
from gangline.core.reports.rows import TriedJob
from gangline.core.reports.view import ReportView, job_line
from gangline.ports.store import StoreReader
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import ids_of_jobs
from gangline.service.reports.loading import (
    load_all_overhead,
    load_bars,
    load_jobs,
    load_nodes,
    load_overhead,
    load_work,
)

JOBS_MAX = 10_000
"""The most jobs of one report."""
BARS_MAX = 5000
"""The most attempts that one answer lists: a timeline of more shows nothing."""
Included = Literal["jobs", "attempts"]


def report_of_jobs(
    deployment: Deployment, project: str, filters: JobFilters, now_ms: int, include: Sequence[Included] = ()
) -> ReportView:
    """Return the report of the jobs that a list with these filters has. Raise `BadInput` if they are too many."""
    ids = ids_of_jobs(deployment, project, filters, limit=JOBS_MAX + 1)
    if len(ids) > JOBS_MAX:
        raise BadInput(
            f"more than {JOBS_MAX} jobs meet these filters, which is the most that one report has",
            hint="leave some out, by the time of their submission or by a label",
        )
    store = deployment.store
    jobs = load_jobs(store, ids)
    span = _span(jobs, now_ms)
    report = _report_with_share(store, ids, jobs, span, _cost_lacks(deployment, jobs))
    tries = sum(sum(job.attempts.values()) for job in jobs)
    if "attempts" in include and tries > BARS_MAX:
        raise BadInput(
            f"these jobs had {tries} attempts, and a report lists at most {BARS_MAX}",
            hint="ask for fewer jobs, or for the report without its attempts",
        )
    return ReportView(
        **{field.name: getattr(report, field.name) for field in fields(JobsReport)},
        from_ms=span.from_ms,
        until_ms=span.until_ms,
        lines=tuple(map(job_line, jobs)) if "jobs" in include else (),
        bars=load_bars(store, ids, span.from_ms) if "attempts" in include else (),
    )


def report_of_everything(reader: StoreReader) -> JobsReport:
    """Return the report of all jobs of all projects, with the whole time of all nodes: its cost is the whole ledger."""
    ids = [row["id"] for row in reader.load("every_job")]
    nodes, _ = load_nodes(reader, ids)
    overhead = load_all_overhead(reader)
    return report_on(load_jobs(reader, ids), (*nodes, *group_overhead(overhead)), sum_overhead(overhead))


@dataclass(frozen=True, slots=True)
class _Span:
    """From the first submission until the last attempt has ended, or until now if a job has not."""

    from_ms: int
    until_ms: int


def _span(jobs: Sequence[TriedJob], now_ms: int) -> _Span:
    if not jobs:
        return _Span(now_ms, now_ms)
    ended = all(job.state in ENDED for job in jobs)
    until_ms = max(job.ended_ms or 0 for job in jobs) if ended else now_ms
    return _Span(min(job.submitted_ms for job in jobs), until_ms)


def _report_with_share(
    reader: StoreReader, ids: Sequence[str], jobs: Sequence[TriedJob], span: _Span, lacks: tuple[CostPart, ...]
) -> JobsReport:
    nodes, own_slot_ms = load_nodes(reader, ids)
    lines = load_overhead(reader, list(own_slot_ms), span.from_ms, span.until_ms)
    all_slot_ms = load_work(reader, list(own_slot_ms), span.from_ms, span.until_ms)
    overhead = list(share_overhead(lines, own_slot_ms, all_slot_ms))
    return report_on(jobs, (*nodes, *group_overhead(overhead)), sum_overhead(overhead), lacks)


def _cost_lacks(deployment: Deployment, jobs: Sequence[TriedJob]) -> tuple[CostPart, ...]:
    tried = any(job.attempts for job in jobs)
    return unknown_parts(deployment.policy, node_time=any(job.unpriced for job in jobs)) if tried else ()
