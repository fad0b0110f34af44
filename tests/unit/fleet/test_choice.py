"""Which offer, of all pools together, is expected to finish a step for least."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gangline.core.fleet.autoscale import PoolLimits, StartNode
from gangline.core.fleet.choice import (
    ClassPace,
    Expectation,
    History,
    OfferFacts,
    PaceTable,
    cold_start_s,
    expect,
    interruptions_per_hour,
)
from gangline.core.fleet.needs import NodeShape, QueuedWork, Room
from gangline.core.fleet.plan import PoolNow, plan
from tests.unit.examples import POLICY
from tests.unit.fleet.test_autoscale import NEED, NOW_MS

HOUR_MS = 3_600_000
SAVES_RARELY = replace(POLICY, save_interval_s=300)
SHAPE = NodeShape(pool="a", gpu="RTX 4090", gpu_memory_gb=24, kinds=",lora,")
KNOWN = History(ms=1000 * HOUR_MS, starts=1000, starts_ms=1000 * 60_000)
OFFER = OfferFacts(offer="offer", shape=SHAPE, price_micro_usd_per_hour=300_000, history=KNOWN)
PACE = ClassPace(workload="w", gpu="RTX 4090", seconds_per_step=2.0)
LONG = replace(NEED, steps=10_000, save_s=300.0)


def expected(offer: OfferFacts, need: QueuedWork = LONG, *paces: ClassPace, shared_by: int = 1) -> Expectation:
    return expect(need, offer, PaceTable(paces or [PACE]), SAVES_RARELY, shared_by=shared_by)


def often(offer: OfferFacts, per_hour: int) -> OfferFacts:
    return replace(offer, history=replace(KNOWN, lost=1000 * per_hour))


def test_a_steady_offer_costs_its_price_for_the_steps_and_one_cold_start() -> None:
    found = expected(OFFER)
    hours = (10_000 * 2.0 + 60.4) / 3600
    assert found.micro_usd_per_step == pytest.approx(300_000 * hours / 10_000, rel=0.001)
    assert (found.measured, found.seconds_per_step) == (True, 2.0)


def test_interruptions_cost_half_an_interval_and_a_cold_start_each() -> None:
    steady, lost = expected(OFFER), expected(often(OFFER, 1))
    per_hour = 300 / 2 + 60.4
    assert lost.factor / steady.factor == pytest.approx(3600 / (3600 - per_hour), rel=0.005)


def test_what_each_start_downloads_is_paid_for_again_after_an_interruption() -> None:
    need = replace(LONG, download_bytes=7e9)
    policy = replace(SAVES_RARELY, egress_usd_per_gb=0.1)
    steady = expect(need, OFFER, PaceTable([PACE]), policy, shared_by=1)
    lost = expect(need, often(OFFER, 1), PaceTable([PACE]), policy, shared_by=1)
    assert steady.egress_micro_usd == pytest.approx(700_000, rel=0.01)
    assert lost.egress_micro_usd == pytest.approx(700_000 * (1 + 10_000 * 2 / 3600), rel=0.1)


def test_idle_slots_are_paid_for_by_those_that_work() -> None:
    eight = replace(OFFER, shape=replace(SHAPE, slots=8), price_micro_usd_per_hour=8 * 300_000)
    assert expected(eight, shared_by=8).micro_usd_per_step == pytest.approx(expected(OFFER).micro_usd_per_step)
    assert expected(eight).micro_usd_per_step == pytest.approx(8 * expected(OFFER).micro_usd_per_step)
    assert expected(eight, replace(LONG, slots=4), shared_by=4).micro_usd_per_step == pytest.approx(
        8 * expected(OFFER).micro_usd_per_step
    )


def test_what_was_never_tried_is_assumed_and_what_was_seen_soon_counts_more() -> None:
    assert interruptions_per_hour(History()) == pytest.approx(0.05)
    assert interruptions_per_hour(History(lost=100, ms=50 * HOUR_MS)) == pytest.approx(100 / 50, rel=0.1)
    assert cold_start_s(History(), POLICY) == POLICY.move_s
    assert cold_start_s(KNOWN, POLICY) == pytest.approx(60, rel=0.01)


def test_a_class_is_as_fast_as_it_was_at_other_workloads_else_as_its_vendor_says_else_as_the_best() -> None:
    h100 = replace(OFFER, shape=replace(SHAPE, gpu="H100 SXM"))
    elsewhere = [
        replace(PACE, workload="other", seconds_per_step=4.0),
        ClassPace(workload="other", gpu="H100 SXM", seconds_per_step=1.0),
    ]
    assert expected(h100, LONG, PACE, *elsewhere).seconds_per_step == pytest.approx(0.5)
    by_vendor = expected(h100, LONG, PACE)
    assert not by_vendor.measured and 0.3 < by_vendor.seconds_per_step < 1.0
    unheard = replace(OFFER, shape=replace(SHAPE, gpu="Z1"))
    assert expected(unheard, LONG, PACE, replace(PACE, gpu="L4", seconds_per_step=6)).seconds_per_step == 2.0


def test_each_node_in_a_row_that_fails_its_probe_doubles_what_is_expected_of_its_offer() -> None:
    bare = replace(OFFER, failed_probes=2)
    assert expected(bare).micro_usd_per_step == pytest.approx(4 * expected(OFFER).micro_usd_per_step)


# Over all pools


def pool(name: str, *offers: OfferFacts, most: int = 9, starts: int = 99, away: bool = False) -> PoolNow:
    mine = [replace(offer, shape=replace(offer.shape, pool=name)) for offer in offers]
    limits = PoolLimits(name=name, nodes_min=0, nodes_max=most)
    return PoolNow(limits=limits, nodes=[], offers=mine, starts_max=starts, is_away=away)


def rented(needs: Sequence[QueuedWork], *pools: PoolNow, by_hand: Sequence[Room] = ()) -> dict[str, list[str]]:
    found = plan(pools, by_hand, needs, [PACE], NOW_MS, SAVES_RARELY)
    return {
        name: [action.offer for action in actions if isinstance(action, StartNode)]
        for name, actions in found.items()
        if actions
    }


CHEAP = replace(OFFER, offer="cheap", price_micro_usd_per_hour=200_000)


def test_the_cheapest_step_of_all_pools_is_rented_and_the_next_where_it_has_no_room() -> None:
    three = [replace(NEED, jobs=3)]
    assert rented(three, pool("a", OFFER), pool("b", CHEAP)) == {"b": ["cheap"] * 3}
    assert rented(three, pool("a", OFFER), pool("b", CHEAP, most=2)) == {"a": ["offer"], "b": ["cheap"] * 2}
    assert rented(three, pool("a", OFFER), pool("b", CHEAP, starts=1)) == {"a": ["offer"] * 2, "b": ["cheap"]}


def test_nothing_is_rented_where_the_provider_is_silent_or_refused() -> None:
    assert rented([NEED], pool("a", OFFER), pool("b", CHEAP, away=True)) == {"a": ["offer"]}
    assert rented([NEED], pool("a", OFFER), pool("b", replace(CHEAP, refused=True))) == {"a": ["offer"]}


def test_a_cheap_offer_that_is_often_interrupted_gives_way_to_a_steady_one() -> None:
    assert rented([LONG], pool("a", OFFER), pool("b", often(CHEAP, 12))) == {"a": ["offer"]}
    assert rented([LONG], pool("a", OFFER), pool("b", often(CHEAP, 1))) == {"b": ["cheap"]}


def test_a_node_of_eight_slots_is_rented_for_eight_jobs_not_for_one() -> None:
    eight = replace(OFFER, offer="eight", shape=replace(SHAPE, slots=8), price_micro_usd_per_hour=8 * 150_000)
    assert rented([replace(NEED, jobs=16)], pool("a", OFFER), pool("b", eight)) == {"b": ["eight"] * 2}
    assert rented([NEED], pool("a", OFFER), pool("b", eight)) == {"a": ["offer"]}
    both = [replace(NEED, jobs=4), replace(NEED, project="q", jobs=4)]
    assert rented(both, pool("a", OFFER), pool("b", eight)) == {"b": ["eight"]}


def test_a_job_goes_only_where_it_may() -> None:
    assert rented([replace(NEED, pool="a")], pool("a", OFFER), pool("b", CHEAP)) == {"a": ["offer"]}
    assert rented([replace(NEED, gpu_memory_gb=48)], pool("a", OFFER)) == {}


def test_a_node_that_joined_by_hand_and_is_free_is_not_rented_for() -> None:
    free = Room(node="home", shape=replace(SHAPE, pool="home"), free=1)
    assert rented([NEED], pool("a", OFFER), by_hand=[free]) == {}
    assert rented([replace(NEED, jobs=2)], pool("a", OFFER), by_hand=[free]) == {"a": ["offer"]}


def test_a_budget_is_not_spent_twice_over() -> None:
    each = round(300_000 * POLICY.reserve_s / 3600)
    tight = [replace(NEED, jobs=9, left=2 * each), replace(NEED, workload="other", jobs=9, left=2 * each)]
    assert rented(tight, pool("a", OFFER)) == {"a": ["offer"] * 2}
    assert rented([replace(NEED, left=each - 1)], pool("a", OFFER)) == {}
    unknown = replace(OFFER, price_known=False)
    assert rented([replace(NEED, left=10**9)], pool("a", unknown)) == {}
    assert rented([NEED], pool("a", unknown)) == {"a": ["offer"]}
