"""However many endpoints hang, others find a connection."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.notices.sharing import ENDPOINT_IN_FLIGHT_MAX, limit_after, may_start

ALL = 256


@given(hanging=st.integers(1, 500))
def test_however_many_endpoints_hang_another_one_may_start(hanging: int) -> None:
    """Those that hang have succeeded often before, so each may have the most that one may."""
    in_flight = [0] * hanging
    begun = -1
    while begun < sum(in_flight):
        begun = sum(in_flight)
        for number in range(hanging):
            in_flight[number] += may_start(
                in_flight=in_flight[number], limit=ENDPOINT_IN_FLIGHT_MAX, free=ALL - sum(in_flight)
            )
    free = ALL - sum(in_flight)
    assert free >= 0
    if hanging < ALL:
        assert may_start(in_flight=0, limit=1, free=free)


def test_an_endpoint_alone_may_use_a_part_of_all_connections() -> None:
    in_flight = 0
    while may_start(in_flight=in_flight, limit=ENDPOINT_IN_FLIGHT_MAX, free=ALL - in_flight):
        in_flight += 1
    assert ALL // 10 <= in_flight <= ALL // 8 + 1
    assert not may_start(in_flight=3, limit=3, free=ALL)


@given(results=st.lists(st.booleans(), max_size=300))
def test_a_limit_is_one_at_least_and_bounded(results: list[bool]) -> None:
    limit = 1
    for delivered in results:
        limit = limit_after(limit, delivered=delivered)
        assert 1 <= limit <= ENDPOINT_IN_FLIGHT_MAX


def test_a_dead_endpoint_soon_has_one_request_at_a_time_and_one_that_recovers_has_more() -> None:
    limit = ENDPOINT_IN_FLIGHT_MAX
    for _ in range(6):
        limit = limit_after(limit, delivered=False)
    assert limit == 1
    for _ in range(100):
        limit = limit_after(limit, delivered=True)
    assert limit == ENDPOINT_IN_FLIGHT_MAX
