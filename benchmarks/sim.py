"""The simulator's figures: `python benchmarks/sim.py [salad] [seeds] [soak] [fleet]`, all of them without an argument.

salad   the published benchmark of the thousand jobs, the rules of its authors and ours side by side, a lower bound, CPU time
seeds   the same comparison on fleets drawn with other seeds
soak    chaos: seeds and attempts a second
fleet   the cost of an event in fleets of 10^2, 10^3, 10^4 and 10^5 nodes over ten simulated minutes
"""

import logging
import resource
import sys
import time
from dataclasses import asdict, replace

from gangline.sim.choice.bound import clairvoyant_usd
from gangline.sim.report import SimReport, make_report
from gangline.sim.scenario import Fleet, Jobs, Machines, Scenario, figures, load_scenario
from gangline.sim.simulation import Simulation
from gangline.sim.soak import soak
from gangline.sim.world import START_MS


def measure(scenario: Scenario, seed: int) -> tuple[SimReport, float]:
    """What came of it, and the CPU seconds that it took."""
    started = time.process_time()
    simulation = Simulation(scenario, seed)
    simulation.run()
    return make_report(simulation, "salad_1000"), time.process_time() - started


COLUMNS = (
    "share_uninterrupted",
    "share_interrupted_once",
    "share_interrupted_more",
    "minutes_mean",
    "minutes_median",
    "minutes_max",
    "usd_per_job_mean",
)


def show(name: str, values: dict[str, float], *rest: str) -> None:
    print(f"{name:28}", *(f"{values[column]:9.4g}" for column in COLUMNS), *(f"{text:>9}" for text in rest))


def head() -> None:
    names = ("never", "once", "more", "min mean", "median", "max", "$/job", "all-in", "waste", "hours", "CPU s")
    print(f"{'':28}", *(f"{name:>9}" for name in names))


def row(name: str, report: SimReport, cpu_s: float) -> None:
    assert report.per_job is not None, "jobs succeed"
    all_in = f"{report.per_job.usd_per_job_all_in:.4f}"
    show(name, asdict(report.per_job), all_in, f"{report.share_wasted:.2%}", f"{report.hours:.1f}", f"{cpu_s:.1f}")


def compare(seed: int) -> None:
    scenario = load_scenario("salad_1000")
    theirs, their_cpu_s = measure(replace(scenario, policy=scenario.policy | scenario.compare), seed)
    ours, cpu_s = measure(scenario, seed)
    row(f"its authors' rules, seed {seed}", theirs, their_cpu_s)
    row(f"Gangline's, seed {seed}", ours, cpu_s)
    assert ours.per_job is not None and theirs.per_job is not None, "jobs succeed"
    bound = clairvoyant_usd(scenario, seed, hours=ours.hours)
    usd = ours.per_job.usd_per_job_all_in
    print(
        f"{'':28} {ours.jobs} at {1 - usd / theirs.per_job.usd_per_job_all_in:.1%} less; {usd / bound - 1:.1%} above the "
        f"clairvoyant bound of ${bound:.4f}; the longest job takes {ours.per_job.minutes_max / ours.per_job.minutes_median:.2f} medians"
    )


def salad() -> None:
    head()
    show("published", figures("benchmark"))
    compare(SEED)


def seeds() -> None:
    head()
    for seed in range(SEED + 1, SEED + 5):
        compare(seed)


def chaos() -> None:
    started = time.process_time()
    found = soak(range(50))
    cpu_s = time.process_time() - started
    print(
        f"50 seeds: {found.attempts} attempts, {found.events} events, {found.violations} violations, {found.unfinished} "
        f"unfinished; {found.attempts / cpu_s:.0f} attempts and {found.events / cpu_s:.0f} events a CPU second"
    )


def fleet() -> None:
    """As many jobs as nodes, all there at once, so that the fleet is what is measured: ten minutes, and the second five of them
    apart, when it is rented and at work."""
    print(f"{'nodes':>8} {'events':>9} {'CPU s':>7} {'us an event':>12} {'at work':>8} {'MB':>7}")
    for nodes in (100, 1000, 10_000, 100_000):
        started = time.process_time()
        simulation = Simulation(_large(nodes), 0, checked=False)
        simulation.play(until_ms=START_MS + 300_000)
        half_s, half = time.process_time() - started, simulation.world.events
        simulation.play(until_ms=START_MS + 600_000)
        cpu_s, events = time.process_time() - started, simulation.world.events
        each, at_work = cpu_s / events * 1e6, (cpu_s - half_s) / (events - half) * 1e6
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{nodes:8} {events:9} {cpu_s:7.1f} {each:12.1f} {at_work:8.1f} {size:7.0f}", flush=True)


def _large(nodes: int) -> Scenario:
    return Scenario(
        title="a large fleet",
        fleet=Fleet(nodes_max=nodes, start_s=20, start_spread=0.5),
        machines=(Machines(count=nodes, seconds_per_step=2.0, spread=0.1),),
        jobs=(Jobs(count=nodes, steps=100_000, checkpoint_every_s=300),),
        policy={"save_interval_s": 300},
    )


SEED = 1
PARTS = {"salad": salad, "seeds": seeds, "soak": chaos, "fleet": fleet}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for part in sys.argv[1:] or PARTS:
        print(f"\n{part}")
        PARTS[part]()
