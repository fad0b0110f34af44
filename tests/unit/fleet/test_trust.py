"""Whom to trust: a strike counts only with a contrast, and never too many are sent away at once."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.fleet.autoscale import PoolLimits, may_rent
from gangline.core.fleet.trust import Alarm, Machine, PoolHealth, Quarantine, Strike, TrialDue, counting, judge, rest_ms
from gangline.core.jobs.failure import MEANING, STRIKE
from tests.unit.examples import POLICY

MACHINE = Machine()
SURE = Strike(kind="gpu error", workload="w", project="p", quarters=STRIKE, elsewhere=True, anywhere=True)
ALONE = replace(SURE, elsewhere=False, anywhere=False)
OTHER_WORK = replace(ALONE, workload="w-2")
OTHERS_WORK = replace(OTHER_WORK, project="p-2")
SAID_OF_THE_JOB = replace(ALONE, kind="bad data")


POOL = PoolHealth(nodes=100, others=99, quarantined_lately=0, may_rent=False)
LAST = replace(POOL, nodes=1, others=0)


def judged(
    *strikes: Strike, machine: Machine = MACHINE, pool: PoolHealth = POOL
) -> Quarantine | TrialDue | Alarm | None:
    return judge(machine, strikes, pool, now_ms=0, policy=POLICY)


def test_two_strikes_with_a_contrast_are_a_quarantine_and_it_says_why() -> None:
    assert judged(SURE) is None
    verdict = judged(SURE, SURE)
    assert isinstance(verdict, Quarantine)
    assert verdict.because == "2 strikes: the GPU failed" and verdict.until_ms == 1000 * POLICY.quarantine_s


def test_a_half_strike_counts_half() -> None:
    half = replace(SURE, kind="crashed", quarters=STRIKE // 2)
    assert judged(half, half, half) is None
    assert isinstance(judged(half, half, half, half), Quarantine)


def test_without_a_contrast_one_workload_says_nothing_of_a_machine() -> None:
    assert judged(*[ALONE] * 20) is None


def test_failing_two_workloads_of_two_projects_is_a_contrast() -> None:
    assert isinstance(judged(ALONE, OTHERS_WORK), Quarantine)


def test_one_project_may_fail_any_number_of_workloads_and_its_machine_is_not_blamed() -> None:
    assert judged(*[replace(ALONE, workload=f"w-{number}") for number in range(20)]) is None


def test_two_projects_that_fail_the_same_workload_say_nothing_of_a_machine() -> None:
    assert judged(ALONE, replace(ALONE, project="p-2")) is None


def test_failing_two_workloads_of_one_project_is_a_contrast_if_one_of_them_went_well_anywhere() -> None:
    assert isinstance(judged(ALONE, replace(OTHER_WORK, anywhere=True)), Quarantine)
    assert judged(*[replace(ALONE, anywhere=True)] * 20) is None


def test_what_a_machine_said_of_a_job_counts_only_once_the_job_went_well_elsewhere() -> None:
    other = replace(SAID_OF_THE_JOB, workload="w-2")
    assert judged(*[SAID_OF_THE_JOB] * 9, *[other] * 9) is None
    wrong = replace(SAID_OF_THE_JOB, elsewhere=True)
    assert isinstance(judged(wrong, wrong), Quarantine)


def test_what_it_said_of_a_job_is_no_second_workload_that_it_failed() -> None:
    assert counting([ALONE, replace(SAID_OF_THE_JOB, workload="w-2")]) == []


strikes = st.builds(
    Strike,
    kind=st.sampled_from(sorted(MEANING)),
    workload=st.sampled_from(["w", "w-2"]),
    project=st.sampled_from(["p", "p-2"]),
    quarters=st.integers(1, STRIKE),
    elsewhere=st.booleans(),
    anywhere=st.booleans(),
)


@given(st.lists(strikes, max_size=12), st.booleans())
def test_a_strike_with_a_contrast_always_counts_and_a_further_one_never_makes_others_count_less(
    known: list[Strike], on_trial: bool
) -> None:
    counted = counting(known, on_trial=on_trial)
    assert all(strike in counted for strike in known if strike.elsewhere)
    assert all(strike in counting([*known, ALONE], on_trial=on_trial) for strike in counted)


@given(st.lists(strikes, max_size=12))
def test_a_machine_is_never_sent_away_for_less_than_two_strikes(known: list[Strike]) -> None:
    if sum(strike.quarters for strike in known) < 2 * STRIKE:
        assert judged(*known) is None


def test_a_machine_on_trial_goes_at_its_first_failure() -> None:
    on_trial = replace(MACHINE, on_trial=True, quarantines=1)
    crash = replace(ALONE, kind="crashed", quarters=STRIKE // 2)
    verdict = judged(crash, machine=on_trial)
    assert isinstance(verdict, Quarantine) and verdict.because == "failed its trial: the trainer crashed"
    assert judged(SAID_OF_THE_JOB, machine=on_trial) is None


def test_each_quarantine_is_twice_as_long_as_the_one_before() -> None:
    lengths = []
    for count in range(4):
        verdict = judged(SURE, SURE, machine=replace(MACHINE, quarantines=count))
        assert isinstance(verdict, Quarantine)
        lengths.append(verdict.until_ms)
    assert all(after == 2 * before for before, after in pairwise(lengths))


@pytest.mark.parametrize(
    ("lately", "nodes", "sent_away"), [(0, 1, True), (1, 9, False), (9, 100, True), (10, 100, False)]
)
def test_never_more_than_a_tenth_of_a_pool_is_sent_away_within_an_hour(
    lately: int, nodes: int, sent_away: bool
) -> None:
    verdict = judged(SURE, SURE, pool=PoolHealth(nodes=nodes, others=1, quarantined_lately=lately, may_rent=False))
    assert isinstance(verdict, Quarantine if sent_away else Alarm)
    assert sent_away or "an operator should look" in verdict.because


def test_the_last_machine_of_a_pool_that_can_rent_no_other_goes_on_trial_at_once_and_says_why() -> None:
    assert judged(SURE, pool=LAST) is None
    verdict = judged(SURE, SURE, machine=replace(MACHINE, failures=2), pool=LAST)
    assert verdict == TrialDue(
        30_000,
        "2 strikes: the GPU failed; no other machine of its pool works and none can be started, "
        "so it continues with one job at a time, after a rest of 30 s",
    )


def test_a_machine_that_can_be_replaced_is_quarantined_however_alone_it_is() -> None:
    assert isinstance(judged(SURE, SURE, pool=replace(LAST, may_rent=True)), Quarantine)
    assert isinstance(judged(SURE, SURE, pool=replace(LAST, nodes=2, others=1)), Quarantine)


def test_of_a_pool_whose_others_were_all_sent_away_the_last_machine_goes_on_trial() -> None:
    assert isinstance(judged(SURE, SURE, pool=replace(LAST, nodes=3, quarantined_lately=2)), TrialDue)


def test_a_last_machine_that_fails_its_trial_rests_for_twice_as_long_each_time_up_to_a_bound() -> None:
    crash = replace(ALONE, kind="crashed", quarters=STRIKE // 2)
    rests = []
    for failures in range(40):
        verdict = judged(crash, machine=Machine(on_trial=True, failures=failures), pool=LAST)
        assert isinstance(verdict, TrialDue) and "failed its trial: the trainer crashed" in verdict.because
        rests.append(verdict.rest_until_ms)
    assert rests[:2] == [1000 * POLICY.rest_first_s] * 2
    assert all(after in (2 * before, 1000 * POLICY.rest_max_s) for before, after in pairwise(rests[1:]))
    assert rests[-1] == 1000 * POLICY.rest_max_s


@pytest.mark.parametrize(
    ("nodes_max", "rented", "gives_back", "may"),
    [(None, 0, 0, False), (0, 0, 0, False), (1, 1, 1, True), (2, 1, 0, True), (2, 2, 0, False), (2, 2, 1, True)],
)
def test_a_pool_may_rent_where_it_has_room_or_a_node_is_given_back_for_another(
    nodes_max: int | None, rented: int, gives_back: int, may: bool
) -> None:
    limits = None if nodes_max is None else PoolLimits(name="cloud", nodes_min=0, nodes_max=nodes_max)
    assert may_rent(limits, rented=rented, gives_back=gives_back) is may


def test_a_machine_rests_from_its_second_failure_in_a_row_for_longer_each_time_up_to_a_bound() -> None:
    rests = [rest_ms(failures, POLICY) for failures in range(40)]
    assert rests[:3] == [0, 0, 1000 * POLICY.rest_first_s]
    assert all(after in (2 * before, 1000 * POLICY.rest_max_s) for before, after in pairwise(rests[2:]))
    assert rests[-1] == 1000 * POLICY.rest_max_s
