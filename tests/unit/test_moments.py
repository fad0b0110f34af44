"""When something ends, for people."""

import pytest

from gangline.core.moments import until

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("at_ms", "now_ms", "said"),
    [
        (62_400_000, 0, "17:20 UTC"),
        (62_400_001, 0, "17:21 UTC"),
        (15_000, 0, "00:00:15 UTC"),
        (14_001, 0, "00:00:15 UTC"),
        (900_000, 0, "00:15:00 UTC"),
        (900_001, 0, "00:16 UTC"),
        (DAY_MS + 62_400_000, 0, "1970-01-02 17:20 UTC"),
        (DAY_MS - 1, 0, "1970-01-02 00:00 UTC"),
        (DAY_MS - 1, DAY_MS - 9, "1970-01-02 00:00:00 UTC"),
        (0, 5000, "00:00:00 UTC"),
    ],
)
def test_a_moment_is_never_before_what_it_stands_for_and_has_its_date_unless_it_is_today(
    at_ms: int, now_ms: int, said: str
) -> None:
    assert until(at_ms, now_ms) == said
