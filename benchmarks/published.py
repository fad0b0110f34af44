"""The published benchmark's table, small and for real: `python benchmarks/published.py [JOBS] [KILLS_PER_HOUR] [SEED] [FOLDER]`.

JOBS (200) equal LoRA jobs of the tiny SDXL run on four local nodes: a server, workers and trainers as processes. Each node is killed with
SIGKILL KILLS_PER_HOUR times (15) an hour on average, at moments that follow from SEED (0), and started again. `gangline report` of these
jobs then stands beside the same scenario in the simulator, whose pace, start-up and rate of interruptions are those of the real run.
FOLDER (published-SEED) gets the scenario, to be repeated with `gangline sim run`, both reports as JSON, and the page of the real one.
"""

import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import mean, median, pstdev
from threading import Event

from rich.console import Console

from gangline.cli.admin.box import Box, quick_settings
from gangline.cli.jobs.train import upload_inputs
from gangline.cli.output import table
from gangline.cli.reports.page import report_page
from gangline.cli.reports.rows import PER_JOB, counted_rows, first_try, per_job_text, percent, spent_rows, waited_rows
from gangline.core.reports.report import JobsReport
from gangline.core.reports.view import ReportView
from gangline.sim.report import make_report
from gangline.sim.scenario import parse_scenario
from gangline.sim.simulation import Simulation

ROOT = Path(__file__).parents[1]
NODES = 4
LEASE_S, HEARTBEAT_INTERVAL_S = 6.0, 1.0
PRICE_USD_PER_HOUR = 0.324  # what the published benchmark paid for a node
LOOPBACK_MBIT = 10_000
LOOK_S = 1.0
LABEL = "benchmark"
STEPS, CHECKPOINT_EVERY_STEPS = 40, 10
SETTINGS = {
    "prompt": "sks cat face, fluent emoji",
    "steps": STEPS,
    "resolution": 64,
    "batch_size": 1,
    "learning_rate": 1e-3,
    "rank": 4,
    "checkpoint_every_steps": CHECKPOINT_EVERY_STEPS,
    "sample_result": False,
}


@dataclass
class Killer:
    """Kills nodes at random moments and starts them again. It remembers how long they lived and how long they took to be ready again."""

    box: Box
    kills_per_hour: float
    rng: Random
    due_s: dict[str, float] = field(default_factory=dict)
    begun_s: dict[str, float] = field(default_factory=dict)
    starting: dict[str, float] = field(default_factory=dict)
    lived_s: float = 0.0
    kills: int = 0
    started_s: list[float] = field(default_factory=list)

    def start(self, name: str) -> None:
        now_s = time.monotonic()
        self.box.start_node(name)
        self.starting[name] = self.begun_s[name] = now_s
        self.due_s[name] = now_s + self.rng.expovariate(self.kills_per_hour / 3600)

    def look(self) -> None:
        """Kill who is due, and note who has joined again."""
        now_s = time.monotonic()
        here = {node.name for node in self.box.client.nodes.list() if node.state == "ready"}
        for name in [each for each in self.starting if each in here]:
            self.started_s.append(now_s - self.starting.pop(name))
        for name in [each for each, due_s in self.due_s.items() if due_s <= now_s]:
            self.lived_s += now_s - self.begun_s[name]
            self.kills += 1
            self.box.nodes[name].kill()
            self.start(name)

    def rate_per_hour(self) -> float:
        """Return the kills in an hour of a node's life, as they came out."""
        now_s = time.monotonic()
        return self.kills / ((self.lived_s + sum(now_s - begun_s for begun_s in self.begun_s.values())) / 3600)


def run_for_real(jobs: int, kills_per_hour: float, seed: int) -> tuple[ReportView, Killer]:
    with (
        tempfile.TemporaryDirectory(prefix="gangline-published-") as folder,
        Box(
            Path(folder),
            lease_s=LEASE_S,
            heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
            price_usd_per_hour=PRICE_USD_PER_HOUR,
        ) as box,
    ):
        spec = upload_inputs(
            box.client, ROOT / "examples" / "subject", str(ROOT / "assets" / "tiny-sdxl"), [], SETTINGS
        )
        killer = Killer(box, kills_per_hour, Random(seed))
        for number in range(jobs):
            box.client.jobs.submit(spec, name=f"job {number}", labels={LABEL: "published"})
        for number in range(NODES):
            killer.start(f"node-{number}")
        began_s = time.monotonic()
        while (view := box.client.jobs.report(label=[LABEL])).unfinished:
            killer.look()
            Event().wait(LOOK_S)
            if round(time.monotonic() - began_s) % 30 == 0:
                print(f"{time.monotonic() - began_s:6.0f} s: {view.jobs}, {killer.kills} kills", file=sys.stderr)
        return box.client.jobs.report(label=[LABEL], include=["jobs", "attempts"]), killer


def scenario_of(view: ReportView, killer: Killer, jobs: int) -> str:
    """Return the same scenario for the simulator, with what was measured, as TOML."""
    quiet = [line for line in view.lines if line.state == "succeeded" and line.attempts == 1]
    assert quiet, "no job ran without an interruption: fewer kills an hour leave some"
    paces = [line.training_s / line.steps for line in quiet]
    pace, spread = median(paces), pstdev([math.log(each) for each in paces])
    policy = quick_settings(LEASE_S, HEARTBEAT_INTERVAL_S).split("[pools.default]")[0]
    return f"""title = "{jobs} small LoRA jobs on {NODES} local nodes that are killed"
hours_max = 100
[fleet]
nodes_min = {NODES}
nodes_max = {NODES}
start_s = {median(killer.started_s):.1f}
start_spread = 0.1
[[machines]]
count = {NODES * 10}
price_usd_per_hour = {PRICE_USD_PER_HOUR}
seconds_per_step = {pace:.4f}
spread = {spread:.3f}
start_s = {mean(line.download_s for line in quiet):.1f}
uplink_mbit = {LOOPBACK_MBIT}
downlink_mbit = {LOOPBACK_MBIT}
interruptions_per_hour = {killer.rate_per_hour():.2f}
[[jobs]]
count = {jobs}
steps = {STEPS}
checkpoint_every_s = 8
checkpoint_every_steps = {CHECKPOINT_EVERY_STEPS}
checkpoint_mb = 1
{policy}"""


def show_both(real: JobsReport, simulated: JobsReport) -> None:
    both = (real, simulated)
    rows = table("", ">real", ">simulated", ">difference")
    for name, show in (*counted_rows(both), ("failed at the first try", first_try)):
        rows.add_row(name, *map(show, both), "")
    for name, figure, as_text in PER_JOB:
        rows.add_row(name, *(per_job_text(each, figure, as_text) for each in both), _difference(both, figure))
    for name, show in (*spent_rows(both), *waited_rows(both)):
        rows.add_row(name, *map(show, both), "")
    Console(width=140).print(rows)


def _difference(both: tuple[JobsReport, JobsReport], figure: str) -> str:
    """Return how far the simulator is off: in points for a share, else in percent."""
    real, simulated = (getattr(each.per_job, figure) if each.per_job else 0.0 for each in both)
    if figure.startswith("share_"):
        return f"{(simulated - real) * 100:+.1f} points"
    return percent(simulated / real - 1) if real else "–"


def save(folder: Path, scenario: str, real: ReportView, simulated: JobsReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.toml").write_text(scenario)
    reports = {"real": asdict(real), "simulated": asdict(simulated)}
    (folder / "reports.json").write_text(json.dumps(reports, indent=1))
    (folder / "report.html").write_text(report_page(real, "Small LoRA jobs on four nodes that are killed"))


def main() -> None:
    words = [*sys.argv[1:], *("200", "15", "0", "")[len(sys.argv) - 1 :]]
    jobs, kills_per_hour, seed = int(words[0]), float(words[1]), int(words[2])
    folder = Path(words[3] or f"published-{seed}")
    began_s = time.monotonic()
    real, killer = run_for_real(jobs, kills_per_hour, seed)
    took_s = time.monotonic() - began_s
    scenario = scenario_of(real, killer, jobs)
    simulation = Simulation(parse_scenario(scenario, "published"), seed)
    simulation.run()
    simulated = make_report(simulation, "published")
    save(folder, scenario, real, simulated)
    show_both(real, simulated)
    print(f"\n{killer.kills} kills in {took_s / 60:.1f} minutes; {folder} has the scenario, the reports and the page")


if __name__ == "__main__":
    main()
