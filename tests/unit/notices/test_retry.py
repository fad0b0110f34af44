"""When a notice is tried again, and when its endpoint is disabled."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.notices.retry import (
    DISABLED_AFTER_S,
    JITTER,
    RETRY_AFTER_S_MAX,
    RETRY_S,
    NoticeOutcome,
    TriedNotice,
    after_try,
    asked_ms,
    endpoint_after_try,
    message_key,
    people_hold_ms,
)

DAY_S = 86_400.0
NOW_MS = 10**12
OUTCOMES: tuple[NoticeOutcome, ...] = ("delivered", "again", "gone", "refused", "untried")
ANY_WAIT = st.none() | st.floats(min_value=-(10.0**9), max_value=10.0**9)


def tried(outcome: NoticeOutcome, tries: int, retry_after_s: float | None = None, seed: int = 0) -> TriedNotice:
    return after_try(outcome, "answered", tries=tries, retry_after_s=retry_after_s, now_ms=NOW_MS, rng=Random(seed))


@given(seed=st.integers(0, 10**9))
def test_a_notice_that_nobody_takes_is_tried_for_three_days_and_then_fails(seed: int) -> None:
    waited_ms, tries = 0, 1
    while (found := tried("again", tries, seed=seed + tries)).state == "waiting":
        waited_ms += found.due_ms - NOW_MS
        tries += 1
    assert tries == len(RETRY_S) + 1 == 10
    assert found.state == "failed" and "10 tries" in found.because
    assert 3 * DAY_S * (1 - JITTER) <= waited_ms / 1000 <= 3.2 * DAY_S * (1 + JITTER)


@given(tries=st.integers(1, len(RETRY_S)), seed=st.integers(0, 10**9))
def test_a_pause_is_that_of_the_schedule_with_jitter(tries: int, seed: int) -> None:
    wait_s = (tried("again", tries, seed=seed).due_ms - NOW_MS) / 1000
    assert RETRY_S[tries - 1] * (1 - JITTER) <= wait_s + 0.001 and wait_s - 0.001 <= RETRY_S[tries - 1] * (1 + JITTER)


def test_two_notices_that_failed_together_do_not_come_back_together() -> None:
    assert len({tried("again", 2, seed=seed).due_ms for seed in range(20)}) == 20


@given(outcome=st.sampled_from(OUTCOMES), tries=st.integers(1, 20), asked_s=ANY_WAIT, seed=st.integers(0, 9))
def test_only_a_notice_that_may_still_succeed_waits_and_never_for_more_than_two_days(
    outcome: NoticeOutcome, tries: int, asked_s: float | None, seed: int
) -> None:
    found = tried(outcome, tries, asked_s, seed)
    assert (found.state == "waiting") == (outcome == "untried" or (outcome == "again" and tries <= len(RETRY_S)))
    assert (found.state == "delivered") == (outcome == "delivered")
    assert 0 <= found.due_ms - NOW_MS <= 2 * DAY_S * 1000


def test_a_receiver_that_asks_to_wait_is_waited_for_up_to_a_day() -> None:
    assert tried("again", 1, 60.0).due_ms == NOW_MS + 60_000
    assert tried("again", 1, 10.0**9).due_ms == NOW_MS + RETRY_AFTER_S_MAX * 1000
    assert [asked_ms(seconds) for seconds in (60.0, 10.0**9, None, -1.0)] == [60_000, RETRY_AFTER_S_MAX * 1000, 0, 0]


@given(outcome=st.sampled_from(OUTCOMES), since_ms=st.none() | st.integers(0, NOW_MS), was_last=st.booleans())
def test_an_endpoint_is_disabled_if_it_asks_for_it_or_when_a_message_has_failed_and_no_other_had_success_for_three_days(
    outcome: NoticeOutcome, since_ms: int | None, was_last: bool
) -> None:
    found = endpoint_after_try(outcome, "x", was_last=was_last, failing_since_ms=since_ms, now_ms=NOW_MS)
    long = since_ms is not None and NOW_MS - since_ms >= DISABLED_AFTER_S * 1000
    assert bool(found.disabled) == (outcome == "gone" or (outcome == "again" and long and was_last))
    if outcome == "delivered":
        assert found.failing_since_ms is None
    elif since_ms is not None or outcome in ("refused", "untried"):
        assert found.failing_since_ms == since_ms, "what is refused says nothing of other messages"
    else:
        assert found.failing_since_ms == NOW_MS


def test_what_was_not_sent_was_no_try() -> None:
    found = tried("untried", 3)
    assert (found.state, found.tries) == ("waiting", 2) and 4_000 <= found.due_ms - NOW_MS <= 6_000


def test_notices_that_failed_as_one_message_are_one_message_again_and_new_ones_are_another() -> None:
    assert message_key(0, 5) == message_key(0, 6)
    assert len({message_key(0, 5), message_key(1, 5), message_key(1, 6), message_key(2, 5)}) == 4


@given(seconds=st.integers(0, 10**6))
def test_an_endpoint_for_people_is_held_for_as_long_as_it_has_failed_up_to_an_hour(seconds: int) -> None:
    held_ms = people_hold_ms(failing_since_ms=NOW_MS - seconds * 1000, now_ms=NOW_MS)
    assert held_ms == 1000 * min(max(seconds, 5), 3600)
    assert people_hold_ms(failing_since_ms=None, now_ms=NOW_MS) == 600_000, "the cause is at this server"
