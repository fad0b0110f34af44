"""The published benchmark: a thousand jobs on forty interruptible nodes, by its authors' rules and by ours."""

from dataclasses import asdict, replace
from functools import cache

import pytest

from gangline.core.reports.report import PerJob
from gangline.sim.choice.bound import cheapest_usd, clairvoyant_usd
from gangline.sim.cloud.machines import draw_machines
from gangline.sim.report import SimReport, make_report
from gangline.sim.scenario import Machines, figures, load_scenario
from gangline.sim.simulation import Simulation
from gangline.sim.world import World

FITTED = 1
"""The seed of the fleet that was fitted to the published figures, by its authors' rules alone."""

WITHIN_10_PERCENT = (
    "share_uninterrupted",
    "share_interrupted_once",
    "share_interrupted_more",
    "minutes_mean",
    "minutes_median",
    "usd_per_job_mean",
)


@cache
def played(seed: int, *, theirs: bool) -> SimReport:
    scenario = load_scenario("salad_1000")
    simulation = Simulation(replace(scenario, policy=scenario.policy | scenario.compare) if theirs else scenario, seed)
    simulation.run()
    simulation.audit.at_the_end(simulation.cloud.invoice(), 0)
    return make_report(simulation, "salad_1000")


def per_job(report: SimReport) -> PerJob:
    assert report.per_job is not None
    return report.per_job


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_its_authors_rules_on_this_fleet_come_to_the_published_figures() -> None:
    published, ours = figures("benchmark"), asdict(per_job(played(FITTED, theirs=True)))
    for name in WITHIN_10_PERCENT:
        assert ours[name] == pytest.approx(published[name], rel=0.1), name


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [FITTED, FITTED + 1, FITTED + 2])
def test_ours_waste_little_leave_no_job_behind_and_are_a_fifth_cheaper(seed: int) -> None:
    ours, theirs = played(seed, theirs=False), played(seed, theirs=True)
    assert ours.jobs == {"succeeded": 1000}
    assert ours.share_wasted < 0.03
    assert per_job(ours).minutes_max < 2 * per_job(ours).minutes_median
    # Fleets of other seeds are less like the published one: where fewer of the slow machines are met, less is to be saved.
    paid = per_job(ours).usd_per_job_all_in
    assert paid < (0.8 if seed == FITTED else 0.85) * per_job(theirs).usd_per_job_all_in
    assert paid < 1.1 * clairvoyant_usd(load_scenario("salad_1000"), seed, hours=ours.hours)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_with_the_interruptions_that_are_documented_next_to_nothing_is_lost() -> None:
    simulation = Simulation(load_scenario("salad_documented"), 0)
    simulation.run()
    simulation.audit.at_the_end(simulation.cloud.invoice(), 0)
    report = make_report(simulation, "salad_documented")
    assert report.jobs == {"succeeded": 1000}
    assert per_job(report).share_uninterrupted > 0.98
    assert report.share_wasted < 0.03


def test_the_clairvoyant_takes_the_fastest_for_all_of_the_time_and_then_the_next() -> None:
    fast = Machines(count=1, seconds_per_step=1.0, price_usd_per_hour=3.6, start_s=0)
    slow = Machines(count=1, seconds_per_step=2.0, price_usd_per_hour=3.6, start_s=0)
    machines = draw_machines([slow, fast], World(0))
    assert cheapest_usd(machines, steps=3600, jobs=1, hours=1) == pytest.approx(3.6)
    assert cheapest_usd(machines, steps=4500, jobs=1, hours=1) == pytest.approx(3.6 + 1.8)
