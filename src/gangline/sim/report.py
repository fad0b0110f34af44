"""Report on a simulation: the report of a real server's jobs, on everything that happened, and the counts that only a simulation has."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from gangline.core.charts.timeline import draw_timeline
from gangline.core.money.cost import GB
from gangline.core.reports.report import JobsReport
from gangline.service.reports.loading import load_bars
from gangline.service.reports.report import report_of_everything
from gangline.sim.store import FaultlessReader
from gangline.sim.world import START_MS

if TYPE_CHECKING:
    from gangline.sim.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustReport:
    """The counts of bans and strikes in force at the end, of quarantined machines, and of attempts that moved to a faster machine, or away
    from a card that was throttled or too small."""

    machines_quarantined: int
    bans: int
    strikes: int
    moved_too_slow: int
    moved_outpaced: int
    moved_throttled: int
    moved_spilled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimReport(JobsReport):
    """The report of a simulation. `struck` counts the faults by kind; `checkpoints` were uploaded, with `checkpoints_gb` together."""

    scenario: str
    title: str
    seed: int
    hours: float
    events: int
    trace: str
    checkpoints: int
    checkpoints_gb: float
    nodes_rented: int
    trust: TrustReport
    struck: dict[str, int]


def make_report(of: "Simulation", scenario: str) -> SimReport:
    """Return the report of a finished simulation; `scenario` is the name by which the user asked for it."""
    report = report_of_everything(FaultlessReader(of.store))
    return SimReport(
        **{field.name: getattr(report, field.name) for field in fields(JobsReport)},
        scenario=scenario,
        title=of.scenario.title,
        seed=of.world.seed,
        hours=of.world.now_s / 3600,
        events=of.world.events,
        trace=of.world.trace(),
        checkpoints=_count(of, "checkpoint"),
        checkpoints_gb=of.store.look("SELECT COALESCE(SUM(bytes), 0) FROM checkpoint")[0][0] / GB,
        nodes_rented=_count(of, "instance"),
        trust=_trust(of),
        struck=dict(sorted(of.faults.struck.items())),
    )


def make_timeline(of: "Simulation") -> str:
    """Return the timeline of a simulation as SVG, from its start until now."""
    jobs = [job for (job,) in of.store.look("SELECT id FROM job ORDER BY submitted_ms, id")]
    title = f"{of.scenario.title} (seed {of.world.seed})"
    bars = load_bars(FaultlessReader(of.store), jobs, START_MS)
    return draw_timeline(title, jobs, bars, of.world.now_ms - START_MS)


def _trust(of: "Simulation") -> TrustReport:
    return TrustReport(
        machines_quarantined=_count(of, "machine", "quarantines > 0"),
        bans=_count(of, "ban"),
        strikes=_count(of, "strike"),
        moved_too_slow=_count(of, "attempt", "kind = 'too slow'"),
        moved_outpaced=_count(of, "attempt", "kind = 'outpaced'"),
        moved_throttled=_count(of, "attempt", "kind = 'throttled'"),
        moved_spilled=_count(of, "attempt", "kind IN ('spilled', 'crowded')"),
    )


def _count(of: "Simulation", table: str, where: str = "1 = 1") -> int:
    return of.store.look(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0]  # noqa: S608 - both are written here
