"""Slow nodes: told apart from noise, and moved only where that pays."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.core.fleet.pace import Outlook, Paces, compare_paces, too_slow, worth_replacing
from tests.unit.examples import POLICY

SOUND = [0.98, 1.0, 1.0, 1.01, 1.02, 1.05, 0.99]
paces = st.lists(st.floats(0.01, 100), min_size=POLICY.slow_peers_min, max_size=40)


def test_one_machine_twelve_times_slower_than_its_peers_is_slow_and_they_are_not() -> None:
    peers = compare_paces([*SOUND, 12.0], POLICY)
    assert peers is not None and peers.machines == 8
    assert too_slow(12.0, peers, 1000, POLICY)
    assert not any(too_slow(pace, peers, 10**6, POLICY) for pace in SOUND)


def test_too_few_peers_tell_nothing() -> None:
    assert compare_paces([1.0] * (POLICY.slow_peers_min - 1), POLICY) is None
    assert compare_paces([1.0] * POLICY.slow_peers_min, POLICY) is not None


def test_the_rule_can_be_switched_off() -> None:
    assert compare_paces([*SOUND, 12.0], replace(POLICY, slow_rule="off")) is None


def test_peers_that_agree_to_the_digit_make_no_slow_machine_of_a_slightly_slower_one() -> None:
    peers = compare_paces([1.0] * 10, POLICY)
    assert peers is not None and too_slow(1.2, peers, 10**9, POLICY) is None


def test_many_slow_machines_do_not_hide_each_other() -> None:
    peers = compare_paces([*SOUND, 5.0, 5.0, 5.0], POLICY)
    assert peers is not None and too_slow(5.0, peers, 10**4, POLICY)


def test_the_bound_follows_the_spread_of_the_peers() -> None:
    peers = compare_paces([math.exp(power) for power in (-0.2, -0.1, 0, 0.1, 0.2)], POLICY)
    assert peers is not None and peers.usual == pytest.approx(1)
    assert peers.slow == pytest.approx(math.exp(POLICY.slow_mads * 1.4826 * 0.1))


def test_two_sigma_is_mean_and_standard_deviation() -> None:
    peers = compare_paces([1.0, 1.0, 3.0, 3.0], replace(POLICY, slow_rule="two_sigma"))
    assert peers is not None and (peers.usual, peers.slow) == (2.0, 4.0)


@given(paces, st.floats(0.1, 10))
def test_the_unit_of_time_does_not_matter(known: list[float], factor: float) -> None:
    peers, scaled = compare_paces(known, POLICY), compare_paces([factor * pace for pace in known], POLICY)
    assert peers is not None and scaled is not None
    assert scaled.usual == pytest.approx(factor * peers.usual)
    assert scaled.slow == pytest.approx(factor * peers.slow)


@example([22.289547821231245] * 6, "two_sigma")  # whose mean in floating point is smaller than each
@given(paces, st.sampled_from(["mad", "two_sigma"]))
def test_a_machine_is_slow_only_above_the_usual_and_never_are_half_of_them(known: list[float], rule: str) -> None:
    peers = compare_paces(known, replace(POLICY, slow_rule=rule))
    assert peers is not None and peers.slow >= peers.usual
    assert sum(pace > peers.slow for pace in known) <= len(known) / 2


def test_a_move_must_save_more_than_it_costs() -> None:
    peers = compare_paces([*SOUND, 12.0], POLICY)
    assert peers is not None
    worth = POLICY.move_s / (12.0 - peers.usual)
    assert too_slow(12.0, peers, int(worth), POLICY) is None
    sentence = too_slow(12.0, peers, int(worth) + 10, POLICY)
    assert sentence is not None and "12 s a step, against 1 on 8 machines" in sentence


def outlook(seen: list[float], returned: list[float] | None = None, new_share: float = 1.0) -> Outlook:
    came = seen if returned is None else returned
    return Outlook(seen=Paces(seen), returned=Paces(came), new_share=new_share)


def test_a_sound_machine_gives_way_where_another_is_expected_to_save_more_than_the_move() -> None:
    sentence = worth_replacing(2.0, outlook([1.0, 1.0, 2.0, 2.0]), 1000, POLICY)
    assert sentence is not None and "another saves 8 min" in sentence  # 1000 steps × 0.5 s
    assert worth_replacing(2.0, outlook([1.0, 1.0, 2.0, 2.0]), 100, POLICY) is None


def test_of_few_machines_nothing_is_expected() -> None:
    assert worth_replacing(2.0, outlook([1.0, 2.0, 2.0]), 10**6, POLICY) is None
    assert worth_replacing(2.0, outlook([1.0] * 9), 10**6, replace(POLICY, seek_faster=False)) is None


def test_where_no_machine_is_new_only_those_that_were_given_back_can_come() -> None:
    seen = [1.0, 1.0, 2.0, 2.0, 3.0]
    assert worth_replacing(2.0, outlook(seen, returned=[2.0, 3.0], new_share=0.0), 10**6, POLICY) is None
    assert worth_replacing(2.0, outlook(seen, returned=[], new_share=0.0), 10**6, POLICY) is None
    assert worth_replacing(2.0, outlook(seen, returned=[2.0, 3.0], new_share=0.5), 10**6, POLICY) is not None


@given(paces, st.floats(0, 10**6))
def test_the_fastest_machine_is_never_given_back(known: list[float], steps: float) -> None:
    assert worth_replacing(min(known), outlook(known), steps, POLICY) is None


@given(paces, st.floats(0, 10**6), st.floats(0, 1))
def test_where_one_machine_is_worth_replacing_every_slower_one_is(
    known: list[float], steps: float, new_share: float
) -> None:
    future = outlook(known, known[::2], new_share)
    verdicts = [worth_replacing(pace, future, steps, POLICY) is not None for pace in sorted(known)]
    assert verdicts == sorted(verdicts)
