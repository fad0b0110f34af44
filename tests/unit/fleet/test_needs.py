"""Which waiting jobs are left to the nodes that are here or coming."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.fleet.needs import Cover, NodeShape, QueuedWork, Room, cover, fits
from tests.unit.fleet.test_autoscale import NEED

SHAPE = NodeShape(pool="pool", gpu="RTX 4090", gpu_memory_gb=24, trust=1, slots=8, kinds=",lora,sample,")
ROOM = Room(node="node", shape=SHAPE, free=8)
RECENT_MS = 1000


def left_to(needs: list[QueuedWork], *rooms: Room) -> Cover:
    return cover(needs, rooms, recent_ms=RECENT_MS)


def test_a_node_takes_as_many_jobs_as_it_has_free_slots() -> None:
    found = left_to([replace(NEED, jobs=20)], ROOM, replace(ROOM, node="b", free=3))
    assert found.left == [9] and found.nodes == {"node", "b"} and found.by_pool == [{"pool": 11}]


def test_jobs_of_several_slots_leave_what_is_too_small_for_them_to_others() -> None:
    found = left_to([replace(NEED, jobs=1), replace(NEED, jobs=5, slots=3)], ROOM)
    assert found.left == [0, 3]


def test_a_job_that_only_few_nodes_may_take_comes_before_one_that_any_may() -> None:
    large = replace(ROOM, node="large", shape=replace(SHAPE, gpu_memory_gb=80), free=1)
    found = left_to([NEED, replace(NEED, gpu_memory_gb=48)], large, replace(ROOM, free=1))
    assert found.left == [0, 0]


def test_a_working_node_is_nothing_to_jobs_that_it_may_not_take_but_a_coming_one_may_be() -> None:
    stuck = replace(NEED, stuck=True)
    assert left_to([stuck], ROOM).left == [1]
    assert left_to([stuck], replace(ROOM, coming=True)).left == [0]


def test_a_room_that_a_job_left_for_long_is_none_for_it() -> None:
    old = replace(ROOM, old=True)
    assert left_to([replace(NEED, since_ms=RECENT_MS - 1)], old).left == [1]
    assert left_to([replace(NEED, since_ms=RECENT_MS)], old).left == [0]
    assert left_to([replace(NEED, since_ms=RECENT_MS - 1)], ROOM).left == [0]


def test_each_demand_of_a_job_must_be_met() -> None:
    for unmet in (
        {"gpu": "H100 SXM"},
        {"gpu_memory_gb": 25},
        {"trust": 2},
        {"slots": 9},
        {"pool": "other"},
        {"wanted": "scratch"},
        {"wanted": "lora/uid"},
    ):
        assert not fits(replace(NEED, **unmet), SHAPE), unmet
    met = replace(NEED, gpu="RTX 4090", gpu_memory_gb=24, trust=1, slots=8, pool="pool", numerics="n")
    assert fits(met, SHAPE) and fits(met, replace(SHAPE, numerics="n"))
    assert not fits(met, replace(SHAPE, numerics="m"))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=4),
    st.lists(st.integers(1, 8), max_size=6),
)
def test_no_slot_is_given_twice_and_none_that_would_do_is_left(asked: list[tuple[int, int]], free: list[int]) -> None:
    needs = [replace(NEED, jobs=jobs, slots=slots) for jobs, slots in asked]
    rooms = [replace(ROOM, node=str(index), free=slots) for index, slots in enumerate(free)]
    found = left_to(needs, *rooms)
    taken = sum((need.jobs - left) * need.slots for need, left in zip(needs, found.left, strict=True))
    assert taken <= sum(free) and all(0 <= left <= need.jobs for left, need in zip(found.left, needs, strict=True))
    if any(found.left[index] and needs[index].slots == 1 for index in range(len(needs))):
        assert taken == sum(free)
