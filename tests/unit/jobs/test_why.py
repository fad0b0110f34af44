"""One true sentence why a job waits."""

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gangline.core.jobs.supply import PoolSeen, Rentable, Supply
from gangline.core.jobs.why import UNFIT_MAX, fit_key, fit_of, nodes_here, why_queued
from gangline.core.money.budget import reservation
from tests.unit.examples import CANDIDATE, NODE, POLICY, PURSE

SAID = "node-x was asked to stop and handed the job back"
OTHER = replace(NODE, id="n-2", machine="m-2", name="node-b")


BY_HAND = Supply(names=frozenset({"default"}))
START = "; start a worker: `gangline worker`"
OFFER = Rentable(gpu="T4", gpu_memory_gb=16, slots=1, trust=0, price_micro_usd_per_hour=400_000)
LARGE = replace(OFFER, gpu="A10", gpu_memory_gb=24)


def why(
    job: Any = CANDIDATE,
    *,
    purse: Any = PURSE,
    nodes: Any = (NODE,),
    supply: Supply = BY_HAND,
    banned: set[str] = frozenset(),  # type: ignore[assignment]
) -> str:
    return why_queued(
        job, SAID, purse, fit_of(job, purse, nodes_here(nodes, 0), frozenset(banned), 0), supply, 0, POLICY
    )


def renting(*offers: Rentable, rented: int = 0, **facts: Any) -> Supply:
    pool = PoolSeen(name="cloud", rented=rented, nodes_max=4, offers=offers, **facts)
    return Supply(pools=(pool,), names=frozenset({"default", "cloud"}))


def unserved(supply: Supply, *, purse: Any = PURSE, **need: Any) -> str:
    """Return what follows where no node is here."""
    return why(replace(CANDIDATE, **need), purse=purse, nodes=(), supply=supply).partition("; ")[2]


def test_a_job_in_its_turn_says_what_was_last_said_of_it() -> None:
    assert why() == SAID
    assert why(nodes=[replace(NODE, slots_free=0)]) == SAID  # others are using it: its turn comes


def test_a_job_that_waits_for_its_next_try_says_for_how_long() -> None:
    assert why(replace(CANDIDATE, ready_ms=20_000)) == f"waits 20 s before its next try: {SAID}"


def test_a_budget_that_does_not_allow_the_least_that_a_try_reserves_is_the_reason() -> None:
    least = reservation(NODE.price_of(1), 0, POLICY)
    assert why(purse=replace(PURSE, budget=least)) == SAID
    assert why(purse=replace(PURSE, budget=least - 1)).startswith("the budget of p")
    dear = replace(OTHER, price_micro_usd_per_hour=10 * NODE.price_micro_usd_per_hour)
    assert why(purse=replace(PURSE, budget=least), nodes=[dear, NODE]) == SAID
    assert why(purse=replace(PURSE, budget=5, spent=6), nodes=[]).startswith("the budget of p")


def test_where_no_node_is_here_that_is_the_reason() -> None:
    assert why(nodes=[]) == "waits for a node: there is none" + START


def test_where_no_node_is_here_what_the_job_needs_and_what_would_help_are_named() -> None:
    many = replace(CANDIDATE, gpu_memory_gb=80, gpu="H200", trust=2, numerics="x", slots=2)
    asked = "80 GB of GPU memory, an H200, 2 GPUs, trust 2, the numerics of its checkpoints"
    assert why(many, nodes=[]) == (
        f"waits for a node: there is none, and it needs {asked}; start a worker that has {asked}: `gangline worker`"
    )


def test_a_pool_that_does_not_exist_is_said_and_those_that_do() -> None:
    assert unserved(renting(OFFER), pool="clowd") == "its pool clowd does not exist: the pools are cloud, default"
    assert unserved(renting(OFFER), pool="default").startswith("start a worker that has the pool default")


@pytest.mark.parametrize(
    ("need", "sentence"),
    [
        ({"gpu_memory_gb": 80}, "no pool offers a GPU with 80 GB (the largest offer has 24 GB)"),
        ({"gpu": "H200"}, "no pool offers an H200 (the offers have A10, T4)"),
        ({"slots": 8}, "no pool offers a node with 8 GPUs (the largest offer has 1)"),
        ({"trust": 2}, "no pool offers a node of trust 2 (the highest trust on offer is 0)"),
        ({"gpu": "T4", "gpu_memory_gb": 20}, "no single offer of any pool meets all of its needs"),
        ({}, "a node of cloud will be started for it"),
    ],
)
def test_what_no_offer_has_is_named_beside_the_best_that_one_has(need: dict[str, Any], sentence: str) -> None:
    assert unserved(renting(OFFER, LARGE), **need) == sentence


def test_a_pool_that_is_full_empty_away_or_exhausted_is_named() -> None:
    assert unserved(renting(OFFER, rented=4)) == "no pool may grow: cloud has 4 of at most 4 nodes"
    assert unserved(renting()) == "no pool offers a node now"
    assert unserved(renting(away="did not answer")) == "the provider of cloud did not answer"
    spent = renting(replace(OFFER, exhausted=True))
    assert unserved(spent) == "the provider of cloud has no fitting node left now; the server keeps asking"
    both = Supply(pools=(*renting(OFFER).pools, PoolSeen(name="far", rented=0, nodes_max=1, away="did not answer")))
    assert unserved(both, trust=1).endswith("; the provider of far did not answer")


@pytest.mark.parametrize("need", [{}, {"gpu_memory_gb": 80}, {"gpu": "H200"}, {"slots": 8}, {"trust": 2}])
def test_a_node_is_started_which_is_true_of_one_on_this_box_as_well_as_of_a_rented_one(need: dict[str, Any]) -> None:
    for supply in (renting(OFFER, LARGE), renting(OFFER, rented=4), renting(replace(OFFER, exhausted=True))):
        assert not re.search(r"\brent", unserved(supply, **need))


def test_a_budget_that_pays_for_no_offer_that_fits_is_the_reason() -> None:
    least = reservation(OFFER.price_micro_usd_per_hour, 0, POLICY)
    poor = replace(PURSE, budget=least - 1)
    assert unserved(renting(OFFER), purse=poor).startswith("the budget of p")
    assert unserved(renting(OFFER), purse=replace(PURSE, budget=least)) == "a node of cloud will be started for it"


QUARANTINED = replace(
    NODE, state="quarantined", because="quarantined: 2 strikes: the trainer crashed", quarantined_until_ms=62_400_000
)


def test_the_only_node_is_named_with_what_keeps_it_from_working_and_until_when() -> None:
    assert why(nodes=[QUARANTINED]) == (
        "the only node, node-a, is quarantined until 17:20 UTC: 2 strikes: the trainer crashed"
    )
    resting = replace(NODE, rest_until_ms=15_000)
    assert why(nodes=[resting]) == "the only node, node-a, pauses after failures until 00:00:15 UTC"
    draining = replace(NODE, state="draining", because="no work for it")
    assert why(nodes=[draining]) == "the only node, node-a, is draining: no work for it"


def test_of_several_nodes_that_get_no_work_a_few_are_named() -> None:
    both = [QUARANTINED, replace(OTHER, rest_until_ms=15_000)]
    assert why(nodes=both) == (
        "all 2 nodes that could take it get no work now: "
        "node-a is quarantined until 17:20 UTC: 2 strikes: the trainer crashed; "
        "node-b pauses after failures until 00:00:15 UTC"
    )
    assert why(replace(CANDIDATE, gpu_memory_gb=40), nodes=[QUARANTINED, replace(OTHER, gpu_memory_gb=8)]).startswith(
        "the only node that could take it, node-a, is quarantined"
    )
    assert why(nodes=[QUARANTINED, OTHER]) == SAID


def test_a_node_that_is_starting_is_what_a_job_waits_for_whatever_it_will_compute_with() -> None:
    starting = replace(OTHER, state="starting", machine="", numerics="")
    assert why(replace(CANDIDATE, numerics="bits"), nodes=[QUARANTINED, starting]) == (
        "waits for a node: node-b is starting"
    )


def test_what_a_node_that_is_starting_isolates_is_not_known_yet() -> None:
    starting = replace(OTHER, state="starting", machine="", kinds=",lora,")
    waits = "waits for a node: node-b is starting"
    assert why(replace(CANDIDATE, kind="command", wanted="command/sandbox"), nodes=[starting]) == waits


@pytest.mark.parametrize(
    ("need", "sentence"),
    [
        ({"gpu": "H200"}, "needs an H200 and node-a has A100"),
        ({"slots": 2}, "needs 2 slots and node-a has 1 free"),
        ({"numerics": "x"}, "must resume with the same numerics, and node-a has others"),
    ],
)
def test_where_no_node_here_has_what_it_needs_the_first_thing_that_is_missing_is_named(
    need: dict[str, Any], sentence: str
) -> None:
    assert why(replace(CANDIDATE, **need)).startswith(f"no node can take it: {sentence}; start a worker that has ")


def test_bans_count_and_one_node_without_is_enough() -> None:
    assert why(banned={"m"}) == "no node can take it: node-a failed it before" + START
    assert why(banned={"m"}, nodes=[NODE, OTHER]) == SAID


def test_of_many_nodes_a_few_are_named() -> None:
    many = [replace(NODE, id=f"n-{number}", name=f"node-{number}") for number in range(5)]
    sentence = why(banned={"m"}, nodes=many)
    assert sentence.endswith("node-2 failed it before; and 2 more" + START) and "node-3" not in sentence


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "scratch"},
        {"wanted": "lora/vm"},
        {"gpu": "another"},
        {"gpu_memory_gb": 1234.0},
        {"pool": "another"},
        {"trust": 9},
        {"numerics": "others"},
        {"slots": 9},
        {"banned": True},
        {"ready_ms": 1},
    ],
)
def test_what_may_change_how_nodes_fit_a_job_is_in_its_key(change: dict[str, Any]) -> None:
    other, none = replace(CANDIDATE, **change), frozenset[str]()
    assert fit_key(other, none, 0) != fit_key(CANDIDATE, none, 0)
    assert fit_key(CANDIDATE, frozenset({"m"}), 0) != fit_key(CANDIDATE, none, 0)


@pytest.mark.parametrize("change", [{"id": "j-9"}, {"download_bytes": 10**9}, {"base": "b"}, {"version": 5}])
def test_what_changes_nothing_of_it_is_not(change: dict[str, Any]) -> None:
    other, none = replace(CANDIDATE, **change), frozenset[str]()
    assert fit_key(other, none, 0) == fit_key(CANDIDATE, none, 0)
    here = nodes_here([NODE, OTHER], 0)
    assert fit_of(other, PURSE, here, none, 0) == fit_of(CANDIDATE, PURSE, here, none, 0)


FACTS: dict[str, list[Any]] = {
    "machine": ["m-1", "m-2", "m-3"],
    "pool": ["default", "cloud"],
    "state": ["ready", "starting", "on_trial", "draining", "quarantined"],
    "gpu": ["T4", "A10", ""],
    "gpu_memory_gb": [0, 16, 24],
    "trust": [0, 1],
    "numerics": ["a", "b"],
    "slots": [1, 2],
    "slots_free": [0, 1],
    "price_micro_usd_per_hour": [0, 100, 200],
    "kinds": [",lora,", ",lora,sample,", ""],
    "price_known": [0, 1],
    "rest_until_ms": [0, 5],
}
NEEDS: dict[str, list[Any]] = {
    "gpu": ["", "T4"],
    "gpu_memory_gb": [0, 20],
    "pool": ["", "cloud"],
    "trust": [0, 1],
    "numerics": ["", "b"],
    "slots": [1, 2],
}


def test_nodes_that_are_alike_fit_as_each_of_them_would_alone() -> None:
    chance = Random(3)

    def some(of: dict[str, list[Any]]) -> dict[str, Any]:
        return {name: chance.choice(values) for name, values in of.items()}

    nodes = [replace(NODE, **some(FACTS), id=f"n-{number}", name=f"node-{number}") for number in range(300)]
    here = nodes_here(nodes, 1)
    for _ in range(60):
        job, banned = replace(CANDIDATE, **some(NEEDS)), frozenset(chance.sample(FACTS["machine"], 1))
        purse = replace(PURSE, budget=chance.choice([None, 10**9]))
        fit = fit_of(job, purse, here, banned, 1)
        alone = [fit_of(job, purse, nodes_here([node], 1), banned, 1) for node in nodes]
        assert [*fit.fitting] == [node for each in alone for node in each.fitting]
        assert [*fit.locked] == [why for each in alone for why in each.locked]
        assert fit.prices == frozenset[int]().union(*(each.prices for each in alone))
        unfit = [of_one for each in alone for of_one in each.unfit]
        assert [*fit.unfit] == unfit[:UNFIT_MAX] and fit.nodes == len(fit.fitting) + len(unfit)
        assert all(because and node.name in because for node, because in fit.unfit)


def test_of_a_thousand_nodes_that_are_alike_one_is_compared_and_a_few_are_named() -> None:
    nodes = [replace(NODE, id=f"n-{number}", machine=f"m-{number}", name=f"node-{number}") for number in range(1000)]
    assert len(nodes_here(nodes, 0).examples) == 1
    told = why(replace(CANDIDATE, gpu_memory_gb=10**6), nodes=nodes)
    assert told.count("node-") == 3 and "; and 997 more; " in told
