"""Which nodes on bad machines are moved to other machines instead of being given back and replaced."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.fleet.autoscale import (
    LEAVES_MS_MAX,
    Drain,
    GiveUp,
    PlaceNode,
    PoolLimits,
    Reallocate,
    Rented,
    SeenInstance,
    StartNode,
    StopInstance,
    may_reallocate,
    reconcile,
)
from gangline.core.fleet.choice import OfferFacts
from gangline.core.fleet.plan import Planned, PoolNow, plan
from tests.unit.examples import POLICY
from tests.unit.fleet.test_autoscale import BUSY, IDLE, NEED, NOW_MS, OFFER, STARTING

BAD = replace(IDLE, state="quarantined", place="place-1", offer="offer")
SEEN = SeenInstance(id="i-idle", name="idle", place="place-1")
LEAVING = replace(STARTING, instance="i-starting", leaves="place-1")


def test_a_node_without_work_whose_machine_is_in_quarantine_may_be_moved() -> None:
    assert may_reallocate(BAD, SEEN)


@pytest.mark.parametrize(
    "changes",
    [{"state": "draining"}, {"state": "ready"}, {"idle_since_ms": None}, {"unfit": True}, {"place": "place-0"}],
)
def test_no_other_node_is(changes: dict[str, Any]) -> None:
    assert not may_reallocate(replace(BAD, **changes), SEEN)


@pytest.mark.parametrize("changes", [{"ended": "stopped"}, {"place": ""}, {"id": "another"}])
def test_nor_one_that_its_provider_does_not_show_there(changes: dict[str, Any]) -> None:
    assert not may_reallocate(BAD, replace(SEEN, **changes))
    assert not may_reallocate(BAD, None)
    assert not may_reallocate(replace(BAD, place=""), replace(SEEN, place=""))


def moved(
    *beside: Rented, jobs: int = 0, stuck: bool = False, offers: Sequence[OfferFacts] = (OFFER,), **limits: int
) -> list[Planned]:
    """What is planned for a pool with a node on a bad machine, apart from what its idle nodes do."""
    pool = PoolNow(
        limits=PoolLimits(name="pool", nodes_min=limits.get("least", 0), nodes_max=limits.get("most", 10)),
        nodes=[BAD, *beside],
        offers=offers,
        starts_max=1000,
        movable=[BAD],
    )
    needs = [replace(NEED, jobs=jobs, stuck=stuck)] if jobs else []
    found = plan([pool], [], needs, [], NOW_MS, POLICY)["pool"]
    return [action for action in found if not isinstance(action, Drain)]


MOVES, STOPS = Reallocate("idle"), StopInstance("i-idle", "idle is quarantined")
OTHER = replace(OFFER, offer="other", price_micro_usd_per_hour=200_000)
FRESH = replace(IDLE, idle_since_ms=NOW_MS, id="fresh", rental="fresh", instance="i-fresh")


@pytest.mark.parametrize(
    ("beside", "jobs", "stuck", "action"),
    [
        ([], 1, False, MOVES),
        ([], 0, False, STOPS),
        ([BUSY], 1, False, MOVES),
        ([FRESH], 1, False, STOPS),
        ([FRESH], 1, True, MOVES),
        ([FRESH], 2, False, MOVES),
        ([STARTING], 1, False, STOPS),
        ([STARTING], 2, False, MOVES),
    ],
)
def test_a_node_is_moved_where_another_would_be_rented(
    beside: list[Rented], jobs: int, stuck: bool, action: Planned
) -> None:
    assert moved(*beside, jobs=jobs, stuck=stuck) == [action]


def test_only_the_rest_is_rented() -> None:
    assert moved(jobs=3) == [MOVES, *[StartNode("offer", "3 jobs waited; no other node was starting")] * 2]


def test_a_pool_keeps_its_least_and_has_no_more_than_its_most() -> None:
    assert moved(least=1, most=1) == [MOVES]
    assert moved(BUSY, least=1, most=2) == [STOPS]
    assert moved(jobs=9, most=1) == [MOVES]
    assert moved(BUSY, jobs=9, most=1) == [STOPS]


def test_a_node_is_not_moved_where_another_offer_is_cheaper() -> None:
    dear = replace(OFFER, price_micro_usd_per_hour=300_000)
    assert moved(jobs=1, offers=[dear, OTHER]) == [
        StartNode("other", "1 job waited; no other node was starting"),
        STOPS,
    ]
    assert moved(jobs=1, offers=[OFFER, OTHER]) == [MOVES]


def test_it_is_moved_even_so_where_the_pool_has_room_for_no_other() -> None:
    dear = replace(OFFER, price_micro_usd_per_hour=300_000)
    assert moved(jobs=1, offers=[dear, OTHER], most=1) == [MOVES]


def test_a_node_whose_offer_has_nothing_left_is_stopped() -> None:
    assert moved(jobs=1, offers=[replace(OFFER, refused=True)]) == [STOPS]
    assert moved(jobs=1, offers=[OTHER], most=1) == [STOPS]


def test_a_node_that_leaves_a_machine_is_placed_on_the_next_and_given_up_if_none_comes() -> None:
    old = SeenInstance(id="i-starting", name="starting", place="place-1")
    assert reconcile([LEAVING], [old], NOW_MS, POLICY) == []
    assert reconcile([LEAVING], [replace(old, place="")], NOW_MS, POLICY) == []
    assert reconcile([LEAVING], [replace(old, place="place-2")], NOW_MS, POLICY) == [PlaceNode("starting", "place-2")]
    late_ms = NOW_MS + LEAVES_MS_MAX + 1
    (gives_up,) = reconcile([LEAVING], [old], late_ms, POLICY)
    assert gives_up == GiveUp("starting", "its provider did not move it to another machine")
