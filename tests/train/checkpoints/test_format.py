"""A checkpoint of another format is never taken for a damaged one: the run ends at once and says which version can finish it."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from gangline.train.checkpoints.manifest import FORMAT, OtherFormat, read_manifest
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.program import failure_kind
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.digest import hashed_file
from gangline.version import VERSION
from tests.train.checkpoints.test_damage import NEWEST, OLDER, flip_a_bit, resumable, rewrite_manifest


def in_first_format(checkpoint: Path) -> None:
    """Lay out its tensors as Gangline 0.1 did for a LoRA."""
    for kind in ("weights", "optimizer"):
        part = checkpoint / f"{kind}-00000.safetensors"
        tensors = {name.removeprefix(f"{kind}/"): tensor for name, tensor in load_file(part).items()}
        save_file(tensors, checkpoint / f"{kind}.safetensors")
        part.unlink()
    numbers = json.loads((checkpoint / "numbers.json").read_text())
    (checkpoint / "numbers.json").write_text(json.dumps({"optimizer": numbers["optimizer"], "scaler": {}}))
    (checkpoint / "rank-00000.json").unlink()
    list_files_anew(checkpoint)


def in_format(checkpoint: Path, number: int, made_by: str) -> None:
    numbers = json.loads((checkpoint / "numbers.json").read_text())
    assert numbers["format"] == FORMAT and numbers["made_by"] == VERSION
    (checkpoint / "numbers.json").write_text(json.dumps(numbers | {"format": number, "made_by": made_by}))
    list_files_anew(checkpoint)


def list_files_anew(checkpoint: Path) -> None:
    files = [path for path in sorted(checkpoint.iterdir()) if path.name != "manifest.json"]
    rewrite_manifest(checkpoint, files=tuple(hashed_file(path, path.name) for path in files))


def refused(run: RunDirectory) -> OtherFormat:
    with pytest.raises(OtherFormat) as told:
        run_lora_trainer(RunDirectory(run.path), Orders())
    assert not run.output.exists() and not run.checkpoints.exists()
    return told.value


def test_a_lora_that_gangline_0_1_began_can_be_finished_by_it(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    for step in (OLDER, NEWEST):
        in_first_format(run.resume / step)
    error = refused(run)
    assert failure_kind(error) == "other format"
    assert str(error) == (
        f"the checkpoint of step 8 was written by Gangline 0.1, whose format Gangline {VERSION} does not read"
    )
    assert error.hint == "a worker of Gangline 0.1 can finish the run"


def test_an_older_checkpoint_is_not_resumed_in_place_of_one_of_another_format(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    in_format(run.resume / NEWEST, 1, "0.0.9")
    assert "0.0.9" in refused(run).message


def test_what_a_newer_gangline_wrote_is_for_a_newer_node(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    in_format(run.resume / NEWEST, FORMAT + 1, "9.0")
    error = refused(run)
    assert failure_kind(error) == "too old" and "Gangline 9.0" in error.message


def test_behind_a_damaged_one_the_format_of_the_one_before_counts(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    in_first_format(run.resume / OLDER)
    flip_a_bit(run.resume / NEWEST / "weights-00000.safetensors")
    assert "step 4" in refused(run).message


def test_checkpoints_without_a_number_of_their_format_are_those_of_whole_models_before_0_2(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    numbers = json.loads((run.resume / NEWEST / "numbers.json").read_text())
    plain = {name: value for name, value in numbers.items() if name not in ("format", "made_by")}
    (run.resume / NEWEST / "numbers.json").write_text(json.dumps(plain))
    list_files_anew(run.resume / NEWEST)
    shutil.rmtree(run.resume / OLDER)
    assert run_lora_trainer(RunDirectory(run.path), Orders()) == 0
    assert read_manifest(uninterrupted.checkpoints / NEWEST).exact
