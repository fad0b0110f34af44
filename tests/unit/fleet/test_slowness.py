"""Why a node is slow: heat and power, memory that spilled, or the machine itself."""

from dataclasses import replace

import pytest

from gangline.core.fleet.gauges import ClockLimit, Gauges, GaugesPoint, GpuGauges
from gangline.core.fleet.slowness import (
    RECENT_MS,
    Throttle,
    is_crowded,
    may_tell_later,
    recent_limits,
    slowed,
    spill_of,
    throttle_of,
    why_slow,
)

MINUTE_MS, NOW_MS, GIB = 60_000, 10**12, 2**30
HOT = Throttle(limit="heat", share=1.0, temperature_c=90)
FULL = Gauges(
    memory_used_bytes=1,
    memory_bytes=2,
    disk_free_bytes=3,
    disk_bytes=4,
    gpu_memory_spills=True,
    gpus=(GpuGauges(memory_used_bytes=round(11.9 * GIB), memory_bytes=12_282 * 2**20),),
)
LINUX = replace(FULL, gpu_memory_spills=False)


def minutes(*limits: tuple[ClockLimit, ...] | None) -> list[GaugesPoint]:
    """Return points with these limits, one a minute, the last of them now."""
    begin_ms = NOW_MS - MINUTE_MS * (len(limits) - 1)
    return [
        GaugesPoint(at_ms=begin_ms + MINUTE_MS * number, limited_by=limit, temperature_c=80 + number)
        for number, limit in enumerate(limits)
    ]


def throttle(*limits: tuple[ClockLimit, ...] | None, since_ms: int = 0) -> Throttle | None:
    return throttle_of(recent_limits(minutes(*limits), NOW_MS, since_ms))


@pytest.mark.parametrize("limit", ["heat", "power brake", "hardware", "power cap"])
def test_a_card_is_throttled_if_most_measurements_of_the_last_minutes_say_so(limit: ClockLimit) -> None:
    assert throttle((limit,), (), (limit,), (limit,)) == Throttle(limit=limit, share=0.75, temperature_c=83)
    assert throttle((limit,), (), (limit,), ()) is None
    assert throttle((), (), (), ()) is throttle(None, None, None) is throttle() is None


def test_the_gravest_of_several_reasons_is_the_one() -> None:
    found = throttle(("power cap", "heat"), ("heat", "power cap"), ("power cap",))
    assert found is not None and (found.limit, found.is_usual) == ("heat", False)
    assert "heat held its clocks down in 67% of the last measurements (82 °C at most)" in found.says


def test_what_was_long_ago_or_before_the_work_began_says_nothing_of_now() -> None:
    idle: list[tuple[ClockLimit, ...]] = [()] * 5
    hot: list[tuple[ClockLimit, ...]] = [("heat",) for _ in range(3)]
    began_ms = NOW_MS - 3 * MINUTE_MS
    assert throttle(*idle, *hot) is None
    found = throttle(*idle, *hot, since_ms=began_ms)
    assert found is not None and found.share == 1.0
    old: list[tuple[ClockLimit, ...]] = [("heat",)] * 12 + [()] * 11
    assert RECENT_MS == 10 * MINUTE_MS and throttle(*old) is None


def test_too_few_measurements_say_nothing_yet_and_a_driver_that_never_says_is_not_waited_for() -> None:
    points = minutes(("heat",), ("heat",))
    assert throttle(("heat",), ("heat",)) is None and may_tell_later(points, points, 2 * MINUTE_MS)
    assert not may_tell_later(minutes(None, None), [], 0)
    assert not may_tell_later([], [], 0)
    assert not may_tell_later(minutes((), (), ()), minutes((), (), ()), 3 * MINUTE_MS)


def test_a_driver_that_stopped_to_answer_is_waited_for_no_longer_than_is_looked_back() -> None:
    points = minutes(("heat",), ())
    assert may_tell_later(points, [], RECENT_MS - 1) and not may_tell_later(points, [], RECENT_MS)


def test_a_trainer_that_holds_more_than_its_card_has_spilled_and_needs_a_card_that_holds_it_all() -> None:
    found = spill_of(30 * GIB, FULL)
    assert found is not None
    assert (round(found.used_gb), round(found.card_gb), found.needs_gb) == (30, 12, 30)
    assert "it holds 30.0 GB and its card has 12.0, so the rest lies in the machine's memory" in found.says


def test_the_next_card_is_larger_than_this_one_however_little_spilled() -> None:
    found = spill_of(round(12.15 * GIB), FULL)
    assert found is not None and found.needs_gb == 13


@pytest.mark.parametrize(
    ("used", "gauges"),
    [
        (12 * GIB, FULL),  # a rounding more than the driver says
        (30 * GIB, LINUX),  # its driver would have refused that
        (30 * GIB, replace(FULL, gpu_memory_spills=None)),
        (30 * GIB, replace(FULL, gpus=())),
        (30 * GIB, replace(FULL, gpus=(GpuGauges(),))),
        (30 * GIB, replace(FULL, gpus=(*FULL.gpus, GpuGauges(memory_bytes=80 * GIB)))),  # perhaps it is on the other
        (30 * GIB, None),
        (None, FULL),
    ],
)
def test_nothing_is_called_spilled_that_may_be_something_else(used: int | None, gauges: Gauges | None) -> None:
    assert spill_of(used, gauges) is None


def test_a_card_is_crowded_that_is_full_where_memory_spills() -> None:
    half = replace(FULL, gpus=(GpuGauges(memory_used_bytes=6 * GIB, memory_bytes=12 * GIB), GpuGauges()))
    assert is_crowded(FULL) and not is_crowded(LINUX) and not is_crowded(half) and not is_crowded(None)


def test_heat_is_named_before_a_full_card_and_a_usual_power_limit_after_it() -> None:
    usual = replace(HOT, limit="power cap")
    assert why_slow(HOT, FULL).kind == "throttled"
    assert why_slow(usual, FULL).kind == why_slow(None, FULL).kind == "crowded"
    assert why_slow(usual, LINUX).kind == "throttled"
    assert (why_slow(None, LINUX).kind, why_slow(None, LINUX).says) == ("too slow", "")
    assert why_slow(None, None).kind == "too slow"


def test_a_job_that_spilled_beside_faster_machines_lacks_memory_of_this_one_whatever_else_it_has() -> None:
    spill = spill_of(30 * GIB, FULL)
    assert spill is not None
    found = why_slow(HOT, FULL, spill)
    assert (found.kind, found.says) == (
        "crowded",
        f"{spill.says}; the same work fits into the GPU memory of other machines of the class",
    )


def test_a_node_says_what_holds_it_back_and_nothing_of_a_card_at_its_power_limit() -> None:
    spill = spill_of(30 * GIB, FULL)
    assert spill is not None
    assert slowed(HOT, [spill]).startswith("a job of it has spilled: it holds 30.0 GB")
    assert slowed(HOT, []) == f"its card is throttled: {HOT.says}"
    assert slowed(replace(HOT, limit="power cap"), []) == slowed(None, []) == ""
