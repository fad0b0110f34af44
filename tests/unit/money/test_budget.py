"""What is reserved of a budget, and when."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.money.budget import more_to_reserve, over_budget, reservation
from gangline.core.policy import Policy
from tests.unit.examples import POLICY, PURSE

PRICE = 324_000
SENDING = replace(POLICY, egress_usd_per_gb=0.09)


def test_a_budget_is_spent_reserved_and_asked_for_together() -> None:
    purse = replace(PURSE, budget=100, spent=60, reserved=30)
    assert over_budget(purse, 10) is None
    assert over_budget(replace(purse, budget=None), 10**12) is None
    sentence = over_budget(replace(purse, budget=10_000_000, spent=6_000_000), 4_000_000)
    assert (
        sentence
        == "the budget of p, $10.00, does not allow it: $6.00 is spent and $0.000030 is reserved by running jobs"
    )


def test_an_attempt_reserves_for_its_time_and_for_what_it_downloads() -> None:
    assert reservation(PRICE, 0, POLICY) == 324_000 * POLICY.reserve_s / 3600
    assert reservation(PRICE, 10**9, POLICY) == reservation(PRICE, 0, POLICY)
    assert reservation(PRICE, 10**9, SENDING) == reservation(PRICE, 0, POLICY) + 90_000


def needed(reserved: int, seconds: float, downloaded: int, policy: Policy = SENDING) -> int:
    return more_to_reserve(
        PRICE, reserved=reserved, elapsed_ms=round(seconds * 1000), downloaded_bytes=downloaded, policy=policy
    )


def test_more_is_reserved_while_there_is_time_to_stop() -> None:
    first = reservation(PRICE, 0, POLICY)
    margin_s = POLICY.stop_margin_s + POLICY.heartbeat_interval_s
    assert needed(first, POLICY.reserve_s - margin_s, 0) == 0
    assert needed(first, POLICY.reserve_s - margin_s + 1, 0) == PRICE / 3600
    assert needed(first, 0, 10**12) > 80_000_000


@given(st.integers(0, 10**9), st.floats(0, 1e6), st.integers(0, 10**13))
def test_what_is_reserved_covers_what_is_spent_until_the_attempt_can_be_stopped(
    reserved: int, seconds: float, downloaded: int
) -> None:
    total = reserved + needed(reserved, seconds, downloaded)
    time = PRICE * (seconds + SENDING.stop_margin_s) / 3600
    assert total >= time + downloaded * SENDING.egress_micro_usd_per_byte - 1
    assert needed(total, seconds, downloaded) == 0
