"""One true sentence why a job waits."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.jobs.why import why_queued
from gangline.core.money.budget import reservation
from tests.unit.examples import CANDIDATE, NODE, POLICY, PURSE

SAID = "node-x was told to stop and handed it back"
OTHER = replace(NODE, id="n-2", machine="m-2", name="node-b")


def why(job: Any = CANDIDATE, *, purse: Any = PURSE, nodes: Any = (NODE,), banned: set[str] = frozenset()) -> str:  # type: ignore[assignment]
    return why_queued(job, SAID, purse, nodes, frozenset(banned), 0, POLICY)


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
    assert why(nodes=[]) == "waits for a node: none is here"


@pytest.mark.parametrize(
    ("need", "sentence"),
    [
        ({"gpu": "H200"}, "no node here can take it: needs a H200 and node-a has A100"),
        ({"slots": 2}, "no node here can take it: needs 2 slots and node-a has 1 free"),
        ({"numerics": "x"}, "no node here can take it: must go on with the same numerics, and node-a has others"),
    ],
)
def test_where_no_node_here_has_what_it_needs_the_first_thing_that_is_missing_is_named(
    need: dict[str, Any], sentence: str
) -> None:
    assert why(replace(CANDIDATE, **need)) == sentence


def test_bans_count_and_one_node_without_is_enough() -> None:
    assert why(banned={"m"}) == "no node here can take it: node-a failed it before"
    assert why(banned={"m"}, nodes=[NODE, OTHER]) == SAID


def test_of_many_nodes_a_few_are_named() -> None:
    many = [replace(NODE, id=f"n-{number}", name=f"node-{number}") for number in range(5)]
    sentence = why(banned={"m"}, nodes=many)
    assert sentence.endswith("node-2 failed it before; and 2 more") and "node-3" not in sentence
