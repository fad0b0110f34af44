"""Promise 3: an interrupted run ends with the same bits as an uninterrupted one."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from gangline.core.contract import EXIT_DONE
from gangline.train.checkpoint import read_manifest
from gangline.train.contract import Orders, RunDirectory
from gangline.train.lora import train
from gangline.train.result import WEIGHTS
from tests.train.conftest import STEPS, finish, interrupt, lay_out, report_of, small_spec


def tensors(run: RunDirectory) -> dict[str, tuple[list[int], bytes]]:
    with safe_open(run.output / WEIGHTS, "numpy") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    return {name: (list(tensor.shape), tensor.tobytes()) for name, tensor in found.items()}


@pytest.mark.parametrize("after", [1, 3, 7, 11])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path, uninterrupted: RunDirectory, after: int) -> None:
    resumed = finish(interrupt(tmp_path / "run", small_spec(), after=after))
    assert tensors(resumed) == tensors(uninterrupted)
    assert report_of(resumed)["weights_digest"] == report_of(uninterrupted)["weights_digest"]
    assert report_of(resumed)["exact"] is True


def test_another_seed_gives_other_bits(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    other = finish(lay_out(tmp_path / "run", small_spec(seed=1)))
    assert report_of(other)["weights_digest"] != report_of(uninterrupted)["weights_digest"]


def test_a_resumed_run_says_when_its_numerics_changed(tmp_path: Path) -> None:
    run = interrupt(tmp_path / "run", small_spec(), after=4)
    made_under = read_manifest(run.checkpoints / "000004").fingerprint
    rewrite_manifest(run.checkpoints / "000004", fingerprint=made_under | {"torch": "1.0"})
    assert report_of(finish(run))["exact"] is False


def rewrite_manifest(checkpoint: Path, **changes: Any) -> None:
    manifest = replace(read_manifest(checkpoint), **changes)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest.to_json()))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE = {
    "a bit of the weights flipped": lambda at: flip_a_bit(at / "weights.safetensors"),
    "a bit of the optimiser flipped": lambda at: flip_a_bit(at / "optimizer.safetensors"),
    "the weights truncated": lambda at: truncate(at / "weights.safetensors"),
    "the optimiser truncated": lambda at: truncate(at / "optimizer.safetensors"),
    "the optimiser missing": lambda at: (at / "optimizer.safetensors").unlink(),
    "a bit of the manifest flipped": lambda at: flip_a_bit(at / "manifest.json"),
    "the manifest gone": lambda at: (at / "manifest.json").unlink(),
    "the manifest truncated": lambda at: truncate(at / "manifest.json"),
    "the manifest another JSON": lambda at: (at / "manifest.json").write_text("[1]"),
    "everything gone": lambda at: [path.unlink() for path in at.iterdir()],
    "another job's checkpoint": lambda at: rewrite_manifest(at, spec_hash="0" * 64),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_checkpoint_is_rejected_and_the_one_before_is_used(
    tmp_path: Path, uninterrupted: RunDirectory, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = lay_out(tmp_path / "run", small_spec(checkpoint_every_steps=100))
    for step in ("000004", "000008"):
        shutil.copytree(uninterrupted.checkpoints / step, run.resume / step)
    DAMAGE[damage](run.resume / "000008")
    finish(run)
    assert "checkpoint 000008 is rejected" in capfd.readouterr().err
    first = next(line for line in lines(run) if line["phase"] == "training")
    assert first["step"] == 4
    assert report_of(run)["weights_digest"] == report_of(uninterrupted)["weights_digest"]


def test_with_no_good_checkpoint_a_run_begins_anew(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = lay_out(tmp_path / "run", small_spec(checkpoint_every_steps=100))
    shutil.copytree(uninterrupted.checkpoints / "000008", run.resume / "000008")
    flip_a_bit(run.resume / "000008" / "weights.safetensors")
    finish(run)
    assert report_of(run)["weights_digest"] == report_of(uninterrupted)["weights_digest"]


def test_asked_to_save_a_run_saves_and_goes_on(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec(checkpoint_every_steps=None))
    assert train(run, Orders(save=True)) == EXIT_DONE
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]
    assert lines(run)[-1]["step"] == STEPS


def lines(run: RunDirectory) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
