"""The rows of a report, which the table of a simulation, that of a real server's jobs, and the page have in common."""

from collections.abc import Callable, Iterator, Sequence

from gangline.cli.output import duration, usd
from gangline.core.reports.report import JobsReport, ReportedNodes

ALL_JOBS = "All jobs"
"""The title of a report without filters."""
ReportRows = Iterator[tuple[str, Callable[[JobsReport], str]]]


def no_jobs(title: str) -> str:
    """Return the sentence that stands for the tables of a report without jobs."""
    return "there is no job yet" if title == ALL_JOBS else "no job meets these filters"


def percent(share: float) -> str:
    return f"{share:.1%}"


def _minutes(minutes: float) -> str:
    return f"{minutes:.2f}"


PER_JOB: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("uninterrupted", "share_uninterrupted", percent),
    ("interrupted once", "share_interrupted_once", percent),
    ("interrupted more", "share_interrupted_more", percent),
    ("minutes a job, mean", "minutes_mean", _minutes),
    ("minutes a job, median", "minutes_median", _minutes),
    ("minutes a job, least", "minutes_min", _minutes),
    ("minutes a job, most", "minutes_max", _minutes),
    ("$ a job, mean", "usd_per_job_mean", usd),
    ("$ a job, least", "usd_per_job_min", usd),
    ("$ a job, everything included", "usd_per_job_all_in", usd),
    ("$ a step, mean", "usd_per_step_mean", usd),
    ("$ a step, least", "usd_per_step_min", usd),
)
"""Name, figure of the report and of the published table, and how it reads."""


def counted_rows(reports: Sequence[JobsReport]) -> ReportRows:
    yield "jobs", lambda report: ", ".join(f"{count} {state}" for state, count in report.jobs.items()) or "none"
    for state in sorted({state for report in reports for state in report.attempts}):
        yield (
            f"attempts that {'run' if state == 'live' else f'ended {state}'}",
            lambda report, state=state: str(report.attempts.get(state, 0)),
        )
    yield "steps redone", lambda report: str(report.steps_redone)


def first_try(report: JobsReport) -> str:
    return percent(report.first_try_failed_share)


def per_job_rows() -> ReportRows:
    yield "failed at the first try", first_try
    for name, figure, as_text in PER_JOB:
        yield name, lambda report, figure=figure, as_text=as_text: per_job_text(report, figure, as_text)


def per_job_text(report: JobsReport, figure: str, as_text: Callable[[float], str]) -> str:
    return "–" if report.per_job is None else as_text(getattr(report.per_job, figure))


def spent_rows(reports: Sequence[JobsReport]) -> ReportRows:
    """Yield the time of the nodes by cause, in the ledger's order, and the other costs."""
    yield "nodes", lambda report: f"{report.node_hours:.2f} h"
    yield "  wasted", lambda report: percent(report.share_wasted)
    for cause in dict.fromkeys(part.cause for report in reports for part in report.spent):
        yield f"  {cause}", lambda report, cause=cause: _part(report, cause)
    yield "storage, egress", lambda report: f"{usd(report.storage_usd)}, {usd(report.egress_usd)}"
    yield "total", lambda report: usd(report.usd)


def _part(report: JobsReport, cause: str) -> str:
    for part in report.spent:
        if part.cause == cause:
            return f"{part.node_hours:.2f} h  {usd(part.usd)}  {percent(part.share):>6}"
    return "–"


def waited_rows(reports: Sequence[JobsReport]) -> ReportRows:
    for project in dict.fromkeys(wait.project for report in reports for wait in report.waits):
        yield f"waits of {project}, mean, most", lambda report, project=project: _wait(report, project)


def _wait(report: JobsReport, project: str) -> str:
    found = [wait for wait in report.waits if wait.project == project]
    return ", ".join(duration(seconds) for wait in found for seconds in (wait.seconds_mean, wait.seconds_max)) or "–"


GROUP_COLUMNS = (">attempts", ">interrupted", ">failed", ">node hours", ">wasted", ">cost")


def group_cells(group: ReportedNodes) -> tuple[str, ...]:
    """Return the name of a group of nodes and what is in its columns."""
    counts = (str(group.attempts), str(group.interrupted), str(group.failed))
    return (group.name or "–", *counts, f"{group.node_hours:.2f}", percent(group.share_wasted), usd(group.usd))
