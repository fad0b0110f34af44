"""How many nodes a pool has, and what its provider's list says of them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.fleet.autoscale import (
    LISTS_WITHOUT_MAX,
    LOST_MS,
    MOVED,
    Adopt,
    Drain,
    GiveUp,
    MoveNode,
    PlaceNode,
    PoolLimits,
    Rented,
    SeenInstance,
    StartNode,
    StopInstance,
    reconcile,
    unseen_end_ms,
)
from gangline.core.fleet.choice import OfferFacts
from gangline.core.fleet.needs import NodeShape, QueuedWork
from gangline.core.fleet.plan import Planned, PoolNow, plan
from tests.unit.examples import POLICY

NOW_MS = 10**9
LONG_AGO_MS = 0
BUSY = Rented(
    id="busy",
    rental="busy",
    state="ready",
    since_ms=NOW_MS,
    idle_since_ms=None,
    heard_ms=NOW_MS,
    instance="i-busy",
    missing=0,
    shape=NodeShape(pool="pool", kinds=",lora,"),
    free=0,
)
IDLE = replace(BUSY, id="idle", rental="idle", idle_since_ms=LONG_AGO_MS, instance="i-idle", free=1)
STARTING = replace(
    BUSY, id="starting", rental="starting", state="starting", idle_since_ms=NOW_MS, instance=None, free=1
)
NEED = QueuedWork(project="p", wanted="lora", workload="w", jobs=1, since_ms=NOW_MS, steps=1000, save_s=60)
OFFER = OfferFacts(offer="offer", shape=BUSY.shape, price_micro_usd_per_hour=100_000)
LIMITS = PoolLimits(name="pool", nodes_min=0, nodes_max=10)


def waiting(takable: int, stuck: int = 0, since_ms: int = NOW_MS) -> list[QueuedWork]:
    needs = [
        replace(NEED, jobs=takable - stuck, since_ms=since_ms),
        replace(NEED, jobs=stuck, stuck=True, since_ms=since_ms),
    ]
    return [need for need in needs if need.jobs]


def planned(limits: PoolLimits, nodes: Sequence[Rented], needs: Sequence[QueuedWork] = ()) -> list[Planned]:
    pool = PoolNow(limits=limits, nodes=nodes, offers=[OFFER], starts_max=1000)
    return plan([pool], [], needs, [], NOW_MS, POLICY)["pool"]


def scaled(
    nodes: Sequence[Rented], takable: int = 0, stuck: int = 0, limits: PoolLimits = LIMITS, since_ms: int = NOW_MS
) -> list[Planned]:
    """The jobs that wait have just come, unless they have waited since."""
    return planned(limits, nodes, waiting(takable, stuck, since_ms))


def starts(actions: Sequence[object]) -> int:
    return sum(isinstance(action, StartNode) for action in actions)


def drained(actions: Sequence[object]) -> list[str]:
    return [action.node for action in actions if isinstance(action, Drain)]


def some(node: Rented, count: int) -> list[Rented]:
    return [replace(node, id=f"{node.id}-{number}", rental=f"{node.id}-{number}") for number in range(count)]


def test_without_work_nothing_is_rented_and_what_has_been_idle_for_long_goes() -> None:
    assert scaled([]) == []
    assert drained(scaled([BUSY, IDLE])) == ["idle"]
    just_now = replace(IDLE, idle_since_ms=NOW_MS - round(1000 * POLICY.idle_s) + 1)
    assert scaled([BUSY, just_now]) == []


def test_each_job_that_a_further_node_could_take_is_a_node_to_rent() -> None:
    actions = scaled([BUSY], takable=3)
    assert starts(actions) == 3
    assert isinstance(actions[0], StartNode) and actions[0].because == "3 jobs waited; no other node was starting"


def test_nodes_that_are_coming_or_idle_are_counted() -> None:
    assert scaled([*some(STARTING, 2), IDLE], takable=3) == []
    assert starts(scaled([*some(STARTING, 2), IDLE], takable=4)) == 1


def test_an_idle_node_that_a_waiting_job_may_not_have_is_no_help_to_it() -> None:
    actions = scaled([replace(IDLE, idle_since_ms=NOW_MS)], takable=1, stuck=1)
    assert starts(actions) == 1 and drained(actions) == []
    assert isinstance(actions[0], StartNode) and "could run on none of the existing nodes" in actions[0].because


def test_nodes_that_stay_idle_while_jobs_wait_make_room_for_others() -> None:
    full = PoolLimits(name="pool", nodes_min=0, nodes_max=2)
    actions = scaled(some(IDLE, 2), takable=2, stuck=2, limits=full, since_ms=LONG_AGO_MS)
    assert (starts(actions), drained(actions)) == (0, ["idle-0", "idle-1"])
    assert scaled(some(BUSY, 2), takable=2, stuck=2, limits=full, since_ms=LONG_AGO_MS) == []


def test_idle_nodes_of_the_minimum_are_left_to_a_job_that_has_just_come() -> None:
    two = PoolLimits(name="pool", nodes_min=2, nodes_max=9)
    assert scaled(some(IDLE, 2), takable=1, limits=two) == []
    actions = scaled(some(IDLE, 2), takable=1, limits=two, since_ms=LONG_AGO_MS)
    assert (starts(actions), drained(actions)) == (1, ["idle-0"])


def test_the_minimum_is_kept_and_idle_nodes_count_towards_it() -> None:
    two = PoolLimits(name="pool", nodes_min=2, nodes_max=10)
    assert starts(scaled([], limits=two)) == 2
    assert starts(scaled([STARTING], limits=two)) == 1
    assert scaled(some(IDLE, 2), limits=two) == scaled([IDLE, BUSY], limits=two) == []
    assert drained(scaled(some(IDLE, 3), limits=two)) == ["idle-0"]


def test_a_node_that_never_came_is_given_up_and_another_is_asked_for() -> None:
    late = replace(STARTING, id="late", rental="late", since_ms=NOW_MS - round(1000 * POLICY.starting_s) - 1)
    actions = scaled([late], takable=1)
    assert isinstance(actions[0], GiveUp) and actions[0].node == "late" and "60 min" in actions[0].because
    assert starts(actions) == 1


nodes = st.lists(
    st.builds(
        Rented,
        id=st.uuids().map(str),
        rental=st.uuids().map(str),
        state=st.sampled_from(["starting", "ready", "on_trial", "draining", "quarantined"]),
        since_ms=st.integers(NOW_MS - 2 * round(1000 * POLICY.starting_s), NOW_MS),
        idle_since_ms=st.none() | st.integers(NOW_MS - 100_000, NOW_MS),
        heard_ms=st.just(NOW_MS),
        instance=st.none(),
        missing=st.just(0),
        shape=st.just(BUSY.shape),
    ).map(lambda node: replace(node, free=int(node.idle_since_ms is not None))),
    max_size=12,
)
demands = st.builds(
    lambda pair, since_ms: waiting(max(pair), min(pair), since_ms),
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
    st.sampled_from([LONG_AGO_MS, NOW_MS]),
)
limits = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(
    lambda pair: PoolLimits(name="pool", nodes_min=min(pair), nodes_max=max(pair))
)


@given(nodes, demands, limits)
def test_a_pool_never_grows_beyond_its_maximum_those_that_leave_counted(
    known: list[Rented], demand: list[QueuedWork], bounds: PoolLimits
) -> None:
    actions = planned(bounds, known, demand)
    paid_for = len(known) - sum(isinstance(action, GiveUp) for action in actions)
    assert paid_for + starts(actions) <= max(bounds.nodes_max, paid_for)


@given(nodes, demands, limits)
def test_a_pool_never_shrinks_below_its_minimum_but_to_make_room(
    known: list[Rented], demand: list[QueuedWork], bounds: PoolLimits
) -> None:
    actions = planned(bounds, known, demand)
    given_up = {action.node for action in actions if isinstance(action, GiveUp)}
    leaving = sum(node.state in ("draining", "quarantined") for node in known)
    here = sum(node.id not in given_up for node in known) - leaving
    left = here + starts(actions) - len(drained(actions))
    assert left >= min(bounds.nodes_min, bounds.nodes_max - leaving) - sum(need.jobs for need in demand)


@given(nodes, demands, limits)
def test_only_nodes_idle_for_long_are_drained_the_longest_idle_first(
    known: list[Rented], demand: list[QueuedWork], bounds: PoolLimits
) -> None:
    gone = drained(planned(bounds, known, demand))
    idle = {node.id: node.idle_since_ms for node in known if node.state in ("ready", "on_trial")}
    since = [idle[node] for node in gone]
    assert all(moment is not None and NOW_MS - moment >= 1000 * POLICY.idle_s for moment in since)
    longest = sorted(moment for moment in idle.values() if moment is not None)
    assert since == longest[: len(since)]


@given(nodes, demands, limits)
def test_a_pool_that_got_what_it_asked_for_asks_for_nothing_more(
    known: list[Rented], demand: list[QueuedWork], bounds: PoolLimits
) -> None:
    count = starts(planned(bounds, known, demand))
    after = [*known, *(replace(STARTING, id=f"new-{number}", rental=f"new-{number}") for number in range(count))]
    assert starts(planned(bounds, after, demand)) == 0


@given(nodes, limits)
def test_without_work_a_pool_comes_to_rest(known: list[Rented], bounds: PoolLimits) -> None:
    """Rent and drain as told, everybody here and idle: the third look wants nothing."""
    here = [replace(node, state="ready", idle_since_ms=0) for node in known]
    for _ in range(2):
        actions = planned(bounds, here)
        here = [node for node in here if node.id not in drained(actions)]
        here += [
            replace(IDLE, id=f"{len(here)}-{number}", rental=f"{len(here)}-{number}")
            for number in range(starts(actions))
        ]
    assert planned(bounds, here) == []


def agreed(nodes: list[Rented], *instances: SeenInstance) -> list[Adopt | StopInstance | GiveUp]:
    return reconcile(nodes, instances, NOW_MS, POLICY)


ALIVE = SeenInstance(id="i-busy", name="busy")


def test_where_both_agree_nothing_is_done() -> None:
    assert agreed([BUSY, IDLE], ALIVE, SeenInstance(id="i-idle", name="idle")) == []


def test_an_instance_of_a_node_that_waits_for_one_is_adopted_and_its_double_is_stopped() -> None:
    first, double = SeenInstance(id="i-1", name="starting"), SeenInstance(id="i-2", name="starting")
    assert agreed([STARTING], first, double) == [
        Adopt("starting", "i-1"),
        StopInstance("i-2", "a duplicate of starting"),
    ]


@pytest.mark.parametrize("known", [[], [replace(BUSY, state="gone")]])
def test_an_instance_that_nobody_wants_is_stopped(known: list[Rented]) -> None:
    assert agreed(known, ALIVE) == [StopInstance("i-busy", "it belongs to none of our nodes")]


@pytest.mark.parametrize("state", ["draining", "quarantined"])
def test_a_node_that_gets_no_more_work_is_stopped_once_it_is_idle(state: str) -> None:
    busy = replace(BUSY, state=state)
    assert agreed([busy], ALIVE) == []
    assert agreed([replace(busy, idle_since_ms=0)], ALIVE) == [StopInstance("i-busy", f"busy is {state}")]


def test_what_the_provider_took_back_is_gone() -> None:
    assert agreed([BUSY], replace(ALIVE, ended="killed by SIGKILL on this box")) == [
        GiveUp("busy", "killed by SIGKILL on this box")
    ]


def test_a_node_is_missed_for_a_few_lists_and_a_lease_time_before_it_is_given_up() -> None:
    silent_ms = NOW_MS - POLICY.lease_ms - 1
    missing = replace(BUSY, missing=LISTS_WITHOUT_MAX - 1, heard_ms=silent_ms)
    assert agreed([missing]) == [GiveUp("busy", f"missing from {LISTS_WITHOUT_MAX} lists of the provider")]
    assert agreed([replace(missing, missing=LISTS_WITHOUT_MAX - 2)]) == []
    assert agreed([replace(missing, heard_ms=NOW_MS)]) == []  # it beats: the list is wrong


HERE = replace(BUSY, place="place-1")


def test_a_node_that_its_provider_moved_ends_and_the_reason_is_the_providers() -> None:
    moved = replace(ALIVE, place="place-2", moved="Priority")
    assert agreed([HERE], moved) == [MoveNode("busy", "place-2", "Priority")]
    assert agreed([HERE], replace(moved, moved="")) == [MoveNode("busy", "place-2", MOVED)]
    assert agreed([HERE], replace(moved, place="place-1")) == agreed([HERE], replace(moved, place="")) == []


def test_where_nobody_has_joined_from_another_place_a_new_one_is_only_noted() -> None:
    coming = replace(STARTING, instance="i-busy", place="place-1")
    found = SeenInstance(id="i-busy", name="starting", place="place-2")
    assert agreed([coming], found) == [PlaceNode("starting", "place-2")]
    assert agreed([replace(coming, instance=None)], found) == [
        Adopt("starting", "i-busy"),
        PlaceNode("starting", "place-2"),
    ]
    assert agreed([BUSY], replace(ALIVE, place="place-2")) == [PlaceNode("busy", "place-2")]


instances = st.lists(
    st.builds(
        SeenInstance,
        id=st.sampled_from("abcdef"),
        name=st.sampled_from(["n-1", "n-2", "n-3"]),
        ended=st.sampled_from(["", "it is gone"]),
    ),
    unique_by=lambda instance: instance.id,
    max_size=6,
)
rented = st.lists(
    st.builds(
        lambda rental, **facts: replace(BUSY, id=rental, rental=rental, **facts),
        st.sampled_from(["n-1", "n-2"]),
        state=st.sampled_from(["starting", "ready", "draining", "gone"]),
        instance=st.none() | st.sampled_from("abcdef"),
        idle_since_ms=st.none() | st.just(0),
    ),
    unique_by=(lambda node: node.id, lambda node: node.instance or node.id),
    max_size=2,
)


@given(rented, instances)
def test_after_a_look_every_instance_belongs_to_one_node_or_is_stopped(
    known: list[Rented], listed: list[SeenInstance]
) -> None:
    actions = agreed(known, *listed)
    stopped = [action.instance for action in actions if isinstance(action, StopInstance)]
    owners = {node.instance: node.id for node in known if node.state != "gone"}
    owners |= {action.instance: action.node for action in actions if isinstance(action, Adopt)}
    for instance in listed:
        kept = owners.get(instance.id) == instance.name
        assert instance.ended or kept or instance.id in stopped
    assert not {instance.id for instance in listed if instance.ended} & set(stopped)


@pytest.mark.parametrize(
    ("lists", "missing_ms", "billed_from_ms", "ends_ms"),
    [
        (LISTS_WITHOUT_MAX, LOST_MS, 1, 5),
        (LISTS_WITHOUT_MAX, LOST_MS, 7, 7),
        (LISTS_WITHOUT_MAX - 1, 9 * LOST_MS, 1, None),
        (9 * LISTS_WITHOUT_MAX, LOST_MS - 1, 1, None),
    ],
)
def test_an_instance_that_no_list_shows_any_more_is_billed_until_its_node_was_gone(
    lists: int, missing_ms: int, billed_from_ms: int, ends_ms: int | None
) -> None:
    since_ms = NOW_MS - missing_ms
    known = {"billed_from_ms": billed_from_ms, "node_gone_ms": 5, "missing_since_ms": since_ms, "now_ms": NOW_MS}
    assert unseen_end_ms(lists=lists, **known) == ends_ms
