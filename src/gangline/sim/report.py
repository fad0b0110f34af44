"""Report on a simulation from its database. The tables of published figures in `published/` use the same names."""

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, get_args

from gangline.core.job import ENDED
from gangline.core.money.cost import GB, HOUR_MS, Cause

if TYPE_CHECKING:
    from gangline.sim.simulation import Simulation

BECAUSE_MAX = 5
NOT_TIME: tuple[Cause, ...] = ("storage", "egress")
NOT_WASTE: tuple[Cause, ...] = ("training", "correction")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerJob:
    """The figures per succeeded job: the time on nodes, interruptions, and the cost in the ledger.

    `usd_per_job_all_in` is the whole ledger, including costs that no job caused, divided by the number of these jobs.
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
class TrustReport:
    """The counts of bans and strikes in force at the end, of quarantined machines, and of attempts that moved to a faster machine."""

    machines_quarantined: int
    bans: int
    strikes: int
    moved_too_slow: int
    moved_outpaced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimReport:
    """The report of a simulation. `jobs` and `attempts` are counts by state, `because` has some reasons of failed jobs, `struck` counts the
    faults by kind. `checkpoints` were uploaded, with `checkpoints_gb` together. `usd` is the whole ledger: `spent` on nodes, storage and
    egress.
    """

    scenario: str
    title: str
    seed: int
    hours: float
    events: int
    trace: str
    jobs: dict[str, int]
    unfinished: int
    because: tuple[str, ...]
    per_job: PerJob | None
    attempts: dict[str, int]
    steps_redone: int
    checkpoints: int
    checkpoints_gb: float
    usd: float
    storage_usd: float
    egress_usd: float
    node_hours: float
    nodes_rented: int
    share_wasted: float
    first_try_failed_share: float
    spent: tuple[Spent, ...]
    waits: tuple[Wait, ...]
    trust: TrustReport
    struck: dict[str, int]


def make_report(of: "Simulation", scenario: str) -> SimReport:
    """Return the report of a finished simulation; `scenario` is the name by which the user asked for it."""
    jobs = dict(of.store.look("SELECT state, COUNT(*) FROM job GROUP BY state ORDER BY state"))
    spent = _spent(of)
    return SimReport(
        scenario=scenario,
        title=of.scenario.title,
        seed=of.world.seed,
        hours=of.world.now_s / 3600,
        events=of.world.events,
        trace=of.world.trace(),
        jobs=jobs,
        unfinished=sum(count for state, count in jobs.items() if state not in ENDED),
        because=_because(of),
        per_job=_per_job(of),
        attempts=dict(of.store.look("SELECT state, COUNT(*) FROM attempt GROUP BY state ORDER BY state")),
        steps_redone=_steps_redone(of),
        checkpoints=_count(of, "checkpoint"),
        checkpoints_gb=of.store.look("SELECT COALESCE(SUM(bytes), 0) FROM checkpoint")[0][0] / GB,
        usd=_usd(of),
        storage_usd=_usd(of, "storage"),
        egress_usd=_usd(of, "egress"),
        node_hours=sum(part.node_hours for part in spent),
        nodes_rented=_count(of, "instance"),
        share_wasted=sum(part.share for part in spent if part.cause not in NOT_WASTE),
        first_try_failed_share=_first_try_failed(of),
        spent=spent,
        waits=_waits(of),
        trust=_trust(of),
        struck=dict(sorted(of.faults.struck.items())),
    )


def _first_try_failed(of: "Simulation") -> float:
    """Return the share of jobs whose first attempt failed, among those that had one."""
    tried = of.store.look("SELECT AVG(state = 'failed') FROM attempt WHERE fencing = 1")
    return tried[0][0] or 0.0


def _per_job(of: "Simulation") -> PerJob | None:
    rows = of.store.look(
        "SELECT job.steps, SUM(attempt.ended_ms - attempt.started_ms) / 60000.0, SUM(attempt.state = 'interrupted'), "
        "(SELECT COALESCE(SUM(micro_usd), 0) FROM ledger WHERE ledger.job = job.id) / 1e6 "
        "FROM job JOIN attempt ON attempt.job = job.id WHERE job.state = 'succeeded' GROUP BY job.id"
    )
    if not rows:
        return None
    minutes, interruptions, usd = ([row[column] for row in rows] for column in (1, 2, 3))
    usd_per_step = [cost / steps for steps, _, _, cost in rows]
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
        usd_per_job_all_in=_usd(of) / len(rows),
        usd_per_step_mean=fmean(usd_per_step),
        usd_per_step_min=min(usd_per_step),
    )


def _because(of: "Simulation") -> tuple[str, ...]:
    sql = "SELECT id, because FROM job WHERE state = 'failed' ORDER BY ended_ms, id LIMIT ?"
    return tuple(f"{job}: {because}" for job, because in of.store.look(sql, BECAUSE_MAX))


def _steps_redone(of: "Simulation") -> int:
    """Return the number of steps that an attempt reported and the job's next attempt repeated."""
    sql = (
        "SELECT COALESCE(SUM(MAX(0, step - next_from)), 0) FROM "
        "(SELECT step, LEAD(from_step, 1, step) OVER (PARTITION BY job ORDER BY fencing) AS next_from FROM attempt)"
    )
    return of.store.look(sql)[0][0]


def _spent(of: "Simulation") -> tuple[Spent, ...]:
    sql = "SELECT cause, SUM(to_ms - from_ms), SUM(micro_usd) FROM ledger GROUP BY cause"
    found = {cause: (ms, micro_usd) for cause, ms, micro_usd in of.store.look(sql)}
    causes = [cause for cause in get_args(Cause) if cause in found and cause not in NOT_TIME]
    whole_ms = sum(found[cause][0] for cause in causes) or 1
    return tuple(
        Spent(cause=cause, node_hours=ms / HOUR_MS, usd=micro_usd / 1e6, share=ms / whole_ms)
        for cause in causes
        for ms, micro_usd in (found[cause],)
    )


def _waits(of: "Simulation") -> tuple[Wait, ...]:
    rows = of.store.look(
        "SELECT job.project, COUNT(*), AVG(attempt.started_ms - job.submitted_ms), MAX(attempt.started_ms - job.submitted_ms) "
        "FROM job JOIN attempt ON attempt.job = job.id AND attempt.fencing = 1 GROUP BY job.project ORDER BY job.project"
    )
    return tuple(
        Wait(project=project, jobs=jobs, seconds_mean=mean_ms / 1000, seconds_max=max_ms / 1000)
        for project, jobs, mean_ms, max_ms in rows
    )


def _trust(of: "Simulation") -> TrustReport:
    return TrustReport(
        machines_quarantined=_count(of, "machine", "quarantines > 0"),
        bans=_count(of, "ban"),
        strikes=_count(of, "strike"),
        moved_too_slow=_count(of, "attempt", "kind = 'too slow'"),
        moved_outpaced=_count(of, "attempt", "kind = 'outpaced'"),
    )


def _usd(of: "Simulation", cause: Cause | None = None) -> float:
    sql = "SELECT COALESCE(SUM(micro_usd), 0) FROM ledger WHERE ? IN ('', cause)"
    return of.store.look(sql, cause or "")[0][0] / 1e6


def _count(of: "Simulation", table: str, where: str = "1 = 1") -> int:
    return of.store.look(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0]  # noqa: S608 - both are written here
