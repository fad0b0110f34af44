"""A run that its owner finishes early ends with the weights of its step, to the bit, however it came to that step."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, FINISH
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run import meter
from gangline.train.run.contract import Orders, RunDirectory
from tests.train.conftest import STEPS, StopsAtItsFirstSave, finish, interrupt, lay_out, report_of, small_spec

AT = 7


@dataclass
class FinishedAfterAStep(RunDirectory):
    """A run whose owner wants its result when it has taken the step before the seventh."""

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        super().report_step(step, metrics, steps_since=steps_since)
        if step == AT - 1:
            (self.path / FINISH).touch()


def averaging(**settings: Any) -> LoraSpec:
    return small_spec(ema_decay=0.9, schedule="cosine", checkpoint_every_steps=None, **settings)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = FinishedAfterAStep(lay_out(tmp_path_factory.mktemp("early") / "run", averaging()).path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meter, "REPORT_EVERY_S", 0.0)
        assert run_lora_trainer(run, Orders()) == EXIT_DONE
    return run


def test_it_takes_no_more_steps_and_says_how_many_it_took(early: RunDirectory) -> None:
    report = report_of(early)
    assert (report["steps"], report["steps_of_spec"], report["exact"]) == (AT, STEPS, True)
    last = json.loads((early.path / "progress.jsonl").read_text().splitlines()[-1])
    assert (last["phase"], last["step"], last["steps"]) == ("saving", AT, STEPS)
    assert f"after {AT} of these {STEPS} steps" in (early.output / "README.md").read_text()
    (kohya,) = [path for path in early.output.glob("*.safetensors") if path.name != "pytorch_lora_weights.safetensors"]
    with safe_open(kohya, framework="pt") as weights:
        told = weights.metadata()
    assert (told["ss_steps"], told["ss_max_train_steps"]) == (str(AT), str(STEPS))


def test_what_it_has_is_in_a_checkpoint_too(early: RunDirectory) -> None:
    assert [folder.name for folder in early.checkpoints.iterdir()] == [f"{AT:06d}"]


def test_another_node_that_only_writes_the_result_gives_the_same_bits(early: RunDirectory, tmp_path: Path) -> None:
    """It resumes from the checkpoint of a run that nobody finished: the weights of that step, and no other."""
    stopped = interrupt(tmp_path / "stopped", averaging(), after=AT)
    run = lay_out(tmp_path / "run", averaging())
    shutil.copytree(stopped.checkpoints, run.resume)
    (run.path / FINISH).touch()
    assert report_of(finish(run)) == report_of(early)
    assert not run.checkpoints.exists()


def test_a_run_of_as_many_steps_is_another_one(early: RunDirectory, tmp_path: Path) -> None:
    shorter = finish(lay_out(tmp_path / "run", replace(averaging(), steps=AT)))
    assert report_of(shorter)["weights_digest"] != report_of(early)["weights_digest"]


def test_one_that_has_not_begun_takes_a_step(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", averaging())
    (run.path / FINISH).touch()
    assert report_of(finish(run))["steps"] == 1


def test_a_node_that_must_leave_saves_first_and_leaves_the_end_to_the_next(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", averaging())
    (run.path / FINISH).touch()
    leaving = StopsAtItsFirstSave(run.path)
    assert run_lora_trainer(leaving, leaving.orders) == EXIT_STOPPED
    assert [folder.name for folder in run.checkpoints.iterdir()] == ["000001"]
