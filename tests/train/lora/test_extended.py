"""A job that is extended continues from a checkpoint of the old one, to the bit, with the learning rates that were shown before."""

import math
import os
import shutil
import signal
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.runs.contract import FINISH
from gangline.core.runs.extension import ExtensionSchedule, extended
from gangline.core.runs.schedule import rate_at
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.spec import parse_task, spec_hash
from gangline.train.learning.learner import Learner
from gangline.train.lora.trainer import prepare_lora, run_lora_trainer
from gangline.train.run import meter, numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from gangline.train.trainer import Place
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import STEPS, finish, lay_out, report_of, small_spec
from tests.train.learners import take_step

FROM, LONGER = 8, 18
"""The newest checkpoint of a job of twelve steps that saves after every fourth: a trainer saves none after its last step."""


def continuing(old: LoraSpec, step: int = FROM) -> Continued:
    return Continued(job="job-old", step=step, spec_hash=spec_hash(old))


def longer(old: LoraSpec, schedule: ExtensionSchedule = "stretch", steps: int = LONGER) -> LoraSpec:
    """The spec of the extended job, read as a node reads it."""
    spec = parse_task(to_json(extended(old, steps, schedule, continuing(old))))
    assert isinstance(spec, LoraSpec)
    return spec


def extend(old: RunDirectory, to: Path, spec: LoraSpec, *steps: int) -> RunDirectory:
    """Lay out a run of `spec` that is given checkpoints of the old one."""
    run = lay_out(to, spec)
    for step in steps or (FROM,):
        shutil.copytree(old.checkpoints / f"{step:06d}", run.resume / f"{step:06d}")
    return run


def outcome(run: RunDirectory) -> dict[str, Any]:
    return {name: value for name, value in report_of(run).items() if name != "continues"}


FEATURES: dict[str, dict[str, Any]] = {
    "averaged weights and photos that are held out": {"ema_decay": 0.9, "held_out_every_steps": 3},
    "a warm-up that is not over": {"warmup_steps": 10},
    "Prodigy": {"optimizer": "prodigy", "learning_rate": 1.0},
    "schedule-free, in its warm-up": {"optimizer": "schedule_free", "warmup_steps": 10},
    "8-bit AdamW": {"optimizer": "adamw8bit"},
    "a LoKr with text encoders": {"algorithm": "lokr", "train_text_encoder": True},
}


IN_CI = ("averaged weights and photos that are held out", "Prodigy")


@pytest.mark.parametrize(
    "features", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.tenths) for name in FEATURES]
)
def test_with_a_constant_schedule_it_ends_as_one_job_of_all_steps_would(tmp_path: Path, features: str) -> None:
    """Whatever has a state: it is in the checkpoint, and goes on."""
    held_out = (file_at(SUBJECT / sorted(SUBJECT.glob("*crying*.png"))[0].name, SUBJECT),)
    spec = small_spec(**FEATURES[features] | ({"held_out": held_out} if "held_out" in str(FEATURES[features]) else {}))
    old = finish(lay_out(tmp_path / "old", spec))
    whole = finish(lay_out(tmp_path / "whole", replace(spec, steps=LONGER)))
    run = finish(extend(old, tmp_path / "run", longer(spec)))
    assert outcome(run) == outcome(whole)
    assert report_of(run)["exact"] is True and report_of(run)["steps"] == LONGER
    assert report_of(run)["continues"] == {"job": "job-old", "step": FROM}


def cosine(step: int, steps: int) -> float:
    return (1 + math.cos(math.pi * ((step - 1) / steps))) / 2


def by_hand(folder: Path, spec: LoraSpec, factors: list[float]) -> dict[str, Any]:
    """The result of a run of the trainer's own pieces, whose learning rates come from here."""
    run = lay_out(folder, spec)
    run.steps = run.step = len(factors)
    numerics.choose_kernels(repeatable=True, precision=spec.precision)
    device = numerics.device()
    place = Place(ranks=Ranks(), device=device, dtype=numerics.dtype_of(spec.precision, device))
    training = prepare_lora(run, spec, place, Orders())
    assert training is not None and spec.schedule == "constant"
    learner = Learner(training.network, spec, place.ranks, device, place.dtype)
    full = learner.groups
    for step, factor in enumerate(factors, start=1):
        learner.groups = [replace(group, learning_rate=group.learning_rate * factor) for group in full]
        take_step(learner, training.batches, step)
    training.write_result(run, learner)
    training.close()
    return report_of(run)


@pytest.mark.tenths
@pytest.mark.parametrize("schedule", ["keep", "stretch"])
def test_with_a_schedule_its_steps_have_the_rates_that_were_shown(tmp_path: Path, schedule: ExtensionSchedule) -> None:
    """Kept, the retrained steps 9 to 12 and all before have the old rates; stretched, those of the new length begin with step 9."""
    spec = small_spec(ema_decay=0.9, schedule="cosine", checkpoint_every_steps=4)
    old = finish(lay_out(tmp_path / "old", spec))
    run = finish(extend(old, tmp_path / "run", longer(spec, schedule)))
    of_old = [cosine(step, STEPS) for step in range(1, STEPS + 1)]
    of_new = [cosine(step, LONGER) for step in range(1, LONGER + 1)]
    factors = {
        "keep": of_old + of_old[-1:] * (LONGER - STEPS),
        "stretch": of_old[:FROM] + of_new[FROM:],
    }[schedule]
    shown = [rate_at(longer(spec, schedule), step).learning_rate for step in range(FROM + 1, LONGER + 1)]
    assert shown == [spec.learning_rate * factor for factor in factors[FROM:]]
    constant = replace(spec, schedule="constant", steps=LONGER, checkpoint_every_steps=None)
    assert by_hand(tmp_path / "by hand", constant, factors)["weights_digest"] == report_of(run)["weights_digest"]


def test_kept_it_ends_as_one_job_with_a_schedule_of_as_many_steps(tmp_path: Path) -> None:
    spec = small_spec(schedule="linear", warmup_steps=2, schedule_floor=0.2)
    old = finish(lay_out(tmp_path / "old", spec))
    whole = finish(lay_out(tmp_path / "whole", replace(spec, steps=LONGER, schedule_steps=STEPS)))
    assert outcome(finish(extend(old, tmp_path / "run", longer(spec, "keep")))) == outcome(whole)


def test_one_that_was_finished_early_may_be_extended_to_fewer_steps_than_it_was_to_have(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    old = small_spec()
    run = finish(extend(uninterrupted, tmp_path / "run", longer(old, steps=10)))
    assert outcome(run) == outcome(finish(lay_out(tmp_path / "whole", replace(old, steps=10))))


class KilledAtStep(RunDirectory):
    """A run whose process the kernel ends in this step's report."""

    at = 0

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        super().report_step(step, metrics, steps_since=steps_since)
        if step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_at(run: RunDirectory, step: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            meter.REPORT_EVERY_S = 0.0
            killed = KilledAtStep(run.path)
            killed.at = step
            run_lora_trainer(killed, Orders())
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA does not outlive a fork")
def test_a_kill_in_the_midst_of_it_changes_no_bit(tmp_path: Path) -> None:
    """Before its first own checkpoint, when it begins once more from the old job's, and after it."""
    spec = small_spec(ema_decay=0.9, schedule="cosine", optimizer="adamw8bit")
    old = finish(lay_out(tmp_path / "old", spec))
    peaceful = finish(extend(old, tmp_path / "peaceful", longer(spec)))
    run = extend(old, tmp_path / "run", longer(spec))
    kill_at(run, 10)
    assert not run.checkpoints.exists()
    kill_at(run, 15)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["000012"]
    assert report_of(finish(run)) == report_of(peaceful)
    assert report_of(run)["exact"] is True


def test_it_begins_from_no_other_checkpoint(
    tmp_path: Path, uninterrupted: RunDirectory, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither from another step of the old job, nor from that step of a job with another spec, nor at the start."""
    old = small_spec()
    for number, spec in enumerate((longer(old), replace(longer(old), continues=continuing(replace(old, seed=1))))):
        run = extend(uninterrupted, tmp_path / str(number), spec, *((4,) if number == 0 else (4, FROM)))
        with pytest.raises(BadInput, match="continues step 8 of job-old, and no valid checkpoint of that step is here"):
            finish(run)
    said = capfd.readouterr().err
    assert "checkpoint 000004 is rejected: it belongs to another job's spec, and this one continues step 8" in said
    with pytest.raises(BadInput, match="no valid checkpoint"):
        finish(lay_out(tmp_path / "without", longer(old)))


def test_a_job_that_does_not_continue_it_begins_from_none_of_its_checkpoints(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    spec = replace(small_spec(), steps=LONGER)
    run = finish(extend(uninterrupted, tmp_path / "run", spec))
    first = (run.path / "progress.jsonl").read_text().splitlines()
    assert '"step": 0' in next(line for line in first if '"training"' in line)


def test_an_extended_job_may_be_extended_and_finished_early(tmp_path: Path) -> None:
    spec = small_spec()
    old = finish(lay_out(tmp_path / "old", spec))
    between = finish(extend(old, tmp_path / "between", longer(spec)))
    again = extended(longer(spec), 22, "stretch", Continued(job="job-b", step=16, spec_hash=spec_hash(longer(spec))))
    run = finish(extend(between, tmp_path / "run", again, 16))
    assert outcome(run) == outcome(finish(lay_out(tmp_path / "whole", replace(spec, steps=22))))
    short = extend(between, tmp_path / "short", again, 16)
    (short.path / FINISH).touch()
    assert (report_of(finish(short))["steps"], report_of(short)["steps_of_spec"]) == (16, 22)


def test_the_card_says_that_its_first_steps_were_another_runs(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = finish(extend(uninterrupted, tmp_path / "run", longer(small_spec())))
    card = (run.output / "README.md").read_text()
    assert "Its first 8 steps were those of an earlier run with these settings" in card
    assert "| steps | 18 | 500 |" in card and "job-old" not in card
    assert "earlier run" not in (uninterrupted.output / "README.md").read_text()
