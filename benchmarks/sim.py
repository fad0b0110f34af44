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
from dataclasses import dataclass, replace
from statistics import fmean, median

from gangline.sim.bound import clairvoyant_usd
from gangline.sim.cloud import draw
from gangline.sim.scenario import Fleet, Jobs, Machines, Scenario, load
from gangline.sim.simulation import Simulation
from gangline.sim.soak import soak
from gangline.sim.world import START_MS, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a run of `salad_1000`. Minutes are those on nodes; `usd` is everything that was paid, for each finished job."""

    succeeded: int
    shares: tuple[float, float, float]
    minutes_mean: float
    minutes_median: float
    minutes_max: float
    job_usd: float
    usd: float
    waste: float
    hours: float
    cpu_s: float
    bound_usd: float


def measure(scenario: Scenario, seed: int) -> Figures:
    started = time.process_time()
    simulation = Simulation(scenario, seed)
    outcome = simulation.run()
    cpu_s = time.process_time() - started
    look = simulation.store.look
    jobs = look(
        "SELECT SUM(ended_ms - started_ms) / 60000.0, SUM(state = 'interrupted') FROM attempt "
        "WHERE job IN (SELECT id FROM job WHERE state = 'succeeded') GROUP BY job"
    )
    paid = dict(look("SELECT cause, SUM(micro_usd) FROM ledger GROUP BY cause"))
    of_jobs = look("SELECT SUM(micro_usd) FROM ledger WHERE job <> ''")[0][0]
    total, count = sum(paid.values()), len(jobs)
    batch = scenario.jobs[0]
    bound = clairvoyant_usd(
        draw(list(scenario.machines), World(seed).rng("machines")),
        steps=batch.steps * batch.count,
        jobs=batch.count,
        hours=outcome.seconds / 3600,
    )
    minutes = [row[0] for row in jobs]
    return Figures(
        succeeded=count,
        shares=tuple(sum(low <= row[1] <= high for row in jobs) / count for low, high in ((0, 0), (1, 1), (2, 10**9))),  # type: ignore[arg-type]
        minutes_mean=fmean(minutes),
        minutes_median=median(minutes),
        minutes_max=max(minutes),
        job_usd=of_jobs / count / 1e6,
        usd=total / count / 1e6,
        waste=1 - paid["training"] / total,
        hours=outcome.seconds / 3600,
        cpu_s=cpu_s,
        bound_usd=bound / count,
    )


def show(name: str, figures: Figures) -> None:
    shares = " / ".join(f"{share:.3f}" for share in figures.shares)
    print(
        f"{name:28} {figures.succeeded:5} {shares:>22} {figures.minutes_mean:7.2f} {figures.minutes_median:7.2f} "
        f"{figures.minutes_max:8.2f} {figures.job_usd:8.4f} {figures.usd:8.4f} {figures.waste:7.2%} "
        f"{figures.hours:6.1f} {figures.cpu_s:6.1f}"
    )


def head() -> None:
    print(
        f"{'':28} {'jobs':>5} {'never / once / more':>22} {'mean':>7} {'median':>7} {'max min':>8} {'$/job':>8} {'all-in':>8} "
        f"{'waste':>7} {'hours':>6} {'CPU s':>6}"
    )


def compare(seed: int) -> None:
    scenario = load("salad_1000")
    theirs = measure(replace(scenario, policy=scenario.policy | scenario.compare), seed)
    ours = measure(scenario, seed)
    show(f"its authors' rules, seed {seed}", theirs)
    show(f"Gangline's, seed {seed}", ours)
    print(
        f"{'':28} cheaper by {1 - ours.usd / theirs.usd:.1%}; {ours.usd / ours.bound_usd - 1:.1%} above the clairvoyant bound "
        f"of ${ours.bound_usd:.4f}; the longest job takes {ours.minutes_max / ours.minutes_median:.2f} medians"
    )


def salad() -> None:
    head()
    print(
        f"{'published':28} {1000:5} {'0.901 / 0.090 / 0.009':>22} {62.01:7.2f} {53.82:7.2f} {737.92:8.2f} {0.3348:8.4f}"
    )
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
    """Every node has a job for all of the time; jobs and nodes are there at once, so that the fleet is what is measured."""
    print(f"{'nodes':>8} {'events':>9} {'CPU s':>7} {'us an event':>12} {'MB':>7}")
    for nodes in (100, 1000, 10_000, 100_000):
        started = time.process_time()
        simulation = Simulation(_large(nodes), 0, checked=False)
        simulation.play(until_ms=START_MS + 600_000)
        cpu_s = time.process_time() - started
        events = simulation.world.events
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{nodes:8} {events:9} {cpu_s:7.1f} {cpu_s / events * 1e6:12.1f} {size:7.0f}")


def _large(nodes: int) -> Scenario:
    return Scenario(
        title="a large fleet",
        fleet=Fleet(nodes_max=nodes, start_s=20, start_spread=0.5),
        machines=(Machines(count=nodes, seconds_per_step=2.0, spread=0.1),),
        jobs=(Jobs(count=nodes, steps=100_000, checkpoint_every_s=300),),
        policy={"seek_faster": False},
    )


SEED = 0
PARTS = {"salad": salad, "seeds": seeds, "soak": chaos, "fleet": fleet}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for part in sys.argv[1:] or PARTS:
        print(f"\n{part}")
        PARTS[part]()
