"""Which timesteps are trained at: those of a range, as often as the bias says, and each a function of seed, step and sample."""

from typing import Any

import numpy as np
import pytest

from gangline.core.errors import BadInput
from gangline.core.specs.sections.objective import ObjectiveSettings
from gangline.data.chance import stream
from gangline.train.model.timesteps import TimestepSampler
from gangline.train.run import chance

COUNT, DRAWN = 1000, 20_000


def sampler(count: int = COUNT, **settings: Any) -> TimestepSampler:
    return TimestepSampler(ObjectiveSettings(**settings), count)


def drawn(**settings: Any) -> np.ndarray:
    return sampler(**settings).draw(7, 3, range(DRAWN)).numpy()


def weights_of(
    strategy: str, multiplier: float, *, portion: float = 0.25, begin: int = 0, end: int = COUNT
) -> np.ndarray:
    """As diffusers' script for SDXL makes them."""
    weights = np.ones(COUNT)
    some = int(portion * COUNT)
    chosen = {"later": slice(-some, None), "earlier": slice(0, some), "range": slice(begin, end)}[strategy]
    weights[chosen] *= multiplier
    return weights / weights.sum()


BIASES: dict[str, dict[str, Any]] = {
    "later": {"multiplier": 3.0, "portion": 0.5},
    "earlier": {"multiplier": 0.25},
    "range": {"multiplier": 10.0, "begin": 200, "end": 500},
}


@pytest.mark.parametrize("strategy", BIASES)
def test_timesteps_are_drawn_as_often_as_diffusers_weights_say(strategy: str) -> None:
    given = BIASES[strategy]
    settings = {f"timestep_bias_{name}": value for name, value in given.items()}
    found = np.bincount(drawn(timestep_bias_strategy=strategy, **settings), minlength=COUNT)
    expected = DRAWN * weights_of(strategy, **given)
    tens, expected_tens = found.reshape(-1, 10).sum(axis=1), expected.reshape(-1, 10).sum(axis=1)
    statistic = float(((tens - expected_tens) ** 2 / expected_tens).sum())
    assert statistic < 99 + 5 * (2 * 99) ** 0.5  # χ² with 99 degrees of freedom: five deviations above its mean


def test_a_range_is_drawn_from_evenly_and_its_end_is_not_in_it() -> None:
    found = drawn(min_timestep=200, max_timestep=210)
    assert set(found) == set(range(200, 210))
    assert (np.bincount(found - 200) > 0.9 * DRAWN / 10).all()
    assert set(drawn(min_timestep=999)) == {999} and set(drawn(max_timestep=1)) == {0}


@pytest.mark.parametrize(("strategy", "often"), [("earlier", range(200, 250)), ("later", range(350, 400))])
def test_a_portion_is_one_of_the_range_that_is_trained(strategy: str, often: range) -> None:
    settings = {"min_timestep": 200, "max_timestep": 400, "timestep_bias_strategy": strategy}
    found = drawn(**settings, timestep_bias_multiplier=1e6)
    assert found.min() >= often[0] and found.max() <= often[-1]


def test_a_biased_range_that_reaches_beyond_the_trained_one_is_cut() -> None:
    bias = {"timestep_bias_strategy": "range", "timestep_bias_multiplier": 1e6}
    found = drawn(min_timestep=100, max_timestep=300, timestep_bias_begin=50, timestep_bias_end=110, **bias)
    assert set(found) == set(range(100, 110))
    assert set(drawn(min_timestep=100, max_timestep=300, timestep_bias_begin=290, **bias)) == set(range(290, 300))


def test_a_timestep_is_a_function_of_seed_step_and_sample_alone() -> None:
    """In float64, by one number of the sample's own stream: its place among the sums of the weights."""
    biased = sampler(timestep_bias_strategy="later", timestep_bias_multiplier=3.0)
    together = biased.draw(7, 3, range(50)).tolist()
    sums = np.cumsum(weights_of("later", 3.0) * (750 + 3 * 250))
    alone = [int((sums <= stream(7, "timestep", 3, sample).random() * sums[-1]).sum()) for sample in range(50)]
    assert together == alone
    assert biased.draw(7, 3, [31, 4]).tolist() == [together[31], together[4]]
    assert biased.draw(7, 4, range(50)).tolist() != together != biased.draw(8, 3, range(50)).tolist()


def test_without_a_setting_timesteps_are_those_of_every_release_so_far() -> None:
    assert sampler().draw(7, 3, range(50)).equal(chance.integers(7, "timestep", 3, range(50), COUNT))


def test_the_last_place_is_drawn_where_a_product_is_rounded_up() -> None:
    found = chance.weighted(0, "x", 0, range(1000), np.full(3, 1e-320))
    assert set(found.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_timestep": 600}, "max_timestep is 600, but this base has 500 timesteps"),
        ({"min_timestep": 500}, "min_timestep is 500, but this base has 500 timesteps"),
        (
            {"timestep_bias_strategy": "range", "timestep_bias_multiplier": 2.0, "timestep_bias_end": 501},
            "timestep_bias_end is 501, but this base has 500 timesteps",
        ),
    ],
)
def test_a_base_with_fewer_timesteps_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{sentence}$"):
        sampler(500, **settings)
