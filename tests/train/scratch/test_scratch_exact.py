"""Runs over data sets end with the same bits however often they are interrupted, and with the same losses on any number of ranks."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, FINISH, checkpoint_name
from gangline.core.runs.extension import ExtensionSchedule, extended
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.spec import spec_hash
from gangline.data.dataset import DataSet
from gangline.train.checkpoints.limits import lower_limit
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.numerics import OtherNumerics
from gangline.train.scratch.trainer import run_scratch_trainer
from tests.train.bases import save_smallest, save_tiny
from tests.train.sets import (
    data_set,
    finish,
    kill_after_save,
    lay_out,
    lines,
    report_of,
    run_at,
    scratch_spec,
    start,
    with_latents,
)

TWO_PHASES = (
    TrainingPhase(steps=5, resolution=16, batch_size=8, microbatch=3),
    TrainingPhase(steps=5, resolution=32, batch_size=4, learning_rate=5e-4, microbatch=1),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, base: Path) -> DataSet:
    """With latents of the first phase's resolution alone: the other phase encodes."""
    return with_latents(data_set(tmp_path_factory.mktemp("data")), base, 16)


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory, base: Path, data: DataSet) -> RunDirectory:
    spec = scratch_spec(base, data, phases=TWO_PHASES, held_out_every_steps=4, checkpoint_every_steps=1)
    return finish(lay_out(tmp_path_factory.mktemp("one") / "run", spec, base))


@pytest.fixture(scope="module", params=["ddp", pytest.param("fsdp", marks=pytest.mark.nightly)])
def two_ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base: Path, data: DataSet
) -> RunDirectory:
    spec = scratch_spec(
        base, data, phases=TWO_PHASES, held_out_every_steps=4, checkpoint_every_steps=1, parallel=request.param
    )
    run = lay_out(tmp_path_factory.mktemp(request.param) / "run", spec, base)
    return run_at(run, ranks=2)


def again(run: RunDirectory, folder: Path, base: Path) -> RunDirectory:
    spec = run.read_training()
    return lay_out(folder, spec, base)


def hand_over(run: RunDirectory, to: RunDirectory, step: int) -> None:
    name = checkpoint_name(step)
    shutil.copytree(run.checkpoints / name, to.resume / name)


def test_a_run_killed_in_mid_epoch_ends_with_the_same_bits(tmp_path: Path, base: Path, one_rank: RunDirectory) -> None:
    run = again(one_rank, tmp_path / "run", base)
    kill_after_save(run, 7)
    resumed = finish(run)
    assert report_of(resumed) == report_of(one_rank)
    assert report_of(resumed)["exact"] is True


@pytest.mark.tenths
def test_two_ranks_killed_in_mid_epoch_end_with_the_same_bits(
    tmp_path: Path, base: Path, two_ranks: RunDirectory
) -> None:
    run = again(two_ranks, tmp_path / "run", base)
    kill_after_save(run, 7, ranks=2)
    run_at(run, ranks=2)
    assert report_of(run) == report_of(two_ranks)
    assert report_of(run)["fingerprint"]["ranks"] == "2" and report_of(run)["exact"] is True


class FinishedAfterStepSix(RunDirectory):
    """A run whose owner wants its result then."""

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        super().report_step(step, metrics, steps_since=steps_since)
        if step == 6:
            (self.path / FINISH).touch()


@pytest.mark.tenths
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_is_finished_early_gives_the_weights_of_its_step(
    tmp_path: Path, base: Path, one_rank: RunDirectory, ranks: int
) -> None:
    early, later = again(one_rank, tmp_path / "early", base), again(one_rank, tmp_path / "later", base)
    assert run_scratch_trainer(FinishedAfterStepSix(early.path), Orders()) == EXIT_DONE
    told = report_of(early)
    assert (told["steps"], told["steps_of_spec"]) == (7, 10)
    assert [one["step"] for one in told["held_out"]] == [0, 4, 7]
    hand_over(one_rank, later, 7)
    (later.path / FINISH).touch()
    assert report_of(run_at(later, ranks=ranks))["weights_digest"] == told["weights_digest"]


@pytest.mark.tenths
@pytest.mark.parametrize(
    ("ranks", "parallel"), [(1, "ddp"), (2, "ddp"), pytest.param(2, "fsdp", marks=pytest.mark.nightly)]
)
def test_a_run_that_stops_when_it_is_worse_has_the_weights_of_its_best_step(
    tmp_path: Path, base: Path, data: DataSet, ranks: int, parallel: str
) -> None:
    """However often it is interrupted, and on however many ranks."""

    def spec_of(steps: int, **settings: Any) -> ScratchSpec:
        phases = (TrainingPhase(steps=steps, batch_size=4, resolution=16),)
        return scratch_spec(
            base, data, phases=phases, learning_rate=0.02, ema_decay=None, checkpoint_every_steps=1, **settings
        )

    spec = spec_of(10, held_out_every_steps=1, stop_when_worse=2, parallel=parallel)
    whole = run_at(lay_out(tmp_path / "whole", spec, base), ranks=ranks)
    told = report_of(whole)
    assert told["steps"] == told["best_step"] + 2 < 10 and told["weights_of_step"] == told["best_step"]
    again = lay_out(tmp_path / "again", spec, base)
    hand_over(whole, again, told["best_step"] + 1)
    assert report_of(run_at(again, ranks=ranks)) == told
    alone = run_at(lay_out(tmp_path / "alone", spec_of(told["best_step"], parallel=parallel), base), ranks=ranks)
    assert report_of(alone)["weights_digest"] == told["weights_digest"]


def extended_run(old: RunDirectory, folder: Path, base: Path, schedule: ExtensionSchedule = "stretch") -> RunDirectory:
    """A run to fourteen steps that is given the old one's checkpoint of step 7."""
    spec = old.read_training()
    continues = Continued(job="job-old", step=7, spec_hash=spec_hash(spec))
    run = lay_out(folder, extended(spec, 14, schedule, continues), base)
    hand_over(old, run, 7)
    return run


def as_one(old: RunDirectory, folder: Path, base: Path, **settings: Any) -> RunDirectory:
    """A run of fourteen steps whose last phase has as many more."""
    spec = old.read_training()
    phases = (spec.phases[0], replace(spec.phases[1], steps=9))
    return finish(lay_out(folder, replace(spec, phases=phases, **settings), base))


def outcome(run: RunDirectory) -> dict[str, Any]:
    return {name: value for name, value in report_of(run).items() if name != "continues"}


@pytest.mark.tenths
def test_a_run_that_is_extended_ends_as_one_of_all_steps_and_a_kill_in_its_midst_changes_no_bit(
    tmp_path: Path, base: Path, one_rank: RunDirectory
) -> None:
    """With averaged weights and the curve of held-out rows: those of both runs are one."""
    whole = as_one(one_rank, tmp_path / "whole", base)
    run = extended_run(one_rank, tmp_path / "run", base)
    kill_after_save(run, 9)
    assert outcome(finish(run)) == outcome(whole)
    assert [one["step"] for one in report_of(run)["held_out"]] == [0, 4, 8, 12, 14]
    assert report_of(run)["exact"] is True and report_of(run)["continues"] == {"job": "job-old", "step": 7}


@pytest.mark.tenths
def test_two_ranks_that_are_extended_and_killed_end_as_one_run_of_all_steps(
    tmp_path: Path, base: Path, two_ranks: RunDirectory
) -> None:
    spec = two_ranks.read_training()
    phases = (spec.phases[0], replace(spec.phases[1], steps=9))
    whole = run_at(lay_out(tmp_path / "whole", replace(spec, phases=phases), base), ranks=2)
    run = extended_run(two_ranks, tmp_path / "run", base)
    kill_after_save(run, 9, ranks=2)
    assert outcome(run_at(run, ranks=2)) == outcome(whole)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_begins_from_no_checkpoint_but_the_one_that_it_continues(
    tmp_path: Path, base: Path, one_rank: RunDirectory, ranks: int
) -> None:
    run = extended_run(one_rank, tmp_path / "run", base)
    shutil.rmtree(run.resume / checkpoint_name(7))
    hand_over(one_rank, run, 6)
    started = start(run, ranks=ranks)
    assert set(started.ended()) == {EXIT_BAD_INPUT}
    assert "continues step 7 of job-old, and no valid checkpoint of that step is here" in started.log
    assert "it belongs to another job's spec, and this one continues step 7 of job-old alone" in started.log


def test_its_schedule_is_kept_or_stretched(tmp_path: Path, base: Path, data: DataSet) -> None:
    """Kept, it is one run of fourteen steps whose schedule is that of ten; stretched, its first step has the rate of the new one."""
    settings = {"schedule": "cosine", "warmup_steps": 2, "checkpoint_every_steps": 7}
    old = finish(lay_out(tmp_path / "old", scratch_spec(base, data, phases=TWO_PHASES, **settings), base))
    whole = as_one(old, tmp_path / "whole", base, schedule_steps=10)
    kept = finish(extended_run(old, tmp_path / "kept", base, "keep"))
    assert outcome(kept) == outcome(whole)
    stretched = finish(extended_run(old, tmp_path / "stretched", base))
    reported = {
        line["step"]: line.get("metrics", {}).get("learning_rate") for line in lines(stretched) if line.get("metrics")
    }
    for step, rate in reported.items():
        assert rate == pytest.approx(5e-4 * (1 + math.cos(math.pi * (step - 3) / 12)) / 2)


def test_two_ranks_learn_what_one_does(one_rank: RunDirectory, two_ranks: RunDirectory) -> None:
    alone, together = (
        {line["step"]: line["loss"] for line in lines(run) if line.get("loss")} for run in (one_rank, two_ranks)
    )
    assert list(alone) == list(together) == list(range(1, 11))
    assert np.allclose([*alone.values()], [*together.values()], rtol=1e-5)
    measured = [[one["held_out_loss"] for one in report_of(run)["held_out"]] for run in (one_rank, two_ranks)]
    assert np.allclose(*measured, rtol=1e-5) and len(measured[0]) == 4
    ours, theirs = (
        load_file(run.output / "unet" / "diffusion_pytorch_model.safetensors") for run in (one_rank, two_ranks)
    )
    assert ours.keys() == theirs.keys()
    off = sum(float((ours[name] - theirs[name]).square().sum()) for name in ours)
    assert off < 1e-6 * sum(float(ours[name].square().sum()) for name in ours)


def test_one_rank_goes_on_from_two_and_says_that_its_bits_are_others(
    tmp_path: Path, base: Path, one_rank: RunDirectory, two_ranks: RunDirectory
) -> None:
    run = again(two_ranks, tmp_path / "run", base)
    hand_over(two_ranks, run, 7)
    finish(run)
    assert report_of(run)["exact"] is False
    assert report_of(run)["held_out"][-1]["held_out_loss"] == pytest.approx(
        report_of(one_rank)["held_out"][-1]["held_out_loss"], rel=1e-5
    )


def test_a_run_whose_bits_must_stay_the_same_does_not_go_on_with_fewer_ranks(
    tmp_path: Path, base: Path, two_ranks: RunDirectory
) -> None:
    run = lay_out(tmp_path / "run", replace(two_ranks.read_training(), exact="required"), base)
    hand_over(two_ranks, run, 7)
    with pytest.raises(OtherNumerics, match="ranks 2 → 1"):
        finish(run)


@pytest.mark.parametrize(("limit", "exact"), [(4, True), (2, False)])
def test_a_run_that_goes_on_with_fewer_samples_at_a_time_than_its_checkpoint_says_that_its_bits_are_others(
    tmp_path: Path, base: Path, data: DataSet, limit: int, exact: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = scratch_spec(
        base, data, phases=(TrainingPhase(steps=3, resolution=16, batch_size=4),), checkpoint_every_steps=None
    )
    run = lay_out(tmp_path / "run", spec, base)
    assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    lower_limit(run.path, 0, limit)
    assert report_of(finish(run))["exact"] is exact
    assert report_of(run)["fingerprint"]["microbatch"] == str(limit)
    assert ("no longer exact to the bit: microbatch 4 → 2" in capsys.readouterr().err) is not exact


def test_a_run_whose_bits_must_stay_the_same_does_not_go_on_with_fewer_samples_than_its_checkpoint(
    tmp_path: Path, base: Path, data: DataSet
) -> None:
    phases = (TrainingPhase(steps=3, resolution=16, batch_size=4),)
    spec = scratch_spec(base, data, phases=phases, checkpoint_every_steps=None, exact="required")
    run = lay_out(tmp_path / "run", spec, base)
    assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    lower_limit(run.path, 0, 2)
    with pytest.raises(MemoryError, match=r"4 samples at a time, as in its steps so far.* set phases.0.microbatch"):
        finish(run)


FEATURES = {
    "fp16 with its scale, text encoders, all that changes the objective": {
        "precision": "fp16",
        "new": ("unet", "text_encoders"),
        "train_text_encoders": True,
        "text_encoder_learning_rate": 2e-3,
        "gradient_checkpointing": True,
        "min_snr_gamma": 5.0,
        "noise_offset": 0.1,
        "prediction_type": "v_prediction",
        "zero_terminal_snr": True,
        "schedule": "cosine",
        "warmup_steps": 3,
        "ema_from_step": 4,
    },
    "Huber loss, some timesteps more often": {
        "loss_type": "huber",
        "huber_schedule": "exponential",
        "min_timestep": 50,
        "timestep_bias_strategy": "later",
        "timestep_bias_multiplier": 3.0,
    },
    "bf16 and 8-bit moments": {"precision": "bf16", "optimizer": "adamw8bit", "ema_decay": None},
}


@pytest.mark.nightly
@pytest.mark.parametrize("features", FEATURES)
def test_an_interrupted_run_ends_with_the_same_bits_whatever_is_switched_on(
    tmp_path: Path, data: DataSet, features: str
) -> None:
    base = save_tiny(tmp_path / "sdxl", "sdxl")
    phases = (TrainingPhase(steps=5, resolution=16, batch_size=4, microbatch=3, crop="random"),)
    spec = scratch_spec(base, data, phases=phases, checkpoint_every_steps=None, **FEATURES[features])
    peaceful = finish(lay_out(tmp_path / "peaceful", spec, base))
    run = lay_out(tmp_path / "run", spec, base)
    for _ in range(3):
        assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    assert [path.name for path in sorted(run.checkpoints.iterdir())] == ["000001", "000002", "000003"]
    assert report_of(finish(run)) == report_of(peaceful)
    assert report_of(run)["exact"] is True


@pytest.mark.nightly
@pytest.mark.timeout(1200)  # kernels are compiled for minutes where none was before
def test_a_compiled_run_interrupted_in_its_second_phase_ends_with_the_same_bits(tmp_path: Path, data: DataSet) -> None:
    """The process that goes on sees the second phase's shapes first, and those of a batch that does not divide evenly."""
    base = save_smallest(tmp_path / "sd15")
    phases = (
        TrainingPhase(steps=2, resolution=16, batch_size=4, microbatch=3),
        TrainingPhase(steps=3, resolution=32, batch_size=3, microbatch=2),
    )
    shown = {"sample_prompts": ("a red disc",), "sample_steps": 1, "sample_seeds": (1,), "held_out_every_steps": 2}
    spec = scratch_spec(base, data, phases=phases, compile=True, checkpoint_every_steps=None, **shown)
    torch._dynamo.reset()
    peaceful = finish(lay_out(tmp_path / "peaceful", spec, base))
    run = lay_out(tmp_path / "run", spec, base)
    for _ in range(3):
        torch._dynamo.reset()  # as another process begins
        assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True, render=True)) == EXIT_STOPPED
    torch._dynamo.reset()
    assert report_of(finish(run)) == report_of(peaceful)
    assert report_of(run)["exact"] is True


@pytest.mark.nightly
@pytest.mark.timeout(1200)  # kernels are compiled for minutes where none was before
@pytest.mark.parametrize("parallel", ["fsdp", "ddp"])
def test_two_ranks_with_compiled_blocks_killed_between_phases_end_with_the_same_bits(
    tmp_path: Path, data: DataSet, parallel: str
) -> None:
    base = save_smallest(tmp_path / "sd15")
    phases = (
        TrainingPhase(steps=2, resolution=16, batch_size=4, microbatch=2),
        TrainingPhase(steps=2, resolution=32, batch_size=2, microbatch=1),
    )
    spec = scratch_spec(
        base, data, phases=phases, compile=True, parallel=parallel, checkpoint_every_steps=1, held_out_every_steps=2
    )
    peaceful = run_at(lay_out(tmp_path / "peaceful", spec, base), ranks=2)
    run = lay_out(tmp_path / "run", spec, base)
    kill_after_save(run, 2, ranks=2)
    run_at(run, ranks=2)
    assert report_of(run) == report_of(peaceful)
    assert report_of(run)["exact"] is True
