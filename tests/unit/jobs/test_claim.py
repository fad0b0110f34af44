"""Which job a node gets: order, fit, fair share, money."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.jobs.claim import (
    NOTHING,
    Choice,
    ClaimCandidate,
    Nothing,
    by_fair_share,
    choose,
    decayed,
    mismatch,
    refusal,
)
from gangline.core.money.budget import Purse, reservation
from tests.unit.examples import CANDIDATE, NODE, POLICY, PURSE

HALF_LIFE_MS = round(1000 * POLICY.usage_half_life_s)


def chosen(*candidates: ClaimCandidate, purse: Purse = PURSE, held: str = "", now_ms: int = 0) -> Choice | Nothing:
    return choose(candidates, NODE, purse, frozenset({held}), now_ms, POLICY)


def choice(*candidates: ClaimCandidate, **rest: Any) -> Choice:
    found = chosen(*candidates, **rest)
    assert isinstance(found, Choice), found
    return found


REFUSED: dict[str, dict[str, Any]] = {
    "node-a is draining: no work for it": {"state": "draining", "because": "no work for it"},
    "node-a is quarantined until 17:20 UTC: 2 strikes": {
        "state": "quarantined",
        "because": "quarantined: 2 strikes",
        "quarantined_until_ms": 62_400_000,
    },
    "node-a pauses after failures until 00:00:15 UTC": {"rest_until_ms": 15_000},
    "all 1 slots of node-a are taken": {"slots_free": 0},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_node_that_may_not_work_gets_nothing_and_hears_why(sentence: str) -> None:
    assert refusal(replace(NODE, **REFUSED[sentence]), 0) == Nothing(sentence, locked_out="slots" not in sentence)


@pytest.mark.parametrize("state", ["ready", "on_trial"])
def test_a_node_that_may_work_is_not_refused(state: Any) -> None:
    assert refusal(replace(NODE, state=state, rest_until_ms=5), 5) is None


MISFITS: dict[str, dict[str, Any]] = {
    "waits 3 s before its next try": {"ready_ms": 3000},
    "node-a failed it before": {"banned": True},
    "needs 80 GB of GPU memory and node-a has 40": {"gpu_memory_gb": 80},
    "needs an H200 and node-a has A100": {"gpu": "H200"},
    "needs the pool home and node-a is in default": {"pool": "home"},
    "needs trust 2 and node-a has 1": {"trust": 2},
    "must resume with the same numerics, and node-a has others": {"numerics": "other bits"},
    "needs 2 slots and node-a has 1 free": {"slots": 2},
}


@pytest.mark.parametrize("sentence", MISFITS)
def test_a_job_that_does_not_fit_is_passed_over_and_the_sentence_says_why(sentence: str) -> None:
    misfit = replace(CANDIDATE, **MISFITS[sentence])
    assert mismatch(misfit, NODE, 0) == sentence
    assert chosen(misfit) == Nothing(sentence)
    assert choice(misfit, replace(CANDIDATE, id="next")).job.id == "next"


def test_a_job_gets_a_node_that_has_all_it_asks_for_and_no_more() -> None:
    exact = replace(CANDIDATE, gpu="A100", gpu_memory_gb=40, pool="default", trust=1, numerics="bits")
    assert mismatch(exact, NODE, 0) is None


def test_the_queues_order_decides_and_the_choice_says_why() -> None:
    again = replace(CANDIDATE, id="again", fencing=1)
    assert choice(again, CANDIDATE).job is again
    assert choice(again).because == "taken by node-a: it was started before, so it comes before new jobs"
    assert choice(CANDIDATE).because == "taken by node-a: it was next in line"


def test_where_nothing_waits_that_is_said() -> None:
    assert chosen() == NOTHING


FIRST = replace(CANDIDATE, id="first", base="another")
HELD = replace(CANDIDATE, id="held", base="held")
BASE_WAIT_MS = round(1000 * POLICY.base_wait_s)


def test_among_equals_one_whose_base_the_node_holds_goes_first_for_a_while() -> None:
    found = choice(FIRST, HELD, held="held", now_ms=BASE_WAIT_MS)
    assert found.job is HELD and "whose base the node has" in found.because
    assert choice(FIRST, HELD, held="held", now_ms=BASE_WAIT_MS + 1).job is FIRST
    assert choice(FIRST, HELD, held="neither").job is FIRST


@pytest.mark.parametrize("change", [{"priority": -1}, {"fencing": 1}, {"slots": 2}])
def test_a_held_base_wins_only_among_equals_that_fit(change: dict[str, Any]) -> None:
    assert choice(FIRST, replace(HELD, **change), held="held").job is FIRST


def test_who_used_least_of_its_share_goes_first() -> None:
    purses = [
        replace(PURSE, project="much", usage=10, share=1),
        replace(PURSE, project="much of a large share", usage=10, share=5),
        replace(PURSE, project="little", usage=1, share=1),
    ]
    order = [purse.project for purse in by_fair_share(purses, 0, POLICY)]
    assert order == ["little", "much of a large share", "much"]


def test_usage_is_half_forgotten_after_a_half_life() -> None:
    used = replace(PURSE, usage=8, usage_ms=0)
    assert decayed(used, HALF_LIFE_MS, POLICY) == pytest.approx(4)
    old = replace(PURSE, project="old", usage=8, usage_ms=0)
    new = replace(PURSE, project="new", usage=5, usage_ms=HALF_LIFE_MS)
    assert by_fair_share([new, old], HALF_LIFE_MS, POLICY)[0] is old


purses = st.lists(
    st.builds(
        Purse,
        project=st.uuids().map(str),
        usage=st.floats(0, 1e12),
        usage_ms=st.integers(0, HALF_LIFE_MS),
        share=st.floats(0.01, 100),
        budget=st.none(),
        spent=st.just(0),
        reserved=st.just(0),
    ),
    max_size=8,
)


@given(purses, st.randoms())
def test_fair_share_orders_everybody_by_usage_over_share_whatever_the_order_before(
    known: list[Purse], chance: Any
) -> None:
    now_ms = HALF_LIFE_MS
    order = by_fair_share(known, now_ms, POLICY)
    weights = [decayed(purse, now_ms, POLICY) / purse.share for purse in order]
    assert weights == sorted(weights) and len(order) == len(known)
    shuffled = chance.sample(known, len(known))
    assert by_fair_share(shuffled, now_ms, POLICY) == order


def test_a_claim_reserves_money_for_its_slots_and_downloads_and_is_refused_without_it() -> None:
    least = reservation(324_000, 0, POLICY)
    assert choice(CANDIDATE).reserve == least
    sending = replace(POLICY, egress_usd_per_gb=0.09)
    heavy = replace(CANDIDATE, download_bytes=10**9)
    found = choose([heavy], NODE, PURSE, frozenset(), 0, sending)
    assert isinstance(found, Choice) and found.reserve == least + 90_000
    poor = replace(PURSE, budget=least - 1)
    answer = chosen(CANDIDATE, purse=poor)
    assert isinstance(answer, Nothing) and answer.because.startswith("the budget of p")


def test_what_the_budget_allows_does_not_wait_for_what_it_does_not() -> None:
    purse = replace(PURSE, budget=reservation(324_000, 0, POLICY))
    dear = replace(CANDIDATE, id="dear", download_bytes=10**12)
    light = replace(CANDIDATE, id="light")
    found = choose([dear, light], NODE, purse, frozenset(), 0, replace(POLICY, egress_usd_per_gb=1.0))
    assert isinstance(found, Choice) and found.job is light


candidates = st.lists(
    st.builds(
        replace,
        st.just(CANDIDATE),
        id=st.uuids().map(str),
        fencing=st.integers(0, 1),
        priority=st.integers(0, 1),
        queued_ms=st.integers(-2 * BASE_WAIT_MS, 0),
        ready_ms=st.integers(-1, 1),
        base=st.sampled_from(["held", "other"]),
        gpu_memory_gb=st.sampled_from([0, 80]),
        banned=st.booleans(),
    ),
    max_size=6,
)


@given(candidates)
def test_whatever_waits_the_choice_fits_and_passes_over_nobody_who_waited_too_long(known: list[ClaimCandidate]) -> None:
    fitting = [job for job in known if mismatch(job, NODE, 0) is None]
    found = chosen(*known, held="held")
    if not fitting:
        assert isinstance(found, Nothing)
        return
    assert isinstance(found, Choice) and found.job in fitting
    if found.job is not fitting[0]:
        assert found.job.base == "held" and -fitting[0].queued_ms <= BASE_WAIT_MS
        assert (found.job.priority, found.job.fencing) == (fitting[0].priority, fitting[0].fencing)


def test_a_node_on_trial_gets_one_job_at_a_time_however_many_slots_it_has() -> None:
    node = replace(NODE, state="on_trial", slots=4, slots_free=4)
    assert refusal(node, 0) is None
    refused = refusal(replace(node, slots_free=3), 0)
    assert refused and refused.because == "node-a is on trial: it gets one job at a time"
    assert refusal(replace(node, state="ready", slots_free=3), 0) is None
