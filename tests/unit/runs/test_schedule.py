"""The learning rate of each step is what the schedule's formula says, also after restarts."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from gangline.core.runs.schedule import rate_factor
from gangline.core.specs.sample import TrainingSpec
from tests.unit.specs.specs_of_every_setting import LORA, UNET


def spec_of(steps: int, *, cycles: int, warmup: int = 0, floor: float = 0.0) -> TrainingSpec:
    settings = {"schedule": "cosine_with_restarts", "schedule_cycles": cycles}
    return replace(LORA, steps=steps, warmup_steps=warmup, schedule_floor=floor, **settings)


def by_the_paper(taken: int, steps: int, cycles: int, floor: float) -> float:
    """Loshchilov & Hutter 2017, eq. 5, with T_i = steps / cycles, η_max = 1 and η_min the floor."""
    long = Fraction(steps, cycles)
    current = taken - (taken // long) * long
    return floor + (1 - floor) * (1 + math.cos(math.pi * float(current / long))) / 2


@pytest.mark.parametrize(("steps", "cycles"), [(12, 3), (100, 7), (1000, 4), (10, 10), (7, 1), (97, 96)])
@pytest.mark.parametrize("floor", [0.0, 0.2])
@pytest.mark.parametrize("warmup", [0, 5])
def test_a_cosine_with_restarts_is_the_published_one(steps: int, cycles: int, warmup: int, floor: float) -> None:
    spec = spec_of(steps + warmup, cycles=cycles, warmup=warmup, floor=floor)
    assert [rate_factor(spec, step) for step in range(1, warmup + 1)] == [step / 5 for step in range(1, warmup + 1)]
    found = [rate_factor(spec, warmup + 1 + taken) for taken in range(steps)]
    assert found == pytest.approx([by_the_paper(taken, steps, cycles, floor) for taken in range(steps)])
    assert found[0] == 1.0 and min(found) >= floor


def test_each_cycle_of_whole_steps_begins_with_the_full_rate() -> None:
    """Also where the share of the steps is a rounded number: 49 × (1 / 49) is less than 1."""
    for cycles in (3, 7, 49):
        spec = spec_of(10 * cycles, cycles=cycles)
        assert [rate_factor(spec, 1 + 10 * cycle) for cycle in range(cycles)] == [1.0] * cycles
        rates = [rate_factor(spec, step) for step in range(1, spec.steps + 1)]
        assert sum(later > sooner for sooner, later in pairwise(rates)) == cycles - 1


def test_one_cycle_is_the_cosine() -> None:
    for spec in (LORA, UNET):
        cosine = replace(spec, schedule="cosine", warmup_steps=3, schedule_floor=0.1)
        once = replace(cosine, schedule="cosine_with_restarts")
        steps = range(1, spec.steps + 1)
        assert [rate_factor(once, step) for step in steps] == pytest.approx(
            [rate_factor(cosine, step) for step in steps]
        )
