"""A job that is extended has the old spec with more steps, and it is said before what its learning rate does."""

from dataclasses import replace
from itertools import pairwise

import pytest

from gangline.core.canonical import digest
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.runs.extension import ExtensionSchedule, extended, notes, remaining, ways
from gangline.core.runs.schedule import rate_factor, rates_on_the_way
from gangline.core.specs.phases import TrainingPhase, moment_of_step
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.spec import continued, parse_spec, parse_submitted, spec_hash
from tests.unit.specs.specs_of_every_setting import COMMAND, LORA, UNET

OLD = Continued(job="job-a", step=8, spec_hash=digest("old"))
COSINE = replace(LORA, steps=10, schedule="cosine", learning_rate=1.0)


def rates(spec: TrainingSpec) -> list[float]:
    return [rate_factor(spec, step) for step in range(1, spec.steps + 1)]


def both(spec: TrainingSpec, steps: int) -> dict[ExtensionSchedule, TrainingSpec]:
    return {"keep": extended(spec, steps, "keep", OLD), "stretch": extended(spec, steps, "stretch", OLD)}


# The learning rate


@pytest.mark.parametrize("schedule", ["linear", "cosine", "cosine_with_restarts"])
@pytest.mark.parametrize("spec", [replace(LORA, steps=15), UNET], ids=["lora", "scratch"])
def test_kept_the_schedule_is_the_old_one_and_then_stays(spec: TrainingSpec, schedule: str) -> None:
    old = replace(spec, schedule=schedule, warmup_steps=3, schedule_floor=0.1)
    new = extended(old, 21, "keep", OLD)
    assert (new.steps, new.schedule_steps) == (21, 15)
    assert rates(new) == rates(old) + 6 * rates(old)[-1:]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "cosine_with_restarts"])
@pytest.mark.parametrize("spec", [replace(LORA, steps=15), UNET], ids=["lora", "scratch"])
def test_stretched_it_is_that_of_a_job_of_as_many_steps(spec: TrainingSpec, schedule: str) -> None:
    old = replace(spec, schedule=schedule, warmup_steps=3, schedule_cycles=2 if "restarts" in schedule else 1)
    longer = replace(UNET.phases[-1], steps=11)
    as_new = replace(old, steps=21) if old.kind == "lora" else replace(old, phases=(UNET.phases[0], longer))
    assert rates(extended(old, 21, "stretch", OLD)) == rates(as_new)


def test_one_that_is_kept_may_be_kept_again_or_stretched() -> None:
    kept = extended(COSINE, 20, "keep", OLD)
    assert extended(kept, 30, "keep", OLD).schedule_steps == 10
    assert extended(kept, 30, "stretch", OLD).schedule_steps is None


def test_an_early_end_may_be_extended_to_fewer_steps_than_it_was_to_have() -> None:
    kept, stretched = both(COSINE, 9).values()
    assert rates(kept) == rates(COSINE)[:9]
    assert rates(stretched) == rates(replace(COSINE, steps=9))
    assert both(COSINE, 10)["keep"].schedule_steps is None


def test_without_a_schedule_there_is_nothing_to_choose() -> None:
    kept, stretched = both(replace(LORA, optimizer="schedule_free", warmup_steps=4), 1000).values()
    assert kept == stretched
    (only,) = ways(LORA, 500, both(LORA, 1000))
    assert (only.schedule, only.before.learning_rate) == ("constant", 1e-4)


def test_the_rates_at_the_old_end_the_new_start_the_middle_and_the_end_are_told() -> None:
    keep, stretch = ways(COSINE, 10, both(COSINE, 20))
    half = 0.5
    assert (stretch.before.step, stretch.start.step, stretch.middle.step, stretch.end.step) == (10, 9, 14, 20)
    assert keep.before == stretch.before
    assert stretch.start.learning_rate > half > stretch.middle.learning_rate > stretch.end.learning_rate
    assert keep.start.learning_rate > keep.before.learning_rate == keep.middle.learning_rate == keep.end.learning_rate


def test_a_phases_own_rate_and_warm_up_count_and_so_does_that_of_schedule_free() -> None:
    phases = (UNET.phases[0], replace(UNET.phases[1], learning_rate=1e-3, warmup_steps=5))
    spec = replace(UNET, phases=phases)
    assert [each.learning_rate for each in rates_on_the_way(spec)] == [1e-4, 1e-4, 1e-3]
    (way,) = ways(spec, 12, both(spec, 15))
    assert way.before.learning_rate == pytest.approx(4e-4)
    free = replace(LORA, optimizer="schedule_free", warmup_steps=500, learning_rate=1.0)
    assert [each.learning_rate for each in rates_on_the_way(free)] == pytest.approx([1 / 500, 0.5, 1.0])


def test_it_is_said_which_steps_are_trained_again_and_when_little_is_learned() -> None:
    keep, stretch = ways(replace(COSINE, steps=100), 100, both(replace(COSINE, steps=100), 200))
    spec = replace(COSINE, steps=100)
    assert notes(spec, 100, 100, stretch) == ()
    assert notes(spec, 98, 100, stretch) == (
        "the newest checkpoint is that of step 98: steps 99 to 100 are trained again, with the rates of the new schedule",
    )
    again, little = notes(spec, 99, 100, replace(keep, start=keep.end))
    assert again.endswith("step 100 is trained again, with the same learning rates")
    assert little.startswith("the learning rate stays at 0.00025, so little more is learned")
    assert "Prodigy" in notes(replace(spec, optimizer="prodigy"), 100, 100, stretch)[0]


# Steps and phases


def of(*steps: int) -> tuple[TrainingPhase, ...]:
    return tuple(replace(UNET.phases[0], steps=count, resolution=64 * (1 + place)) for place, count in enumerate(steps))


@pytest.mark.parametrize(("steps", "becomes"), [(40, (10, 5, 25)), (16, (10, 5, 1)), (15, (10, 5)), (9, (9,))])
def test_the_last_phase_becomes_longer_or_the_end_is_cut_off(steps: int, becomes: tuple[int, ...]) -> None:
    new = extended(replace(UNET, phases=of(10, 5, 5)), steps, "stretch", OLD)
    assert new.steps == steps and new.phases == of(*becomes)


def test_a_step_that_was_taken_is_where_it_was() -> None:
    old = replace(UNET, phases=of(10, 5, 5))
    for steps in (9, 14, 16, 40):
        new = extended(old, steps, "stretch", OLD)
        for step in range(1, 9):
            had, has = moment_of_step(old.phases, step), moment_of_step(new.phases, step)
            assert (had.number, had.first_sample) == (has.number, has.first_sample)


def test_only_the_steps_that_are_left_are_estimated() -> None:
    assert remaining(LORA) == LORA
    assert remaining(extended(LORA, 1000, "stretch", replace(OLD, step=400))).steps == 600
    new = extended(replace(UNET, phases=of(10, 5, 5)), 30, "stretch", replace(OLD, step=12))
    assert [phase.steps for phase in remaining(new).phases] == [3, 15]
    assert all(phase in of(10, 3, 15) for phase in remaining(new).phases)


# The spec


def test_its_hash_tells_from_which_history_it_continues_and_not_whose() -> None:
    for old in (LORA, UNET):
        new = extended(old, 1000, "stretch", OLD)
        others = [replace(OLD, step=9), replace(OLD, spec_hash=digest("another"))]
        hashes = [spec_hash(spec) for spec in (old, new, *(replace(new, continues=other) for other in others))]
        assert len(set(hashes)) == 4
        assert spec_hash(replace(new, continues=replace(OLD, job="job-b"))) == spec_hash(new)


def test_it_is_read_again_as_it_was_written_and_nobody_submits_one() -> None:
    for old in (replace(LORA, schedule="cosine"), UNET):
        new = extended(old, 1000, "keep", OLD)
        assert parse_spec(to_json(new)) == new and continued(new) == OLD
        with pytest.raises(InvalidSpec, match="continues: names a checkpoint of another job") as error:
            parse_submitted(to_json(new))
        assert "gangline jobs extend" in str(error.value.hint)
    assert continued(COMMAND) is None


def test_rates_only_fall_where_they_should() -> None:
    assert all(sooner >= later for sooner, later in pairwise(rates(extended(COSINE, 40, "stretch", OLD))))
