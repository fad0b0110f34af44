"""Which gauges of a node are kept, and how they become its history."""

from itertools import pairwise

from gangline.core.fleet.gauges import Gauges, GaugesPoint, GpuGauges, gauge_places, history_of, point_of

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
START_MS = 1_700_000_000_000


def kept_after(times_ms: list[int]) -> dict[int, int]:
    """Return the times that are kept, by their places, as the store keeps them."""
    kept: dict[int, int] = {}
    for now_ms in times_ms:
        for place in gauge_places(now_ms):
            if kept.get(place.number, -1) < place.before_ms:
                kept[place.number] = now_ms
    return kept


def history_after(times_ms: list[int], now_ms: int) -> list[int]:
    points = [(place, GaugesPoint(at_ms=at_ms)) for place, at_ms in kept_after(times_ms).items() if place]
    return [point.at_ms for point in history_of(points, now_ms)]


def test_a_node_that_reports_for_days_keeps_a_bounded_number_of_points() -> None:
    times_ms = list(range(START_MS, START_MS + 3 * DAY_MS, 30_000))
    assert len(kept_after(times_ms)) == 1 + 60 + 144


def test_the_history_has_each_minute_of_the_last_hour_and_each_ten_before_that() -> None:
    times_ms = list(range(START_MS, START_MS + 3 * DAY_MS, 30_000))
    found = history_after(times_ms, times_ms[-1])
    hour = [at_ms for at_ms in found if at_ms > times_ms[-1] - HOUR_MS]
    before = found[: -len(hour)]
    assert found == sorted(set(found)) and 59 <= len(hour) <= 60 and 137 <= len(before) <= 139
    assert {later - sooner for sooner, later in pairwise(hour)} == {MINUTE_MS}
    assert {later - sooner for sooner, later in pairwise(before)} == {10 * MINUTE_MS}
    assert found[0] > times_ms[-1] - DAY_MS


def test_the_newest_gauges_are_kept_whatever_the_minute() -> None:
    assert kept_after([START_MS, START_MS + 30_000, START_MS + 45_000])[0] == START_MS + 45_000


def test_gauges_that_come_with_every_request_are_not_all_written() -> None:
    assert kept_after([START_MS, START_MS + 1_000, START_MS + 9_000])[0] == START_MS


def test_points_from_before_a_long_silence_are_not_shown_as_of_the_last_day() -> None:
    late_ms = START_MS + 2 * DAY_MS
    assert history_after([START_MS, START_MS + MINUTE_MS, late_ms], late_ms) == [late_ms]


def test_a_point_has_the_mean_of_all_gpus_and_the_temperature_of_the_hottest() -> None:
    gauges = Gauges(
        cpu_load=0.5,
        memory_used_bytes=16,
        memory_bytes=64,
        disk_free_bytes=25,
        disk_bytes=100,
        gpus=(
            GpuGauges(utilisation=1.0, memory_used_bytes=20, memory_bytes=24, temperature_c=80),
            GpuGauges(utilisation=0.5, memory_used_bytes=0, memory_bytes=24, temperature_c=60),
            GpuGauges(),
        ),
    )
    assert point_of(gauges, 7) == GaugesPoint(
        at_ms=7,
        cpu_load=0.5,
        memory_share=0.25,
        disk_share=0.75,
        gpu_utilisation=0.75,
        gpu_memory_share=0.417,
        temperature_c=80,
    )


def test_what_is_not_known_stays_unknown_in_a_point() -> None:
    gauges = Gauges(memory_used_bytes=0, memory_bytes=0, disk_free_bytes=0, disk_bytes=0, gpus=(GpuGauges(),))
    assert point_of(gauges, 7) == GaugesPoint(at_ms=7)
