"""Which nodes on bad machines are moved to other machines instead of being given back and replaced."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.fleet.autoscale import LEAVES_MS_MAX, GiveUp, PlaceNode, PoolLimits, SeenInstance, reconcile
from gangline.core.fleet.reallocation import Demand, is_wanted, may_reallocate
from tests.unit.examples import POLICY
from tests.unit.fleet.test_autoscale import BUSY, IDLE, LIMITS, NOW_MS, STARTING

BAD = replace(IDLE, state="quarantined", place="place-1")
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


@pytest.mark.parametrize(
    ("nodes", "takable", "stuck", "wanted"),
    [
        ([BAD], 1, 0, True),
        ([BAD], 0, 0, False),
        ([BAD, BUSY], 1, 0, True),
        ([BAD, IDLE], 1, 0, False),
        ([BAD, IDLE], 1, 1, True),
        ([BAD, IDLE], 2, 0, True),
        ([BAD, STARTING], 1, 0, False),
        ([BAD, STARTING], 2, 0, True),
    ],
)
def test_a_node_is_moved_where_another_would_be_rented(nodes: Any, takable: int, stuck: int, wanted: bool) -> None:
    assert is_wanted(LIMITS, nodes, Demand(takable=takable, stuck=stuck)) == wanted


def test_a_pool_keeps_its_least_and_has_no_more_than_its_most() -> None:
    no_work, work = Demand(takable=0, stuck=0), Demand(takable=9, stuck=0)
    assert is_wanted(PoolLimits(name="pool", nodes_min=1, nodes_max=1), [BAD], no_work)
    assert not is_wanted(PoolLimits(name="pool", nodes_min=1, nodes_max=2), [BAD, BUSY], no_work)
    assert not is_wanted(PoolLimits(name="pool", nodes_min=0, nodes_max=1), [BAD, BUSY], work)


def test_a_node_that_leaves_a_machine_is_placed_on_the_next_and_given_up_if_none_comes() -> None:
    old = SeenInstance(id="i-starting", name="starting", place="place-1")
    assert reconcile([LEAVING], [old], NOW_MS, POLICY) == []
    assert reconcile([LEAVING], [replace(old, place="")], NOW_MS, POLICY) == []
    assert reconcile([LEAVING], [replace(old, place="place-2")], NOW_MS, POLICY) == [PlaceNode("starting", "place-2")]
    late_ms = NOW_MS + LEAVES_MS_MAX + 1
    (gives_up,) = reconcile([LEAVING], [old], late_ms, POLICY)
    assert gives_up == GiveUp("starting", "its provider did not move it to another machine")
