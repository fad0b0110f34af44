"""A seed and a version reproduce a run: in another process, under another hash seed, to the last event."""

import json
import os
import subprocess
import sys

import pytest

from gangline.core.fleet.nodes import NodeView
from gangline.service.fleet.operating import nodes
from gangline.sim.scenario import load_scenario
from gangline.sim.simulation import Simulation
from gangline.sim.world import START_MS, World


def run_small(hash_seed: str) -> dict:
    command = [sys.executable, "-m", "gangline.cli.main", "sim", "run", "small", "--seed", "5", "-o", "json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def test_two_processes_with_other_hash_seeds_run_the_same_trace() -> None:
    first, second = run_small("1"), run_small("2")
    assert len(first["trace"]) == 32
    assert first == second


def nodes_of_small(minutes: int) -> list[NodeView]:
    simulation = Simulation(load_scenario("small"), 5)
    simulation.play(until_ms=START_MS + minutes * 60_000)
    return nodes(simulation.service.deployment, None, simulation.world.now_ms)


def test_the_nodes_of_a_simulation_send_gauges_that_a_seed_repeats() -> None:
    found = nodes_of_small(10)
    measured = [node.gauges for node in found if node.gauges]
    assert len(measured) > 4 and [node.gauges for node in nodes_of_small(10)] == [node.gauges for node in found]
    assert all(gauges.at_ms > START_MS + 9 * 60_000 and len(gauges.gpus) == 1 for gauges in measured)


def test_another_seed_runs_another_trace() -> None:
    traces = {Simulation(load_scenario("small"), seed).run().trace for seed in (5, 6, 5)}
    assert len(traces) == 2


def test_what_is_due_at_one_time_happens_in_the_order_of_its_making() -> None:
    world, happened = World(0), []
    world.after(2, "late", lambda: happened.append("late"))
    for name in ("a", "b", "c"):
        world.after(1, name, lambda name=name: happened.append(name))
    while world.step(until_ms=START_MS + 5000):
        pass
    assert (happened, world.now_s, world.events) == (["a", "b", "c", "late"], 2.0, 4)


def test_time_stands_still_before_what_is_not_due() -> None:
    world = World(0)
    world.after(10, "later", lambda: pytest.fail("it was not due"))
    assert not world.step(until_ms=START_MS + 9999)
    assert world.now_ms == START_MS


def test_an_event_for_the_past_happens_now() -> None:
    world, seen = World(0), []
    world.after(3, "first", lambda: world.at(START_MS, "past", lambda: seen.append(world.now_s)))
    while world.step(until_ms=START_MS + 5000):
        pass
    assert seen == [3.0]


def test_chance_is_a_function_of_seed_and_purpose_alone() -> None:
    def draw(seed: int, purpose: str) -> float:
        return World(seed).rng(purpose).random()

    assert draw(1, "x") == draw(1, "x")
    assert len({draw(1, "x"), draw(2, "x"), draw(1, "y")}) == 3
