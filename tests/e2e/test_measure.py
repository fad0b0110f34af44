"""`gangline estimate --measure`: the real trainer for a short time, on this machine, and what a training would take at that throughput."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gangline.cli.tools.measure import gpu_here
from gangline.compose.buckets import S3_OPTIONS, data_place, lend_keys_of_data
from gangline.data.dataset import DataSet
from gangline.train.scratch.batches import data_options
from tests.conftest import Typed
from tests.train.bases import save_tiny
from tests.train.sets import data_set

RECIPE = """
kind = "scratch"
base = "{base}"
data = ["{data}"]
new = ["unet"]
held_out = "sha256 < '4'"
held_out_every_steps = 1
checkpoint_every_steps = 1
sample_every_steps = 1
sample_prompts = ["a red disc"]
ema_decay = 0.9

[[phases]]
steps = 1000
resolution = 16
batch_size = 4

[[phases]]
steps = 500
resolution = 32
batch_size = 8
microbatch = 4
"""
SHORT = ("--measure", "--measure-s", "0.3", "--usd-per-gpu-hour", "2")
Gangline = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture
def recipe(tmp_path: Path, base: Path, data: DataSet) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(RECIPE.format(base=base, data=data.place.uri))
    return file


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where directories that go away are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def gangline(typed: Typed, left: Path) -> Gangline:
    return partial(typed, "estimate")


@pytest.mark.tenths
def test_each_phase_is_measured_on_the_gpus_of_the_recipe_and_others_are_predicted(
    gangline: Gangline, recipe: Path, left: Path
) -> None:
    code, printed, said = gangline(recipe, *SHORT, "--predict", "2", "-o", "json")
    assert code == 0, said
    found = json.loads(printed)
    measured, rows = found["measured"], found["rows"]
    assert [(row["gpu"], row["gpus"], row["how"]) for row in rows] == [
        (gpu_here(), 1, "measured"),
        (gpu_here(), 2, "extrapolated"),
    ]
    assert [one["phase"] for one in measured] == ["16 px", "32 px"]
    for one, part in zip(measured, rows[0]["phases"], strict=True):
        assert one["steps"] >= 3 and one["warm_up_steps"] >= 2 and one["seconds"] >= 0.3
        assert one["images_per_second"] == pytest.approx(one["steps"] * one["batch_size"] / one["seconds"])
        assert part["images_per_second"] == one["images_per_second"]
    assert [part["microbatches_per_step"] for part in rows[0]["phases"]] == [None, 2]
    announced, *lines = said.splitlines()
    assert announced.startswith(f"measuring 2 phases on 1 × {gpu_here()} takes about 1 s and 2 starts of the trainer")
    for phase, rate in (("16 px", lines[3]), ("32 px", lines[7])):
        assert rate.startswith(f"{phase}: ") and "images/s" in rate and "the mean of" in rate
    assert not list(left.glob("gangline-*"))


def test_what_is_wrong_with_the_question_is_said_before_anything_is_measured(gangline: Gangline, recipe: Path) -> None:
    code, printed, said = gangline(recipe, *SHORT[:-2])
    assert (code, printed) == (2, "")
    assert said.startswith("error: usd_per_gpu_hour is missing")
    assert gangline(recipe, *SHORT, "--gpus", "8")[2].startswith(
        "error: the throughput is both given and to be measured"
    )
    assert gangline(recipe, *SHORT, "--data", "nowhere.lance")[2].startswith("error: there is no data set")
    assert gangline(recipe, *SHORT, "--base", "nowhere")[2].startswith("error: there is no base nowhere")
    assert gangline(recipe, *SHORT, "--base", "some/where")[2].startswith(
        "error: a measurement needs a base on this machine"
    )


def test_what_the_trainer_says_of_its_own_end_is_the_mistake(gangline: Gangline, recipe: Path, left: Path) -> None:
    latents = "[{steps=9, resolution=16, batch_size=4, latents='required'}]"
    code, printed, said = gangline(recipe, *SHORT, "--set", f"phases={latents}")
    assert (code, printed) == (2, "")
    error, hint = said.splitlines()[-2:]
    assert error.startswith("error: ") and "latents_16" in error
    assert hint.startswith("hint: ") and "gangline data encode" in hint
    assert not list(left.glob("gangline-*"))


def test_ctrl_c_ends_the_trainer_and_leaves_nothing(recipe: Path, left: Path) -> None:
    words = ["estimate", str(recipe), "--measure", "--measure-s", "600", "--usd-per-gpu-hour", "2"]
    program = [sys.executable, "-m", "gangline.cli.main", *words]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr
    assert any("warming up" in line for line in process.stderr)
    trainers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(trainers) == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(trainers[0]), 0)
    assert not list(left.glob("gangline-*"))


def test_a_trainer_that_is_measured_reads_buckets_as_its_user_does(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {name: f"its {name}" for name in S3_OPTIONS}
    monkeypatch.setattr(os, "environ", keys | {"GANGLINE_DATA_REGION": "of its own"})
    lend_keys_of_data()
    assert data_options() == data_place("s3://sets/x").options | {"aws_region": "of its own"}


@pytest.mark.nightly
def test_several_processes_are_measured_together(gangline: Gangline, recipe: Path) -> None:
    code, printed, said = gangline(recipe, *SHORT, "--set", "needs.slots=2", "-o", "json")
    assert code == 0, said
    found = json.loads(printed)
    assert [row["gpus"] for row in found["rows"]] == [2]
    assert [one["gpus"] for one in found["measured"]] == [2, 2]
