"""The map of who wins where: each offer alone, all of them together, and a bound."""

from dataclasses import replace
from math import exp

import pytest

from gangline.sim.choice.bound import foreseen_usd, offer_models
from gangline.sim.choice.sweep import FACTORS, OURS, alone, choices, interrupted, make_map, play_once, plays
from gangline.sim.scenario import Scenario, load_scenario

HIGH, MEDIUM, LOW, BATCH = (
    f"default: RTX 4090 24 GB at ${price:.2f}/h ({name})"
    for price, name in ((0.3, "high"), (0.26, "medium"), (0.22, "low"), (0.18, "batch"))
)


def small(name: str, jobs: int) -> Scenario:
    scenario = load_scenario(name)
    return replace(scenario, jobs=tuple(replace(batch, count=jobs) for batch in scenario.jobs))


def test_the_choices_are_the_offers_of_all_pools() -> None:
    assert choices(load_scenario("priorities")) == [HIGH, MEDIUM, LOW, BATCH]
    assert [choice.split(":")[0] for choice in choices(load_scenario("many_pools"))] == [
        "community",
        "spot",
        "on-demand",
        "old",
    ]


def test_an_offer_alone_has_the_machines_that_it_has_among_others() -> None:
    scenario = load_scenario("many_pools")
    for choice, among in zip(choices(scenario), offer_models(scenario, 3), strict=True):
        [only] = offer_models(alone(scenario, choice), 3)
        assert only.seconds_per_step == among.seconds_per_step


def test_a_factor_multiplies_the_rates_of_every_offer() -> None:
    for name in ("priorities", "many_pools"):
        scenario = load_scenario(name)
        before, after = offer_models(scenario, 0), offer_models(interrupted(scenario, 4), 0)
        for one, other in zip(before, after, strict=True):
            assert other.interruptions_per_hour == pytest.approx(4 * one.interruptions_per_hour)


def test_the_bound_pays_for_each_useful_second_and_for_a_start_after_each_interruption() -> None:
    scenario = alone(load_scenario("priorities"), BATCH)
    [batch] = scenario.jobs
    [offer] = offer_models(scenario, 0)
    start_s = 5 + (6.9e9 + 66e6) / (500 * 125_000) + 20
    useful_s = 20 + batch.steps * offer.seconds_per_step
    assert foreseen_usd(interrupted(scenario, 0), 0) == pytest.approx(useful_s * 0.18 / 3600)
    assert foreseen_usd(scenario, 0) == pytest.approx(useful_s * 0.18 / 3600 * exp(1.5 / 3600 * start_s))
    sends = replace(scenario, policy=scenario.policy | {"egress_usd_per_gb": 0.01})
    paid_s = useful_s * exp(1.5 / 3600 * start_s)
    assert foreseen_usd(sends, 0) - foreseen_usd(scenario, 0) == pytest.approx(paid_s * 1.5 / 3600 * 0.06966)


def test_the_bound_takes_the_cheapest_offer_at_each_rate() -> None:
    scenario = load_scenario("priorities")
    for factor, best in ((0.25, BATCH), (40, HIGH)):
        at = interrupted(scenario, factor)
        assert foreseen_usd(at, 0) == foreseen_usd(alone(at, best), 0)


def test_a_map_has_each_offer_alone_and_all_of_them() -> None:
    scenario = small("priorities", 10)
    [row] = make_map([play_once(play) for play in plays(scenario, [0.25], range(1))])
    assert list(row.alone) == [HIGH, MEDIUM, LOW, BATCH]
    assert row.best == BATCH and row.unfinished == 0
    assert row.bound < row.alone[BATCH] < row.alone[LOW] < row.alone[MEDIUM] < row.alone[HIGH]
    assert (row.above_best, row.above_bound) == (row.ours / row.alone[BATCH] - 1, row.ours / row.bound - 1)


def test_a_row_is_the_mean_over_its_seeds() -> None:
    played = [play_once(play) for play in plays(small("priorities", 4), [1], range(2)) if play.choice in (OURS, HIGH)]
    [row] = make_map(played)
    assert row.ours == pytest.approx(sum(each.usd_per_job for each in played if each.choice == OURS) / 2)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ["priorities", "many_pools"])
def test_the_choice_is_close_to_the_best_offer_alone_and_to_the_bound_at_every_rate(name: str, factor: float) -> None:
    [row] = make_map([play_once(play) for play in plays(load_scenario(name), [factor], range(1))])
    print(row)
    assert row.above_best <= 0.01
    assert row.above_bound <= 0.05
