"""A save holds training up only while the state is copied, and is the state of that moment."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gangline.core.runs.contract import EXIT_DONE
from gangline.train.checkpoints.manifest import CheckpointIdentity, copy_to_host
from gangline.train.checkpoints.shards import ShardSaver
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders
from gangline.train.run.ranks import Ranks
from gangline.train.tensors import Tensors
from tests.disks import run_on_a_disk_of
from tests.train.conftest import lay_out, small_spec

IDENTITY = CheckpointIdentity(spec_hash="a" * 64, fingerprint={}, exact=True)


def saver_in(folder: Path) -> ShardSaver:
    return ShardSaver(folder, Ranks(), after=0)


def tensors_of(weight: torch.Tensor, moment: torch.Tensor) -> Tensors:
    return {"weights/w": weight, "optimizer/w/exp_avg": moment}


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_show_in_it(tmp_path: Path) -> None:
    saver, weight, moment = saver_in(tmp_path), torch.ones(1000, 1000), torch.zeros(1000, 1000)
    for step in (1, 2, 3):
        saver.save(step, IDENTITY, tensors_of(weight, moment), {})
        weight += 1
        moment -= 1
    saver.wait()
    assert saver.written == 3
    for step in (1, 2, 3):
        stored = load_file(tmp_path / f"{step:06d}" / "weights-00000.safetensors")
        stored |= load_file(tmp_path / f"{step:06d}" / "optimizer-00000.safetensors")
        assert (stored["weights/w"] == step).all()
        assert (stored["optimizer/w/exp_avg"] == 1 - step).all()


def test_what_went_wrong_with_a_save_is_told_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no folder")
    saver = saver_in(tmp_path / "taken")
    saver.save(1, IDENTITY, tensors_of(torch.ones(1), torch.ones(1)), {})
    with pytest.raises(OSError):
        saver.save(2, IDENTITY, tensors_of(torch.ones(1), torch.ones(1)), {})


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


def test_views_of_a_buffer_are_copied_with_it_at_once() -> None:
    buffer, alone = torch.arange(20.0), torch.ones(3)
    views = {"one": buffer[2:8].view(2, 3), "other": buffer[8:20].view(3, 4)}
    copies = copy_to_host(views | {"alone": alone})
    before = {name: view.clone() for name, view in (views | {"alone": alone}).items()}
    buffer.zero_()
    alone.zero_()
    assert copies.keys() == before.keys()
    assert all(torch.equal(copies[name], before[name]) for name in before)
    assert copies["one"].untyped_storage().data_ptr() == copies["other"].untyped_storage().data_ptr()


def test_a_small_view_of_a_large_buffer_is_copied_without_it() -> None:
    buffer = torch.arange(1000.0)
    copies = copy_to_host({"a": buffer[:3], "b": buffer[4:6]})
    assert {name: copy.untyped_storage().nbytes() for name, copy in copies.items()} == {"a": 12, "b": 8}
