"""What a server answers to who asks for a report: the report, and a line for each job or attempt if they were asked for."""

from dataclasses import dataclass

from gangline.core.charts.timeline import Bar
from gangline.core.money.cost import Cause
from gangline.core.reports.report import JobsReport
from gangline.core.reports.rows import Expense, TriedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job of a report. Its times on nodes are by cause, as in the ledger; `wait_s` is the time from submission to the first claim."""

    id: str
    name: str
    kind: str
    state: str
    submitted_ms: int
    ended_ms: int | None
    wait_s: float | None
    attempts: int
    interrupted: int
    failed: int
    steps: int
    steps_redone: int
    minutes: float
    download_s: float
    training_s: float
    redone_s: float
    failed_s: float
    storage_usd: float
    egress_usd: float
    usd: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView(JobsReport):
    """A report of a project's jobs: from the first submission, at `from_ms`, until the last of their attempts ended, or until now.

    `lines` has the jobs and `bars` the attempts, if they were asked for. Times of bars count from `from_ms`.
    """

    from_ms: int
    until_ms: int
    lines: tuple[JobLine, ...] = ()
    bars: tuple[Bar, ...] = ()


def job_line(job: TriedJob) -> JobLine:
    def of(cause: Cause) -> Expense:
        return job.expenses.get(cause, Expense())

    return JobLine(
        id=job.id,
        name=job.name,
        kind=job.kind,
        state=job.state,
        submitted_ms=job.submitted_ms,
        ended_ms=job.ended_ms,
        wait_s=None if job.wait_ms is None else job.wait_ms / 1000,
        attempts=sum(job.attempts.values()),
        interrupted=job.attempts.get("interrupted", 0),
        failed=job.attempts.get("failed", 0),
        steps=job.steps,
        steps_redone=job.steps_redone,
        minutes=job.node_ms / 60_000,
        download_s=of("download").ms / 1000,
        training_s=of("training").ms / 1000,
        redone_s=of("redone steps").ms / 1000,
        failed_s=of("failed").ms / 1000,
        storage_usd=of("storage").micro_usd / 1e6,
        egress_usd=of("egress").micro_usd / 1e6,
        usd=job.micro_usd / 1e6,
        because=job.because,
    )
