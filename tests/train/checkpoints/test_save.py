"""A save holds training up only while the state is copied, and is the state of that moment."""

import json
import sys
from pathlib import Path

import pytest
import torch

from gangline.core.runs.contract import EXIT_DONE
from gangline.train.checkpoints.checkpoint import CheckpointIdentity, CheckpointSaver, Snapshot, load_checkpoint
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders
from gangline.train.run.optimiser import OptimizerState
from tests.disks import run_on_a_disk_of
from tests.train.conftest import lay_out, small_spec

IDENTITY = CheckpointIdentity(spec_hash="a" * 64, fingerprint={}, exact=True)


def snapshot_of(weight: torch.Tensor, moment: torch.Tensor) -> Snapshot:
    return Snapshot(weights={"w": weight}, optimizer=OptimizerState({"w/exp_avg": moment}, {}))


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_show_in_it(tmp_path: Path) -> None:
    saver, weight, moment = CheckpointSaver(tmp_path), torch.ones(1000, 1000), torch.zeros(1000, 1000)
    for step in (1, 2, 3):
        saver.save(step, IDENTITY, snapshot_of(weight, moment))
        weight += 1
        moment -= 1
    saver.wait()
    for step in (1, 2, 3):
        state = load_checkpoint(tmp_path / f"{step:06d}", IDENTITY.spec_hash)
        assert (state.snapshot.weights["w"] == step).all()
        assert (state.snapshot.optimizer.tensors["w/exp_avg"] == 1 - step).all()


def test_what_went_wrong_with_a_save_is_told_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no folder")
    saver = CheckpointSaver(tmp_path / "taken")
    saver.save(1, IDENTITY, snapshot_of(torch.ones(1), torch.ones(1)))
    with pytest.raises(OSError):
        saver.save(2, IDENTITY, snapshot_of(torch.ones(1), torch.ones(1)))


def test_told_to_save_a_trainer_saves_and_goes_on_and_says_how_long_it_was_held_up(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec(steps=3, checkpoint_every_steps=None))
    assert run_lora_trainer(run, Orders(save=True)) == EXIT_DONE
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]
    told = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    assert told[0]["save_s"] is None and 0 < told[-1]["save_s"] < 1


SAVE = """
import torch
from pathlib import Path
from gangline.train.program import failure_kind
from gangline.train.run.ranks import Ranks
from gangline.train.checkpoints.shards import CheckpointPart, write_part

tensors = {f"{kind}/x": torch.zeros(2**17) for kind in ("weights", "averaged", "optimizer")}
try:
    write_part(Path("FOLDER/000001"), CheckpointPart.of(tensors, {}, Ranks()), Ranks())
except Exception as error:
    print(failure_kind(error))
"""


def test_a_disk_that_is_full_is_told_as_that_and_is_no_crash(tmp_path: Path) -> None:
    ran = run_on_a_disk_of("1m", tmp_path, sys.executable, "-", told=SAVE.replace("FOLDER", str(tmp_path)))
    assert ran.stdout == "disk full\n", ran.stderr
