"""Every moment of a node's time is billed once, with its cause; and what interruptions cost."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.job import Attempt, AttemptState
from gangline.core.money.cost import (
    GB,
    HOUR_MS,
    MONTH_MS,
    egress_micro_usd,
    lines_of_attempt,
    lost,
    storage_micro_usd,
    time_cost_micro_usd,
)
from tests.unit.examples import ATTEMPT

PRICE = 324_000
ENDS = [state for state in get_args(AttemptState) if state != "live"]
TRAINED = replace(ATTEMPT, training_ms=20_000, beat_ms=90_000, step=70, seconds_per_step=1.0)


def test_an_hour_costs_the_price_of_an_hour() -> None:
    assert time_cost_micro_usd(price_micro_usd_per_hour=PRICE, from_ms=5, to_ms=5 + HOUR_MS) == PRICE


@given(st.integers(0, 10**8), st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_the_parts_of_a_time_cost_exactly_what_the_whole_costs(price: int, parts: list[int]) -> None:
    at, total = 0, 0
    for part in parts:
        total += time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=at, to_ms=at + part)
        at += part
    assert total == time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=0, to_ms=at)


def spent(state: AttemptState, attempt: Attempt = TRAINED, now_ms: int = 100_000) -> dict[str, int]:
    """Seconds by cause."""
    return {line.cause: (line.to_ms - line.from_ms) // 1000 for line in lines_of_attempt(attempt, state, now_ms)}


def test_time_is_download_until_the_first_step_and_training_from_then_on() -> None:
    assert spent("succeeded") == {"download": 20, "training": 80}
    assert spent("canceled") == {"download": 20, "training": 80}
    assert spent("succeeded", replace(ATTEMPT, training_ms=None)) == {"download": 100}


@pytest.mark.parametrize(("state", "cause"), [("interrupted", "redone steps"), ("failed", "failed")])
def test_steps_after_the_last_commit_and_the_silence_before_the_end_are_lost(state: Any, cause: str) -> None:
    assert spent(state, replace(TRAINED, committed_step=50)) == {"download": 20, "training": 50, cause: 30}
    assert spent(state, replace(TRAINED, from_step=50)) == {"download": 20, "training": 50, cause: 30}
    assert spent(state, replace(TRAINED, committed_step=70)) == {"download": 20, "training": 70, cause: 10}


def test_what_was_handed_back_whole_lost_nothing() -> None:
    assert spent("released", replace(TRAINED, committed_step=70)) == {"download": 20, "training": 80}
    assert spent("released", replace(TRAINED, committed_step=60)) == {
        "download": 20,
        "training": 60,
        "redone steps": 20,
    }


def test_no_more_is_lost_than_was_trained() -> None:
    slow = replace(TRAINED, seconds_per_step=10.0)
    assert spent("interrupted", slow) == {"download": 20, "redone steps": 80}


@st.composite
def ended(draw: st.DrawFn) -> tuple[Attempt, int]:
    started = draw(st.integers(0, 10**6))
    now = started + draw(st.integers(0, 10**8))
    training = draw(st.none() | st.integers(started, now))
    attempt = replace(
        ATTEMPT,
        price_micro_usd_per_hour=draw(st.integers(0, 10**8)),
        from_step=draw(st.integers(0, 100)),
        step=draw(st.integers(0, 1000)),
        committed_step=draw(st.integers(0, 1000)),
        seconds_per_step=draw(st.none() | st.floats(0, 1e6)),
        started_ms=started,
        training_ms=training,
        beat_ms=draw(st.integers(started, now)),
    )
    return attempt, now


@given(ended(), st.sampled_from(ENDS))
def test_the_parts_of_an_attempts_bill_cover_its_time_without_a_gap_and_sum_exactly(
    known: tuple[Attempt, int], state: AttemptState
) -> None:
    attempt, now_ms = known
    lines = lines_of_attempt(attempt, state, now_ms)
    assert all(line.to_ms > line.from_ms for line in lines)
    assert all(before.to_ms == after.from_ms for before, after in pairwise(lines))
    if now_ms > attempt.started_ms:
        assert (lines[0].from_ms, lines[-1].to_ms) == (attempt.started_ms, now_ms)
    whole = time_cost_micro_usd(
        price_micro_usd_per_hour=attempt.price_micro_usd_per_hour, from_ms=attempt.started_ms, to_ms=now_ms
    )
    assert sum(line.micro_usd for line in lines) == whole
    assert len({line.cause for line in lines}) == len(lines)


def test_storage_costs_by_size_and_time_and_egress_by_size() -> None:
    assert storage_micro_usd(2 * GB, 0, MONTH_MS // 2, 0.023) == 23_000
    assert egress_micro_usd(GB // 2, 0.09) == 45_000


def test_what_an_interruption_cost_is_the_wait_and_the_steps_done_again() -> None:
    first = replace(ATTEMPT, state="interrupted", step=65, beat_ms=10_000)
    second = replace(ATTEMPT, from_step=50, step=300, training_ms=22_000, seconds_per_step=0.1, beat_ms=50_000)
    found = lost([first, second])
    assert (found.interruptions, found.steps_redone, found.ms) == (1, 15, 12_000 + 1_500)


def test_nothing_is_lost_without_an_interruption() -> None:
    found = lost([replace(ATTEMPT, state="failed"), replace(ATTEMPT, state="succeeded")])
    assert (found.interruptions, found.steps_redone, found.ms) == (0, 0, 0)
