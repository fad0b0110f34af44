"""Compute the report of a set of jobs. The tables of published figures (`gangline/sim/published/`) use the same names."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import get_args

from gangline.core.charts.histogram import Histogram, count_in_bins
from gangline.core.job import ENDED, AttemptState
from gangline.core.money.cost import HOUR_MS, Cause, CostPart
from gangline.core.reports.rows import NOT_TIME, NOT_WASTE, Expense, Expenses, TriedJob, TriedOn, added

BECAUSE_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PerJob:
    """The figures per succeeded job: the time on nodes, interruptions, and the cost in the ledger.

    `usd_per_job_all_in` is the whole cost of the report, including what no job caused, divided by the number of these jobs.
    The dollars per step are those of jobs that have steps.
    """

    share_uninterrupted: float
    share_interrupted_once: float
    share_interrupted_more: float
    minutes_mean: float
    minutes_median: float
    minutes_min: float
    minutes_max: float
    usd_per_job_mean: float
    usd_per_job_min: float
    usd_per_job_all_in: float
    usd_per_step_mean: float
    usd_per_step_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The node time and money of one cause. `share` is of all node time; a correction has money and no time."""

    cause: Cause
    node_hours: float
    usd: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The seconds from submission to the first claim, over those jobs of a project that were claimed."""

    project: str
    jobs: int
    seconds_mean: float
    seconds_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNodes:
    """What the nodes of one GPU class or of one pool did: attempts, hours, the share of them that was wasted, and dollars."""

    name: str
    attempts: int
    interrupted: int
    failed: int
    node_hours: float
    share_wasted: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsReport:
    """What a set of jobs took.

    `jobs` and `attempts` are counts by state, and `because` has some reasons of failed jobs. `usd` is the cost in the ledger: `spent` on
    nodes, storage and egress. `share_wasted` is the share of node time that was not training. `minutes` and `usd_of_jobs` are histograms of
    the succeeded jobs. `cost_lacks` lists the parts of the cost whose price is not known.
    """

    jobs: dict[str, int]
    unfinished: int
    because: tuple[str, ...]
    per_job: PerJob | None
    attempts: dict[str, int]
    steps_redone: int
    usd: float
    storage_usd: float
    egress_usd: float
    node_hours: float
    share_wasted: float
    first_try_failed_share: float
    spent: tuple[Spent, ...]
    waits: tuple[Wait, ...]
    by_gpu: tuple[ReportedNodes, ...]
    by_pool: tuple[ReportedNodes, ...]
    minutes: Histogram | None
    usd_of_jobs: Histogram | None
    cost_lacks: tuple[CostPart, ...]


def report_on(
    jobs: Sequence[TriedJob], nodes: Sequence[TriedOn], overhead: Expenses, cost_lacks: tuple[CostPart, ...] = ()
) -> JobsReport:
    """Return the report of these jobs. `overhead` is the node time that belongs to no job; it is in the expenses of `nodes`, too."""
    whole = added(*(job.expenses for job in jobs), overhead)
    usd = sum(part.micro_usd for part in whole.values()) / 1e6
    states = Counter(job.state for job in jobs)
    succeeded = [job for job in jobs if job.state == "succeeded"]
    spent = _spent(whole)
    return JobsReport(
        jobs=dict(sorted(states.items())),
        unfinished=sum(count for state, count in states.items() if state not in ENDED),
        because=_because(jobs),
        per_job=_per_job(succeeded, usd) if succeeded else None,
        attempts=_counts(job.attempts for job in jobs),
        steps_redone=sum(job.steps_redone for job in jobs),
        usd=usd,
        storage_usd=whole.get("storage", Expense()).micro_usd / 1e6,
        egress_usd=whole.get("egress", Expense()).micro_usd / 1e6,
        node_hours=sum(part.node_hours for part in spent),
        share_wasted=sum(part.share for part in spent if part.cause not in NOT_WASTE),
        first_try_failed_share=_first_try_failed(jobs),
        spent=spent,
        waits=_waits(jobs),
        by_gpu=_groups(nodes, lambda on: on.gpu),
        by_pool=_groups(nodes, lambda on: on.pool),
        minutes=count_in_bins([job.node_ms / 60_000 for job in succeeded]),
        usd_of_jobs=count_in_bins([job.micro_usd / 1e6 for job in succeeded]),
        cost_lacks=cost_lacks,
    )


def _per_job(succeeded: Sequence[TriedJob], usd_of_all: float) -> PerJob:
    minutes = [job.node_ms / 60_000 for job in succeeded]
    interruptions = [job.attempts.get("interrupted", 0) for job in succeeded]
    usd = [job.micro_usd / 1e6 for job in succeeded]
    usd_per_step = [cost / job.steps for cost, job in zip(usd, succeeded, strict=True) if job.steps] or [0.0]
    return PerJob(
        share_uninterrupted=fmean(times == 0 for times in interruptions),
        share_interrupted_once=fmean(times == 1 for times in interruptions),
        share_interrupted_more=fmean(times > 1 for times in interruptions),
        minutes_mean=fmean(minutes),
        minutes_median=median(minutes),
        minutes_min=min(minutes),
        minutes_max=max(minutes),
        usd_per_job_mean=fmean(usd),
        usd_per_job_min=min(usd),
        usd_per_job_all_in=usd_of_all / len(succeeded),
        usd_per_step_mean=fmean(usd_per_step),
        usd_per_step_min=min(usd_per_step),
    )


def _because(jobs: Sequence[TriedJob]) -> tuple[str, ...]:
    failed = sorted((job for job in jobs if job.state == "failed"), key=lambda job: (job.ended_ms or 0, job.id))
    return tuple(f"{job.id}: {job.because}" for job in failed[:BECAUSE_MAX])


def _first_try_failed(jobs: Sequence[TriedJob]) -> float:
    """Return the share of jobs whose first attempt failed, among those that had one."""
    tried = [job.first_state == "failed" for job in jobs if job.first_state is not None]
    return fmean(tried) if tried else 0.0


def _spent(whole: Expenses) -> tuple[Spent, ...]:
    causes = [cause for cause in get_args(Cause) if cause in whole and cause not in NOT_TIME]
    whole_ms = sum(whole[cause].ms for cause in causes) or 1
    return tuple(
        Spent(
            cause=cause,
            node_hours=whole[cause].ms / HOUR_MS,
            usd=whole[cause].micro_usd / 1e6,
            share=whole[cause].ms / whole_ms,
        )
        for cause in causes
    )


def _waits(jobs: Sequence[TriedJob]) -> tuple[Wait, ...]:
    waited: dict[str, list[int]] = {}
    for job in jobs:
        if job.wait_ms is not None:
            waited.setdefault(job.project, []).append(job.wait_ms)
    return tuple(
        Wait(project=project, jobs=len(ms), seconds_mean=fmean(ms) / 1000, seconds_max=max(ms) / 1000)
        for project, ms in sorted(waited.items())
    )


def _groups(nodes: Sequence[TriedOn], named: Callable[[TriedOn], str]) -> tuple[ReportedNodes, ...]:
    """Return a group for each name, those first that cost most hours."""
    of_name: dict[str, list[TriedOn]] = {}
    for on in nodes:
        of_name.setdefault(named(on), []).append(on)
    groups = [_group(name, several) for name, several in of_name.items()]
    return tuple(sorted(groups, key=lambda group: (-group.node_hours, group.name)))


def _group(name: str, nodes: Sequence[TriedOn]) -> ReportedNodes:
    counts, whole = _counts(on.attempts for on in nodes), added(*(on.expenses for on in nodes))
    spent = _spent(whole)
    return ReportedNodes(
        name=name,
        attempts=sum(counts.values()),
        interrupted=counts.get("interrupted", 0),
        failed=counts.get("failed", 0),
        node_hours=sum(part.node_hours for part in spent),
        share_wasted=sum(part.share for part in spent if part.cause not in NOT_WASTE),
        usd=sum(part.micro_usd for part in whole.values()) / 1e6,
    )


def _counts(several: Iterable[Mapping[AttemptState, int]]) -> dict[str, int]:
    """Return the sums by state, in the order of the states' names, without those that do not occur."""
    found = Counter[AttemptState]()
    for counts in several:
        found.update(counts)
    return {state: count for state, count in sorted(found.items()) if count}
