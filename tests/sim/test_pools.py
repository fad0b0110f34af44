"""Several pools in one scenario: each a provider of its own, with its machines, prices, priorities and moves."""

from functools import cache
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.sim.scenario import override_scenario, parse_scenario
from gangline.sim.simulation import Simulation

TWO = """
title = "two"
[[pools]]
name = "near"
nodes_max = 2
start_s = 30
[[pools]]
name = "far"
nodes_max = 3
start_s = 60
[[machines]]
pool = "near"
count = 4
seconds_per_step = 1.0
price_usd_per_hour = 0.4
interruptions_per_hour = 2
[[machines]]
pool = "far"
count = 6
gpu = "RTX 3090"
seconds_per_step = 1.2
price_usd_per_hour = 0.3
[[jobs]]
count = 12
steps = 300
"""
PRIORITIES = """
title = "priorities"
[fleet]
nodes_max = 4
offers = ["*batch*"]
[[machines]]
count = 6
[[machines.priorities]]
name = "high"
price_usd_per_hour = 0.3
interruptions_per_hour = 0
[[machines.priorities]]
name = "batch"
price_usd_per_hour = 0.18
interruptions_per_hour = 3
[[jobs]]
count = 8
steps = 600
"""
MOVES = """
title = "moves"
[fleet]
nodes_max = 4
start_s = 60
moves = true
[[machines]]
count = 8
seconds_per_step = 1.0
interruptions_per_hour = 6
[[jobs]]
count = 12
steps = 600
"""


@cache
def played(text: str, seed: int = 0) -> Simulation:
    scenario = parse_scenario(text, "x.toml")
    simulation = Simulation(scenario, seed)
    simulation.run()
    assert simulation.is_over()
    simulation.audit.at_the_end(simulation.cloud.invoice(), scenario.nodes_min)
    return simulation


def column(simulation: Simulation, sql: str) -> list[Any]:
    return [row[0] for row in simulation.store.look(sql)]


def succeeded(simulation: Simulation) -> int:
    return column(simulation, "SELECT COUNT(*) FROM job WHERE state = 'succeeded'")[0]


def test_each_pool_rents_from_its_own_provider() -> None:
    simulation = played(TWO)
    assert succeeded(simulation) == 12
    rented = simulation.store.look("SELECT DISTINCT pool, gpu, price_micro_usd_per_hour FROM node ORDER BY pool")
    assert rented == [("far", "RTX 3090", 300_000), ("near", "RTX 4090", 400_000)]


def test_what_two_providers_give_one_id_is_billed_twice() -> None:
    simulation = played(TWO)
    ours, theirs = (set(provider.instances) for provider in simulation.cloud.providers)
    assert ours & theirs
    assert column(simulation, "SELECT COUNT(*) FROM instance") == [len(ours) + len(theirs)]


def test_one_more_pool_changes_no_machine_of_the_others() -> None:
    first, alone = played(TWO).cloud.machines[:4], TWO.replace('pool = "far"', 'pool = "near"')
    alone = "[[pools]]".join(alone.split("[[pools]]")[:2]) + alone[alone.index("[[machines]]") :]
    assert [machine.seconds_per_step for machine in played(alone).cloud.machines[:4]] == [
        machine.seconds_per_step for machine in first
    ]


def test_a_machine_costs_and_is_lost_as_the_priority_says_at_which_it_is_rented() -> None:
    simulation = played(PRIORITIES)
    assert succeeded(simulation) == 8
    assert set(column(simulation, "SELECT offer FROM node")) == {"RTX 4090 24 GB at $0.18/h (batch)"}
    assert set(column(simulation, "SELECT price_micro_usd_per_hour FROM node")) == {180_000}
    assert simulation.faults.struck["node killed"] > 0


def test_the_priorities_of_a_machine_share_it() -> None:
    both = played(PRIORITIES.replace('offers = ["*batch*"]', ""))
    [provider] = both.cloud.providers
    assert [offer.id for offer in provider.offers()] == [
        "RTX 4090 24 GB at $0.30/h (high)",
        "RTX 4090 24 GB at $0.18/h (batch)",
    ]
    assert sum(machine.priorities != () for machine in both.cloud.machines) == 6
    high = played(PRIORITIES.replace("*batch*", "*high*"))
    assert high.faults.struck["node killed"] == 0
    assert set(column(high, "SELECT price_micro_usd_per_hour FROM node")) == {300_000}


@pytest.mark.parametrize("seed", range(3))
def test_a_provider_that_moves_keeps_the_rental_and_its_bill(seed: int) -> None:
    simulation = played(MOVES, seed)
    assert succeeded(simulation) == 12
    moved = column(simulation, "SELECT COUNT(*) FROM node WHERE rental <> id AND joined_ms IS NOT NULL")[0]
    assert moved > 0 and simulation.faults.struck["two at once"] > 0
    assert moved <= simulation.faults.struck["instance moved"]
    assert set(column(simulation, "SELECT DISTINCT state FROM attempt")) <= {"succeeded", "interrupted"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('name = "far"', 'name = "near"'), "each pool has a name of its own"),
        (('pool = "far"', 'pool = "further"'), "each pool has machines, and each machine a pool"),
        (('name = "far"', 'name = "Far"'), "x.toml: pools[1] contradicts this rule: a pool's name has"),
        (('title = "two"', 'title = "two"\nfleet = {nodes_max = 3}'), "a scenario has [fleet] or [[pools]]"),
        (("start_s = 60", "strat_s = 60"), "x.toml: pools[1] has no field strat_s"),
    ],
)
def test_pools_that_cannot_be(change: tuple[str, str], says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_scenario(TWO.replace(*change), "x.toml")
    assert says in caught.value.message, caught.value.message


def test_a_setting_of_the_fleet_is_set_in_each_pool() -> None:
    changed = override_scenario(parse_scenario(TWO, "x.toml"), {"fleet.start_s": "90"})
    assert [pool.start_s for pool in changed.all_pools] == [90, 90]
    assert [pool.nodes_max for pool in changed.all_pools] == [2, 3]
