"""What is prepared once: kept by one run, found by another, and never used where a byte of it is not as it was."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import torch
from PIL import Image

from gangline.core.models.bases import TEXT_ENCODERS
from gangline.core.runs import prepared as keys
from gangline.core.runs.contract import EXIT_LEFT_OUT, EXIT_STOPPED, parse_prepared
from gangline.core.runs.prepared import prepared_kind
from gangline.train.checkpoints import prepared
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import BASE, SUBJECT, file_at
from tests.train.conftest import finish, lay_out, report_of, small_spec

KEY = f"latents-{'a' * 32}-{'b' * 32}"
TENSORS = {"photos": {"mean": torch.arange(12.0).reshape(3, 4)}, "held_out": {"mean": torch.ones(1, 4)}}


def handed_on(tmp_path: Path) -> RunDirectory:
    """A run among whose inputs is what another one kept."""
    folder = prepared.write_prepared(RunDirectory(tmp_path / "maker"), KEY, TENSORS)
    shutil.copytree(folder, tmp_path / "user" / "inputs" / "prepared" / KEY)
    return RunDirectory(tmp_path / "user")


def test_what_one_run_kept_another_reads(tmp_path: Path) -> None:
    folder = prepared.find_prepared(handed_on(tmp_path), KEY)
    assert folder is not None
    for name, tensors in TENSORS.items():
        assert torch.equal(prepared.read_prepared(folder, name)["mean"], tensors["mean"])


def test_a_run_that_starts_again_in_its_directory_finds_what_it_made_itself(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert prepared.find_prepared(run, KEY) is None
    assert prepared.write_prepared(run, KEY, TENSORS) == prepared.find_prepared(run, KEY)


def test_the_manifest_names_every_file_and_proves_itself(tmp_path: Path) -> None:
    folder = prepared.write_prepared(RunDirectory(tmp_path), KEY, TENSORS)
    manifest = parse_prepared(json.loads((folder / "manifest.json").read_text()))
    assert manifest.key == KEY and [file.path for file in manifest.files] == [
        "photos.safetensors",
        "held_out.safetensors",
    ]


@pytest.mark.parametrize("damage", ["no manifest", "cut", "flipped", "missing"])
def test_what_is_damaged_is_made_anew_and_the_log_says_so(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = handed_on(tmp_path)
    folder = run.inputs / "prepared" / KEY
    file = folder / "photos.safetensors"
    content = file.read_bytes()
    match damage:
        case "no manifest":
            (folder / "manifest.json").unlink()
        case "cut":
            file.write_bytes(content[:-1])
        case "flipped":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case _:
            file.unlink()
    assert prepared.find_prepared(run, KEY) is None
    assert f"the prepared tensors {KEY} are computed again" in capsys.readouterr().err


def test_what_belongs_to_another_key_is_not_used(tmp_path: Path) -> None:
    run, other = handed_on(tmp_path), f"latents-{'c' * 32}-{'b' * 32}"
    (run.inputs / "prepared" / KEY).rename(run.inputs / "prepared" / other)
    assert prepared.find_prepared(run, other) is None


def test_a_part_that_was_left_out_is_asked_for_by_name(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    prepared.need(run, TEXT_ENCODERS)
    (tmp_path / "left_out.json").write_text('["text_encoder"]')
    prepared.need(run, ("vae",))
    with pytest.raises(prepared.LeftOut, match="text_encoder: not downloaded"):
        prepared.need(run, TEXT_ENCODERS)


def test_a_run_with_everything_prepared_needs_no_text_encoders_and_ends_with_the_same_bits(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    run = lay_out(tmp_path / "run", small_spec())
    without_text_encoders(run)
    shutil.copytree(uninterrupted.path / "prepared", run.inputs / "prepared")
    assert report_of(finish(run))["weights_digest"] == report_of(uninterrupted)["weights_digest"]
    assert not (run.path / "prepared").exists()


class Patient:
    """Orders to stop, after they were looked for so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.save = self.render = False

    @property
    def stop(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_what_was_prepared_before_an_interruption_is_not_prepared_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Photos and class images come in shards, and each that is complete stays."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(keys.VIEWS_IN_SHARD + 8):
        with Image.open(sorted(SUBJECT.glob("*.png"))[number % 3]) as image:
            image.resize((64, 64) if number % 2 else (64, 96)).save(photos / f"{number:03d}.png")
    files = tuple(file_at(path, photos) for path in sorted(photos.iterdir()))
    drawn = keys.CLASS_IMAGES_IN_SHARD + 2
    spec = small_spec(photos=files, aspect_buckets=True, class_prompt="cat face", class_images=drawn, steps=3)
    whole = report_of(finish(lay_out(tmp_path / "whole", spec, photos=photos)))
    assert capsys.readouterr().err.count("class image ") == drawn
    run = lay_out(tmp_path / "run", spec, photos=photos)
    assert run_lora_trainer(run, cast(Orders, Patient(1))) == EXIT_STOPPED
    assert [prepared_kind(key) for key in kept(run)] == ["latents"]
    assert run_lora_trainer(run, cast(Orders, Patient(1 + drawn - 1))) == EXIT_STOPPED
    assert sorted(prepared_kind(key) for key in kept(run)) == ["class_images", "embeddings", "latents", "latents"]
    assert report_of(finish(run))["weights_digest"] == whole["weights_digest"]
    assert capsys.readouterr().err.count("class image ") == drawn + 1, "one was drawn twice"


def kept(run: RunDirectory) -> list[str]:
    return [path.parent.name for path in (run.path / "prepared").glob("*/manifest.json")]


def test_what_was_prepared_on_another_kind_of_machine_does_not_do_and_the_text_encoders_are_asked_for(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    run = lay_out(tmp_path / "run", small_spec())
    without_text_encoders(run)
    for folder in (uninterrupted.path / "prepared").iterdir():
        shutil.copytree(folder, run.inputs / "prepared" / f"{folder.name[:-1]}x")
    work = [sys.executable, "-m", "gangline.train.lora", str(run.path)]
    assert subprocess.run(work, check=False, capture_output=True, env=os.environ).returncode == EXIT_LEFT_OUT
    told = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    assert not any("failure" in line for line in told)


def without_text_encoders(run: RunDirectory) -> None:
    """As an agent leaves them out."""
    (run.inputs / "base").unlink()
    shutil.copytree(BASE, run.inputs / "base")
    for weights in (run.inputs / "base").glob("text_encoder*/*.safetensors"):
        weights.unlink()
    (run.path / "left_out.json").write_text(json.dumps(TEXT_ENCODERS))
