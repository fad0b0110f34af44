"""How often a run saves: Daly's rule, within the bounds of the job's owner and of the operator, and the sentence that says so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.policy import Policy
from gangline.core.runs.daly import run_factor
from gangline.core.runs.saving import (
    NEVER_S,
    SaveBound,
    SaveCost,
    Saving,
    SavingTerms,
    choose_saving,
    has_changed_much,
    saving_terms,
)

HOUR_S = 3600.0
POLICY = Policy()
LORA = SaveCost(held_up_s=0.03, upload_s=5.3, bytes=66_000_000)
UNET = SaveCost(held_up_s=3.0, upload_s=280.0, bytes=13_800_000_000)


def chosen(between_s: float, cost: SaveCost = LORA, every_s: float = NEVER_S, policy: Policy = POLICY) -> Saving:
    return choose_saving(saving_terms(policy, between_s, every_s=every_s), cost)


@pytest.mark.parametrize(
    ("between_s", "cost", "every_s", "interval_s", "bound"),
    [
        (3.1 * HOUR_S, LORA, NEVER_S, 26, ""),
        (20 * HOUR_S, LORA, 60, 60, "checkpoint_every_s"),
        (600, LORA, NEVER_S, 8, "save_interval_s"),
        (600, replace(LORA, held_up_s=9.0), NEVER_S, 180, "save_share_max"),
        (600, replace(LORA, held_up_s=9.0), 60, 60, "checkpoint_every_s"),  # the owner's time, and wish
        (3 * HOUR_S, UNET, 600, 994, "save_gb_per_hour"),
        (3 * HOUR_S, replace(UNET, bytes=10**11), 600, 1800, "save_interval_max_s"),
        (1e7, UNET, NEVER_S, 1800, "save_interval_max_s"),
        (600, replace(LORA, upload_s=90), NEVER_S, 90, "upload"),
        (1e7, replace(UNET, upload_s=2400), NEVER_S, 2400, "upload"),
    ],
)
def test_the_last_bound_that_changes_dalys_interval_is_named(
    between_s: float, cost: SaveCost, every_s: float, interval_s: float, bound: SaveBound
) -> None:
    found = chosen(between_s, cost, every_s)
    assert (found.every_s, found.bound) == (pytest.approx(interval_s, rel=0.02), bound)


def test_the_sentence_says_what_the_interval_was_decided_from() -> None:
    assert chosen(3.1 * HOUR_S, replace(LORA, held_up_s=0.001), every_s=60).sentence == (
        "saves every 8 s: an interruption is expected every 3.1 h, and a save holds up training for 0.001 s and uploads 66.0 MB in 5.3 s; "
        "no sooner, by the policy's save_interval_s"
    )
    assert chosen(3.1 * HOUR_S).sentence == (
        "saves every 26 s: an interruption is expected every 3.1 h, and a save holds up training for 0.03 s and uploads 66.0 MB in 5.3 s"
    )
    assert "uploads" not in chosen(3.1 * HOUR_S, SaveCost()).sentence


def test_a_run_that_has_half_of_its_node_may_upload_half_as_much() -> None:
    terms = saving_terms(POLICY, 3 * HOUR_S)
    assert terms.share(0.5).upload_pause_s(UNET.bytes) == pytest.approx(2 * terms.upload_pause_s(UNET.bytes), abs=200)
    assert terms.share(0.5).upload_pause_s(10**9) == pytest.approx(2 * 72)


def test_no_interval_is_so_long_that_the_watch_ends_an_attempt_without_a_checkpoint() -> None:
    found = chosen(1e7, UNET, policy=Policy(commit_s=900, save_interval_max_s=3600))
    assert found.every_s == 450


def test_an_operator_who_wants_fewer_saves_has_them() -> None:
    assert chosen(600, policy=Policy(save_interval_s=3600)).every_s == 3600


def test_a_checkpoint_of_a_round_step_is_by_steps() -> None:
    terms = saving_terms(POLICY, HOUR_S, every_steps=(100, None, 30))
    assert [step for step in range(1, 120) if terms.is_by_steps(step)] == [30, 60, 90, 100]


def test_people_hear_of_an_interval_again_once_it_is_much_longer_or_shorter() -> None:
    first = chosen(3 * HOUR_S)
    assert has_changed_much(None, first)
    assert not has_changed_much(first, replace(first, every_s=1.4 * first.every_s))
    assert has_changed_much(first, replace(first, every_s=1.6 * first.every_s))
    assert has_changed_much(first, replace(first, every_s=first.every_s / 1.6))


@given(
    between_s=st.floats(60, 1e7), held_up_s=st.floats(0.01, 20), size=st.integers(0, 10**11), upload_s=st.floats(0, 600)
)
def test_only_a_bound_makes_a_run_lose_more_than_dalys_interval_does(
    between_s: float, held_up_s: float, size: int, upload_s: float
) -> None:
    terms, cost = saving_terms(POLICY, between_s), SaveCost(held_up_s=held_up_s, bytes=size, upload_s=upload_s)
    found = choose_saving(terms, cost)

    def factor(every_s: float) -> float:
        return run_factor(every_s, between_s=between_s, checkpoint_s=held_up_s, restart_s=0)

    if not found.bound and held_up_s < between_s:
        assert all(factor(found.every_s) <= 1.001 * factor(found.every_s * other) for other in (0.5, 0.8, 1.25, 2))
    assert found.every_s >= min(_least_s(terms, cost), POLICY.save_interval_max_s)


def _least_s(terms: SavingTerms, cost: SaveCost) -> float:
    return max(
        POLICY.save_interval_s, cost.held_up_s / POLICY.save_share_max, terms.upload_pause_s(cost.bytes), cost.upload_s
    )
