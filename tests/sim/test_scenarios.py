"""What each scenario shows. Its sentence is the test's name."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from gangline.core.jobs.lists.filters import JobFilters
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.sim.scenario import load_scenario, names
from gangline.sim.simulation import Simulation
from gangline.sim.world import START_MS


@cache
def played(name: str, seed: int = 0, *, compared: bool = False) -> Simulation:
    scenario = load_scenario(name)
    if compared:
        scenario = replace(scenario, policy=scenario.policy | scenario.compare)
    simulation = Simulation(scenario, seed)
    simulation.run()
    simulation.audit.at_the_end(simulation.cloud.invoice(), scenario.nodes_min)
    return simulation


def one(simulation: Simulation, sql: str) -> Any:
    return simulation.store.look(sql)[0][0]


def jobs(simulation: Simulation, state: str) -> int:
    return one(simulation, f"SELECT COUNT(*) FROM job WHERE state = '{state}'")


def all_succeed(simulation: Simulation) -> bool:
    return jobs(simulation, "succeeded") == sum(batch.count for batch in simulation.scenario.jobs)


def paid(simulation: Simulation, *causes: str) -> float:
    listed = ", ".join(f"'{cause}'" for cause in causes)
    return one(simulation, f"SELECT COALESCE(SUM(micro_usd), 0) / 1e6 FROM ledger WHERE cause IN ({listed})")


def test_every_scenario_is_a_scenario() -> None:
    assert {"salad_1000", "bad_node", "flood", "bursts"} <= set(names())
    for name in names():
        load_scenario(name)


def test_one_bad_node_ruins_the_queue_without_the_rules_and_fails_nothing_with_them() -> None:
    ruined = jobs(played("bad_node", compared=True), "failed")
    assert ruined > 50
    assert all_succeed(played("bad_node"))
    assert one(played("bad_node"), "SELECT MAX(quarantines) FROM machine") > 0


@pytest.mark.tenths
def test_no_attempt_is_spent_on_machines_without_libraries_and_they_are_rented_less_and_less() -> None:
    simulation = played("bare_node")
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM attempt WHERE state = 'failed'") == 0
    bare = simulation.store.look("SELECT id, joined_ms FROM node WHERE proof_failed = 1 ORDER BY joined_ms")
    assert len(bare) > 5
    for node, _ in bare:
        assert one(simulation, f"SELECT COUNT(*) FROM attempt WHERE node = '{node}'") == 0
    later = [joined_ms for _, joined_ms in bare][9:]
    assert all(after - before > 600_000 for before, after in pairwise(later))


@pytest.mark.tenths
def test_no_job_stays_with_a_node_that_is_twelve_times_as_slow() -> None:
    simulation = played("slow_node")
    assert all_succeed(simulation)
    minutes = [
        row[0]
        for row in simulation.store.look(
            "SELECT SUM(ended_ms - started_ms) / 60000.0 FROM attempt GROUP BY job ORDER BY 1"
        )
    ]
    assert minutes[-1] < 2 * minutes[len(minutes) // 2]


@pytest.mark.parametrize("seed", range(4))
def test_the_last_job_banned_from_the_only_node_gets_another_one_without_a_hand(seed: int) -> None:
    simulation = played("last_banned_node", seed)
    assert all_succeed(simulation)


def test_the_only_node_was_banned_in_one_of_these_at_least() -> None:
    assert sum(one(played("last_banned_node", seed), "SELECT COUNT(*) FROM ban") for seed in range(4)) > 0


def test_a_job_that_kills_its_hosts_ends_and_the_others_succeed() -> None:
    simulation = played("poison_job")
    assert (jobs(simulation, "failed"), jobs(simulation, "succeeded")) == (1, 40)
    assert "kill its hosts" in one(simulation, "SELECT because FROM job WHERE state = 'failed'")


def test_jobs_that_need_more_memory_than_they_say_find_larger_nodes_and_nobody_is_blamed() -> None:
    simulation = played("oom_batch")
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM machine WHERE quarantines > 0") == 0
    finished_on = simulation.store.look(
        "SELECT DISTINCT attempt.gpu FROM attempt JOIN job ON job.id = attempt.job "
        "WHERE job.gpu_memory_gb > 24 AND attempt.state = 'succeeded'"
    )
    assert finished_on == [("A100",)]


def test_a_throttling_card_is_told_from_a_slow_one_and_not_judged_at_once() -> None:
    simulation = played("throttling_card")
    assert all_succeed(simulation)
    moved = simulation.store.look("SELECT kind, because FROM attempt WHERE state = 'released' ORDER BY ended_ms")
    assert {kind for kind, _ in moved} == {"throttled"} and len(moved) >= 2
    assert all("heat held its clocks down" in because and "91 °C" in because for _, because in moved)
    assert one(simulation, "SELECT COUNT(DISTINCT machine) FROM attempt WHERE state = 'released'") == 1
    assert one(simulation, "SELECT SUM(quarters) FROM strike") == len(moved)


def test_jobs_that_spilled_find_larger_cards_and_no_node_is_blamed() -> None:
    simulation = played("spilled_memory")
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM attempt WHERE kind = 'spilled'") >= 5
    assert one(simulation, "SELECT COUNT(*) FROM attempt WHERE kind NOT IN ('', 'spilled')") == 0
    assert one(simulation, "SELECT COUNT(*) FROM strike") == one(simulation, "SELECT COUNT(*) FROM ban") == 0
    large = (
        "SELECT DISTINCT attempt.gpu FROM attempt JOIN job ON job.id = attempt.job "
        "WHERE job.gpu_memory_gb >= 18 AND attempt.state = 'succeeded'"
    )
    assert simulation.store.look(large) == [("RTX 4090",)]


def test_the_word_of_one_machine_that_the_input_is_bad_ends_no_job() -> None:
    simulation = played("lying_65")
    assert all_succeed(simulation)
    liars = simulation.store.look("SELECT machine FROM attempt WHERE kind = 'bad data' GROUP BY machine")
    assert len(liars) == 1
    assert simulation.store.look("SELECT id FROM machine WHERE quarantines > 0") == liars


@pytest.mark.parametrize("name", ["api_down_10_min", "store_down_10_min"])
def test_an_outage_of_ten_minutes_ends_no_attempt_and_costs_no_step(name: str) -> None:
    simulation = played(name)
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM attempt") == 20
    assert paid(simulation, "redone steps", "failed") == 0


def test_one_projects_crashing_jobs_lock_nobody_out_and_the_other_projects_jobs_succeed() -> None:
    simulation = played("one_bad_project")
    ended = dict(simulation.store.look("SELECT project || ' ' || state, COUNT(*) FROM job GROUP BY project, state"))
    assert ended == {"bad failed": 12, "good succeeded": 12}
    assert one(simulation, "SELECT MAX(quarantines) FROM machine") == 0
    strikes = "SELECT COUNT(DISTINCT workload), SUM(quarters) FROM strike"
    assert simulation.store.look(strikes) == [(2, 2 * 36)]
    work_h = 12 * 600 / 3600
    took_ms = one(simulation, "SELECT MAX(ended_ms) - MIN(submitted_ms) FROM job WHERE project = 'good'")
    assert took_ms / 3_600_000 < 3 * work_h  # the rests after failures are the machine's, whoever is to blame


def test_while_the_provider_is_away_jobs_run_on_or_say_that_they_wait_for_it_and_all_succeed() -> None:
    simulation = Simulation(load_scenario("provider_down_10_min"), 0)
    simulation.play(until_ms=START_MS + 1_200_000)
    now_ms = simulation.world.now_ms
    told = page_of_jobs(simulation.service.deployment, "default", JobFilters(), now_ms, limit=9).jobs
    waiting = [job.because for job in told if job.state == "queued"]
    assert len(waiting) == 2 and all("needs 40 GB of GPU memory" in because for because in waiting)
    assert all(
        because.endswith("; the provider of default did not answer: the provider's API does not answer")
        for because in waiting
    )
    assert simulation.faults.struck["provider away"] > 0
    simulation.run()
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM attempt") == 8
    assert one(simulation, "SELECT MIN(started_ms) FROM attempt WHERE gpu = 'A100'") < START_MS + 1_700_000


@pytest.mark.tenths
def test_four_fifths_of_the_fleet_taken_back_at_once_cost_a_few_steps_each_and_no_job() -> None:
    simulation = played("reclaim_80_percent")
    assert all_succeed(simulation)
    lost = one(simulation, "SELECT COUNT(*) FROM attempt WHERE state = 'interrupted'")
    assert lost > 20
    assert paid(simulation, "redone steps") < 0.02 * paid(simulation, "training")


def waits_s(simulation: Simulation, project: str) -> float:
    return one(
        simulation,
        "SELECT AVG(attempt.started_ms - job.submitted_ms) / 1000.0 FROM job JOIN attempt ON attempt.job = job.id "
        f"WHERE job.project = '{project}' AND attempt.fencing = 1",
    )


@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_a_flood_of_tiny_jobs_makes_the_others_wait_less_than_a_tenth_longer() -> None:
    flooded = played("flood")
    scenario = flooded.scenario
    calm = Simulation(replace(scenario, jobs=(*scenario.jobs[:2], replace(scenario.jobs[2], count=60, steps=600))), 0)
    calm.run()
    for project in ("a", "b"):
        print(project, waits_s(flooded, project), waits_s(calm, project))
        assert waits_s(flooded, project) < 1.1 * waits_s(calm, project)


@pytest.mark.tenths
def test_idle_nodes_cost_less_than_half_of_what_they_cost_by_the_rule_of_five_minutes() -> None:
    ours, theirs = played("bursts"), played("bursts", compared=True)
    assert all_succeed(ours) and all_succeed(theirs)
    print(paid(ours, "idle"), paid(theirs, "idle"))
    assert paid(ours, "idle") < 0.5 * paid(theirs, "idle")


def test_storage_and_egress_are_billed_as_the_store_counts_them() -> None:
    scenario = load_scenario("bursts")
    rates = {"storage_usd_per_gb_month": 20.0, "egress_usd_per_gb": 0.1}
    simulation = Simulation(replace(scenario, policy=scenario.policy | rates), 0)
    simulation.run()
    billed, lay = simulation.audit.against_the_store(simulation.policy)
    assert billed == pytest.approx(lay, rel=0.01)
    sent = simulation.objects.bytes_sent / 1e9 * rates["egress_usd_per_gb"]
    assert paid(simulation, "egress") == pytest.approx(sent, rel=1e-3)


def test_what_nodes_ask_for_while_the_store_is_away_is_not_billed_again_and_again() -> None:
    scenario = load_scenario("store_down_10_min")
    jobs = tuple(replace(batch, base_gb=0.5) for batch in scenario.jobs)
    faults = tuple(replace(fault, at_s=60) for fault in scenario.faults)
    policy = scenario.policy | {"egress_usd_per_gb": 1.0}
    simulation = Simulation(replace(scenario, jobs=jobs, faults=faults, policy=policy), 0)
    simulation.run()
    sent = simulation.objects.bytes_sent / 1e9
    assert all_succeed(simulation) and sent > 0.5 * simulation.cloud.billed()
    assert sent <= paid(simulation, "egress") * (1 + 1e-3) <= 2.1 * sent


def test_eight_jobs_train_at_once_on_the_eight_slots_of_one_node() -> None:
    scenario = load_scenario("small")
    machines = replace(scenario.machines[0], count=1, slots=8, interruptions_per_hour=0, spread=0)
    jobs = replace(scenario.jobs[0], count=8)
    whole = replace(scenario, machines=(machines,), jobs=(jobs,), fleet=replace(scenario.fleet, nodes_max=1))
    simulation = Simulation(whole, 0)
    simulation.run()
    simulation.audit.at_the_end(simulation.cloud.invoice(), 0)
    assert all_succeed(simulation)
    assert one(simulation, "SELECT COUNT(*) FROM node") == 1
    assert one(simulation, "SELECT MAX(started_ms) FROM attempt") < one(simulation, "SELECT MIN(ended_ms) FROM attempt")
    price = machines.price_usd_per_hour * 1e6 / 8
    for training in simulation.store.look(
        "SELECT SUM(to_ms - from_ms), SUM(micro_usd) FROM ledger WHERE cause = 'training' GROUP BY job"
    ):
        assert training[1] == pytest.approx(training[0] / 3.6e6 * price, abs=20)
