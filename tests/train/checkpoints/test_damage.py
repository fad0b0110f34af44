"""Whatever happened to the newest checkpoint, a run goes on from a good one, never from a bad one, and ends with the same bits."""

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as to_safetensors

from gangline.train.checkpoints import shards
from gangline.train.checkpoints.manifest import read_manifest
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders, RunDirectory
from tests.train.conftest import finish, lay_out, report_of, small_spec

OLDER, NEWEST = "000004", "000008"
IN_CI, AT_NIGHT = 5, 50


def rewrite_manifest(at: Path, **changes: Any) -> None:
    manifest = replace(read_manifest(at), **changes)
    (at / "manifest.json").write_text(json.dumps(manifest.to_json()))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def each(at: Path) -> list[Path]:
    return sorted(at.iterdir())


Damage = Callable[[Path], object]
REJECTED: dict[str, Damage] = {
    "everything in it gone": lambda at: [path.unlink() for path in each(at)],
    "every file empty": lambda at: [path.write_bytes(b"") for path in each(at)],
    "the weights empty": lambda at: (at / "weights-00000.safetensors").write_bytes(b""),
    "the weights missing": lambda at: (at / "weights-00000.safetensors").unlink(),
    "the weights truncated": lambda at: truncate(at / "weights-00000.safetensors"),
    "a bit of the weights flipped": lambda at: flip_a_bit(at / "weights-00000.safetensors"),
    "the optimiser empty": lambda at: (at / "optimizer-00000.safetensors").write_bytes(b""),
    "the optimiser missing": lambda at: (at / "optimizer-00000.safetensors").unlink(),
    "the optimiser truncated": lambda at: truncate(at / "optimizer-00000.safetensors"),
    "a bit of the optimiser flipped": lambda at: flip_a_bit(at / "optimizer-00000.safetensors"),
    "the note of what is where missing": lambda at: (at / "rank-00000.json").unlink(),
    "a bit of that note flipped": lambda at: flip_a_bit(at / "rank-00000.json"),
    "the numbers missing": lambda at: (at / "numbers.json").unlink(),
    "the numbers empty": lambda at: (at / "numbers.json").write_bytes(b""),
    "a bit of the numbers flipped": lambda at: flip_a_bit(at / "numbers.json"),
    "weights and optimiser exchanged": lambda at: [
        (at / "weights-00000.safetensors").rename(at / "other"),
        (at / "optimizer-00000.safetensors").rename(at / "weights-00000.safetensors"),
        (at / "other").rename(at / "optimizer-00000.safetensors"),
    ],
    "the manifest gone": lambda at: (at / "manifest.json").unlink(),
    "the manifest empty": lambda at: (at / "manifest.json").write_bytes(b""),
    "the manifest truncated": lambda at: truncate(at / "manifest.json"),
    "a bit of the manifest flipped": lambda at: flip_a_bit(at / "manifest.json"),
    "the manifest no text": lambda at: (at / "manifest.json").write_bytes(b"\xff\xfe\x00"),
    "the manifest another JSON": lambda at: (at / "manifest.json").write_text("[1]"),
    "a manifest that lists no file": lambda at: rewrite_manifest(at, files=()),
    "the manifest of the checkpoint before": lambda at: shutil.copyfile(
        at.with_name(OLDER) / "manifest.json", at / "manifest.json"
    ),
    "another job's checkpoint": lambda at: rewrite_manifest(at, spec_hash="0" * 64),
    "a file in its place": lambda at: [shutil.rmtree(at), at.write_bytes(b"")],
}
HARMLESS: dict[str, Damage] = {
    "an extra file": lambda at: (at / "extra.safetensors").write_bytes(b"left by somebody"),
    "an extra file by a name of ours": lambda at: (at / "averaged-00000.safetensors").write_bytes(b"left by somebody"),
    "a folder of no step beside it": lambda at: at.with_name("latest").mkdir(),
    "a save beside it that had just begun": lambda at: at.with_name("000012").mkdir(),
}


def resumable(folder: Path, uninterrupted: RunDirectory) -> RunDirectory:
    """A run that has the two checkpoints that a node is given."""
    run = lay_out(folder, small_spec(checkpoint_every_steps=100))
    for step in (OLDER, NEWEST):
        shutil.copytree(uninterrupted.checkpoints / step, run.resume / step)
    return run


def step_gone_on_from(run: RunDirectory) -> object:
    reports = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    begun = [number for number, report in enumerate(reports) if report.get("phase") == "preparing"]
    return next(report["step"] for report in reports[begun[-1] :] if report["phase"] == "training")


def same_bits(one: RunDirectory, other: RunDirectory) -> bool:
    return report_of(one)["weights_digest"] == report_of(other)["weights_digest"]


@pytest.mark.parametrize("damage", REJECTED)
def test_a_damaged_newest_checkpoint_is_left_aside_and_the_one_before_is_used(
    tmp_path: Path, uninterrupted: RunDirectory, damage: str
) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    REJECTED[damage](run.resume / NEWEST)
    finish(run)
    assert step_gone_on_from(run) == int(OLDER)
    assert same_bits(run, uninterrupted) and report_of(run)["exact"] is True


@pytest.mark.parametrize("damage", HARMLESS)
def test_what_does_not_touch_the_checkpoint_does_not_cost_it(
    tmp_path: Path, uninterrupted: RunDirectory, damage: str
) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    HARMLESS[damage](run.resume / NEWEST)
    finish(run)
    assert step_gone_on_from(run) == int(NEWEST)
    assert same_bits(run, uninterrupted)


def test_the_log_says_which_checkpoint_was_rejected_and_why(
    tmp_path: Path, uninterrupted: RunDirectory, capfd: pytest.CaptureFixture[str]
) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    flip_a_bit(run.resume / NEWEST / "weights-00000.safetensors")
    finish(run)
    said = capfd.readouterr().err
    assert f"checkpoint {NEWEST} is rejected: weights-00000.safetensors does not match its SHA-256" in said


def test_with_no_good_checkpoint_a_run_begins_anew(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    run = resumable(tmp_path / "run", uninterrupted)
    for step in (OLDER, NEWEST):
        flip_a_bit(run.resume / step / "weights-00000.safetensors")
    finish(run)
    assert step_gone_on_from(run) == 0
    assert same_bits(run, uninterrupted)


class KilledAtByte:
    """Lets the kernel end this process inside the write that brings the files below a folder to more than `limit` bytes.

    A file may grow no further than RLIMIT_FSIZE; what is written up to there stays, and the write that goes on gets SIGXFSZ.
    By default, which Python sets aside and this restores, that ends the process as SIGKILL does, with nothing of it running
    any more, but at a byte that is chosen. The limit is for one file, so it is set anew whenever one is opened.

    safetensors 0.8 gives a file its length first, under a name of no meaning, and the kernel would end it there each time.
    So its bytes are written here as older ones did, straight into the file, which leaves more behind that could be mistaken.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("open", "os.mkdir") or not str(arguments[0]).startswith(str(self.folder)):
            return
        written = sum(path.stat().st_size for path in self.folder.iterdir()) if self.folder.is_dir() else 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(0, self.limit - written), resource.RLIM_INFINITY))


def kill_in_save(run: RunDirectory, step: str, byte: int) -> int:
    """Train in a process of its own that dies in its save of `step`; the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            shards.save_file = lambda tensors, path: path.write_bytes(to_safetensors(tensors))
            KilledAtByte(run.checkpoints / step, byte)
            run_lora_trainer(run, Orders())
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it outlived the save"
    return os.WTERMSIG(status)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA does not outlive a fork")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.nightly] * (seed >= IN_CI)) for seed in range(AT_NIGHT)]
)
def test_a_kill_at_any_byte_of_a_save_costs_that_checkpoint_alone(
    tmp_path: Path, uninterrupted: RunDirectory, seed: int
) -> None:
    whole = sum(path.stat().st_size for path in each(uninterrupted.checkpoints / NEWEST))
    byte = random.Random(seed).randrange(whole)
    run = lay_out(tmp_path / "run", small_spec())
    assert kill_in_save(run, NEWEST, byte) == signal.SIGXFSZ
    torn = run.checkpoints / NEWEST
    written = sum(path.stat().st_size for path in each(torn))
    print(f"died at byte {byte} of {whole}: {[(path.name, path.stat().st_size) for path in each(torn)]}")
    assert written == byte and not (torn / "manifest.json").exists()
    assert step_gone_on_from(finish(run)) == int(OLDER)
    assert same_bits(run, uninterrupted)
