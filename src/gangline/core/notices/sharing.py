"""Share the connections of the sender among endpoints, so that none that is slow, dead or failing delays another."""

ENDPOINT_IN_FLIGHT_MAX = 64
"""The most requests that one endpoint has at the same time."""
SHARE = 8
"""An endpoint may use the free connections up to one part in `SHARE`, so however many endpoints hang, a few connections stay free (the
dynamic threshold of Choudhury and Hahne, 1998)."""


def limit_after(limit: int, *, delivered: bool) -> int:
    """Return how many requests an endpoint may have at the same time after one has ended: one more after a success, half as many after a
    failure. A new endpoint begins with 1."""
    return min(limit + 1, ENDPOINT_IN_FLIGHT_MAX) if delivered else max(1, limit // 2)


def may_start(*, in_flight: int, limit: int, free: int) -> bool:
    """Return whether an endpoint that has `in_flight` requests may begin one more while `free` connections are free."""
    return free > 0 and in_flight < min(limit, free // SHARE + 1)
