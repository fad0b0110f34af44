"""Before a job is submitted it is known where it could run, by the rules of the jobs that wait."""

from dataclasses import replace
from typing import Any

from gangline.core.jobs.placement import NODES_MAX, MachinePace, PlacementView, place
from gangline.core.jobs.supply import PoolSeen, Rentable, Supply
from tests.unit.examples import CANDIDATE, NODE, POLICY, PURSE

BY_HAND = Supply(names=frozenset({"default"}))
OFFER = Rentable(gpu="T4", gpu_memory_gb=16, slots=2, trust=0, price_micro_usd_per_hour=400_000)


def placed(
    job: Any = CANDIDATE, *, nodes: Any = (NODE,), purse: Any = PURSE, supply: Supply = BY_HAND, **facts: Any
) -> PlacementView:
    known: dict[str, Any] = {"paces": (), "taken": {}, "ahead": 0, "copies": {}} | facts
    paces = known.pop("paces")
    return place(job, purse, nodes, supply, paces, 0, POLICY, **known)


def renting(*offers: Rentable, rented: int = 0) -> Supply:
    return Supply(
        pools=(PoolSeen(name="cloud", rented=rented, nodes_max=4, offers=offers),), names=frozenset({"cloud"})
    )


def test_the_nodes_that_fit_are_named_the_cheapest_first_and_the_others_with_their_reasons() -> None:
    dear = replace(NODE, id="n2", name="dear", price_micro_usd_per_hour=500_000)
    free = replace(NODE, id="n3", name="unpriced", price_known=0)
    small = replace(NODE, id="n4", name="small", gpu_memory_gb=8)
    found = placed(replace(CANDIDATE, gpu_memory_gb=24), nodes=(dear, free, small, NODE))
    assert [node.name for node in found.fitting] == ["node-a", "dear", "unpriced"]
    assert [node.price_usd_per_hour for node in found.fitting] == [0.324, 0.5, None]
    assert [(node.name, node.because) for node in found.unfit] == [
        ("small", "needs 24 GB of GPU memory and small has 8")
    ]
    assert (found.nodes, found.because) == (4, "")


def test_where_no_node_fits_the_reason_is_that_of_a_job_that_waits() -> None:
    found = placed(replace(CANDIDATE, gpu="RTX 4090"))
    assert found.fitting == ()
    assert found.because == (
        "no node can take it: needs an RTX 4090 and node-a has A100; "
        "start a worker that has an RTX 4090: `gangline worker`"
    )
    assert placed(nodes=()).because.startswith("waits for a node: there is none")


def test_a_node_whose_slots_others_hold_fits_and_is_busy() -> None:
    two = replace(NODE, slots=2, slots_free=2)
    assert [node.busy for node in placed(nodes=(two,), taken={"n": 1}).fitting] == [False]
    assert [node.busy for node in placed(nodes=(two,), taken={"n": 2}).fitting] == [True]
    assert [node.busy for node in placed(replace(CANDIDATE, slots=2), nodes=(two,), taken={"n": 1}).fitting] == [True]


def test_a_node_that_gets_no_work_now_fits_says_why_and_comes_last() -> None:
    resting = replace(NODE, id="n2", name="a-resting", rest_until_ms=60_000)
    starting = replace(NODE, id="n3", name="a-starting", state="starting", numerics="")
    found = placed(nodes=(starting, resting, NODE))
    assert [node.name for node in found.fitting][-1] == "a-starting"
    assert {node.name: node.waits.split(" ")[0] for node in found.fitting} == {
        "node-a": "",
        "a-resting": "pauses",
        "a-starting": "is",
    }


def test_what_a_pool_would_start_is_named_with_the_price_of_the_slots_that_are_asked_for() -> None:
    found = placed(nodes=(), supply=renting(OFFER, replace(OFFER, gpu="A10", exhausted=True)))
    assert [(node.pool, node.gpu, node.price_usd_per_hour) for node in found.rentable] == [("cloud", "T4", 0.2)]
    assert found.because == "waits for a node: there is none; a node of cloud will be started for it"
    assert placed(nodes=(), supply=renting(OFFER, rented=4)).rentable == ()
    assert placed(replace(CANDIDATE, gpu_memory_gb=24), nodes=(), supply=renting(OFFER)).rentable == ()


def test_what_the_budget_does_not_pay_is_not_rented() -> None:
    poor = replace(PURSE, budget=5, spent=2, reserved=1)
    found = placed(nodes=(), purse=poor, supply=renting(OFFER))
    assert found.rentable == () and "; the budget of p" in found.because
    assert found.budget_left_usd == 2e-6
    assert (
        placed(nodes=(), purse=replace(PURSE, budget=10**6), supply=renting(replace(OFFER, price_known=False))).rentable
        == ()
    )
    assert placed().budget_left_usd is None


def test_how_fast_such_work_was_is_told_of_each_class_the_fastest_first() -> None:
    paces = [
        MachinePace(gpu="T4", seconds_per_step=2.0),
        MachinePace(gpu="A100", seconds_per_step=0.5),
        MachinePace(gpu="T4", seconds_per_step=3.5),
        MachinePace(gpu="T4", seconds_per_step=1.0),
    ]
    found = placed(paces=paces).took
    assert [(took.gpu, took.seconds_per_step) for took in found] == [("A100", (0.5,)), ("T4", (1.0, 2.0, 3.5))]


def test_of_very_many_nodes_some_are_named() -> None:
    nodes = [replace(NODE, id=f"n{number}", name=f"node-{number}") for number in range(NODES_MAX + 5)]
    found = placed(nodes=nodes)
    assert (found.nodes, len(found.fitting)) == (NODES_MAX + 5, NODES_MAX)
