"""What goes from a node's cache when it is full."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.fleet.cache import PARTIAL_KEPT_S, Cached, to_evict

NOW_S = 1_000_000.0
entries = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10), st.booleans()), max_size=8).map(
    lambda found: [
        Cached(name=str(number), bytes=size, used_s=NOW_S - age, in_use=in_use)
        for number, (size, age, in_use) in enumerate(found)
    ]
)


def names(cached: list[Cached], *, room: int = 0, limit: int = 100) -> list[str]:
    return [each.name for each in to_evict(cached, room_bytes=room, limit_bytes=limit, now_s=NOW_S)]


def test_what_was_used_longest_ago_goes_first_and_no_more_than_must() -> None:
    cached = [Cached(name=name, bytes=40, used_s=NOW_S - age) for name, age in (("new", 1), ("old", 9), ("older", 10))]
    assert names(cached) == ["older"]
    assert names(cached, room=30) == ["older", "old"]
    assert names(cached, limit=120) == []


@given(entries, st.integers(0, 200), st.integers(0, 300))
def test_what_is_in_use_stays_and_the_limit_holds_for_the_rest(cached: list[Cached], room: int, limit: int) -> None:
    gone = to_evict(cached, room_bytes=room, limit_bytes=limit, now_s=NOW_S)
    assert not any(each.in_use for each in gone)
    left = [each for each in cached if each not in gone]
    assert sum(each.bytes for each in left) + room <= limit or all(each.in_use for each in left)
    for each in left:
        assert each.in_use or all(other.used_s <= each.used_s for other in gone)


def test_a_download_that_nobody_wanted_again_for_a_day_goes_though_there_is_room() -> None:
    old, young = NOW_S - PARTIAL_KEPT_S - 1, NOW_S - PARTIAL_KEPT_S + 60
    cached = [
        Cached(name="given up", bytes=1, used_s=old, partial=True),
        Cached(name="under way", bytes=1, used_s=old, partial=True, in_use=True),
        Cached(name="cut off of late", bytes=1, used_s=young, partial=True),
        Cached(name="whole", bytes=1, used_s=old),
    ]
    assert names(cached) == ["given up"]
