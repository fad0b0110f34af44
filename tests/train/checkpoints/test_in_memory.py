"""A trainer saves into memory while that has room, and to disk when it has not: without losing a step, and saying so once."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from errno import EIO
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from gangline.core.files import PART_BYTES
from gangline.core.runs.contract import EXIT_DONE, MANIFEST, parse_part
from gangline.posix import RunMemory
from gangline.train.checkpoints.places import CheckpointPlaces
from gangline.train.checkpoints.shards import CheckpointPart, ShardSaver, complete, note_name, write_part
from gangline.train.checkpoints.stored import newest_good
from gangline.train.checkpoints.streamed import DTYPES, parts_name, write_streamed
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from tests.disks import run_on_a_disk_of
from tests.processes import written_bytes
from tests.train.checkpoints.test_save import IDENTITY, tensors_of
from tests.train.conftest import lay_out, small_spec

SHM = Path("/dev/shm")


def test_a_streamed_file_has_the_bytes_that_safetensors_writes(tmp_path: Path) -> None:
    tensors = {f'weights/{name} "ü"': torch.ones(5, 3).to(dtype) for dtype, name in DTYPES.items()}
    tensors |= {"weights/scalar": torch.tensor(3.0), "weights/empty": torch.empty(0, 3)}
    tensors |= {"weights/view": torch.arange(12.0).reshape(3, 4).t()}
    file = write_streamed(tensors, tmp_path / "w.safetensors", 0)
    content = (tmp_path / "w.safetensors").read_bytes()
    assert content == save({name: tensor.contiguous() for name, tensor in tensors.items()})
    assert file.bytes == len(content)
    assert (tmp_path / parts_name(0)).read_text() == "", "a short file has no parts"


def test_each_part_of_a_long_file_is_announced_with_its_hash(tmp_path: Path) -> None:
    tensors = {name: torch.randn(3 * PART_BYTES // 16) for name in ("a", "b", "c")}  # in all two parts and a quarter
    file = write_streamed(tensors, tmp_path / "w.safetensors", 3)
    content = (tmp_path / "w.safetensors").read_bytes()
    told = [parse_part(json.loads(line)) for line in (tmp_path / "parts-00003.jsonl").read_text().splitlines()]
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    assert [part.sha256 for part in told] == [hashlib.sha256(piece).hexdigest() for piece in pieces]
    assert {(part.path, part.bytes) for part in told} == {("w.safetensors", len(content))}
    assert file.sha256 == hashlib.sha256(content).hexdigest()


@pytest.fixture
def memory() -> Iterator[RunMemory]:
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        yield RunMemory(Path(folder))


def test_a_run_with_room_in_memory_writes_no_checkpoint_and_no_result_to_its_disk(
    tmp_path: Path, memory: RunMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    run = lay_out(tmp_path / "run", small_spec(steps=3, checkpoint_every_steps=2))
    assert run_lora_trainer(RunDirectory(run.path, memory), Orders()) == EXIT_DONE
    assert not run.checkpoints.exists() and not run.output.exists()
    assert (memory.folder / "checkpoints" / "000002" / MANIFEST).is_file()
    assert list((memory.folder / "output").glob("*.safetensors"))
    assert capfd.readouterr().err.count("checkpoints are kept in memory") == 1
    again = RunDirectory(run.path, memory)
    assert run_lora_trainer(again, Orders(stop=True)) == EXIT_DONE and again.step == 3, "it resumed from memory"


SAVES = """
import os
import torch
from pathlib import Path
from gangline.train.checkpoints.manifest import CheckpointIdentity
from gangline.train.checkpoints.shards import ShardSaver
from gangline.train.run.ranks import Ranks
from gangline.posix import RunMemory

memory, disk = RunMemory(Path("MEMORY")), Path("DISK")
saver = ShardSaver(disk, Ranks(), after=0, memory=memory)
identity = CheckpointIdentity(spec_hash="a" * 64, fingerprint={}, exact=True)
for step in (1, 2, 3):
    saver.save(step, identity, {f"{kind}/x": torch.full((2**18,), float(step)) for kind in ("weights", "optimizer")}, {})
    saver.wait()
    if step == 1 and "FILL" == "yes":
        (memory.folder / "fill").write_bytes(bytes(30 * 2**20))
print(sorted(str(path.parent) for folder in (memory.folder, disk) for path in folder.rglob("manifest.json")))
"""


@pytest.mark.parametrize(
    ("size", "fill", "steps_in_memory", "said"),
    [
        ("64m", "no", (1, 2, 3), ""),
        ("64m", "yes", (1,), "do not fit into a quarter"),  # the node is short of memory from now on
        ("8m", "no", (), "do not fit into a quarter"),
        ("64m,nr_inodes=12", "no", (1,), "memory ran full while one was written"),  # no second file of its tensors
        ("64m,nr_inodes=15", "no", (1,), "memory ran full while one was written"),  # no manifest
        ("64m,nr_inodes=16", "no", (1, 2), "memory ran full while one was written"),  # no folder for the third
    ],
)
def test_a_run_that_runs_out_of_memory_saves_each_step_on_disk_from_then_on(
    tmp_path: Path, size: str, fill: str, steps_in_memory: tuple[int, ...], said: str
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    program = SAVES.replace("MEMORY", str(memory)).replace("DISK", str(disk)).replace("FILL", fill)
    ran = run_on_a_disk_of(size, memory, sys.executable, "-", told=program)
    places = [memory / "checkpoints" / f"{step:06d}" for step in steps_in_memory]
    places += [disk / f"{step:06d}" for step in (1, 2, 3) if step not in steps_in_memory]
    assert ran.stdout == f"{sorted(map(str, places))}\n", ran.stderr
    assert ran.stderr.count("checkpoints are written to disk") == bool(said) and said in ran.stderr
    for step in {1, 2, 3} - {*steps_in_memory}:
        assert (load_file(disk / f"{step:06d}" / "weights-00000.safetensors")["weights/x"] == step).all()


def test_a_run_whose_folder_in_memory_is_deleted_saves_on_disk_from_then_on_and_says_why(
    tmp_path: Path, memory: RunMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    saver = ShardSaver(tmp_path, Ranks(), after=0, memory=memory)
    for step in (1, 2, 3):
        saver.save(step, IDENTITY, tensors_of(torch.ones(3), torch.ones(3)), {})
        saver.wait()
        if step == 1:
            assert (memory.folder / "checkpoints" / "000001" / MANIFEST).is_file()
            shutil.rmtree(memory.folder)
    assert (tmp_path / "000002" / MANIFEST).is_file() and (tmp_path / "000003" / MANIFEST).is_file()
    said = f"checkpoints are written to disk: {memory.folder}, in memory, was deleted"
    assert capfd.readouterr().err.count(said) == 1
    memory.folder.mkdir()


def test_a_checkpoint_that_cannot_be_written_to_memory_is_written_to_disk(
    tmp_path: Path, memory: RunMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    places, target = CheckpointPlaces(tmp_path, memory, Ranks()), memory.folder / "checkpoints" / "000001"
    tried = list[Path]()

    def write(folder: Path) -> None:
        tried.append(folder)
        if folder == target:
            raise OSError(EIO, os.strerror(EIO))

    places.write(target, write, "*-00000.*")
    assert tried == [target, tmp_path / "000001"]
    assert (
        "checkpoints are written to disk: memory had an error (Input/output error) while one was written"
        in capfd.readouterr().err
    )


def test_a_result_whose_folder_in_memory_is_deleted_is_written_to_disk(tmp_path: Path, memory: RunMemory) -> None:
    run = RunDirectory(tmp_path, memory)

    def write() -> None:
        if run.output.is_relative_to(memory.folder):
            shutil.rmtree(memory.folder)
        run.output.mkdir()
        (run.output / "result").touch()

    run.write_output(9, write)
    assert (tmp_path / "output" / "result").is_file()
    memory.folder.mkdir()


def test_if_another_rank_finds_no_room_the_first_one_does_not_blame_figures_of_its_own(
    tmp_path: Path, memory: RunMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    class WithFull(Ranks):
        """The first of two ranks, of which the other has no room."""

        def most(self, *numbers: int) -> list[int]:
            return [max(1, number) for number in numbers]

    places = CheckpointPlaces(tmp_path, memory, WithFull(0, 2, 0))
    assert places.choose("000001", 9) == tmp_path / "000001"
    said = capfd.readouterr().err
    assert said == "checkpoints are written to disk: one of the ranks found no room in memory\n"


def test_if_one_of_several_ranks_has_to_go_to_disk_the_others_parts_follow(tmp_path: Path, memory: RunMemory) -> None:
    disk, ranks = tmp_path / "disk", [Ranks(0, 2, 0), Ranks(1, 2, 1)]
    places = [CheckpointPlaces(disk, memory, each) for each in ranks]
    target = memory.folder / "checkpoints" / "000001"
    tensors = {"weights/a": torch.ones(8), "weights/b": torch.zeros(4)}
    first, second = (CheckpointPart.of(tensors, {}, each) for each in ranks)
    places[0].write(target, lambda folder: write_part(folder, first, ranks[0]), "*-00000.*")

    def fails_in_memory(folder: Path) -> None:
        write_part(folder, second, ranks[1])
        if folder == target:
            raise OSError(28, os.strerror(28))

    places[1].write(target, fails_in_memory, "*-00001.*")
    where = places[0].gathered(target, map(note_name, range(2)))
    complete(where, 1, IDENTITY, 2)
    assert where == disk / "000001" and not target.exists()
    stored, rejected = newest_good((disk,), IDENTITY.spec_hash, {"a", "b"}, Ranks())
    assert stored and not rejected


def test_not_a_byte_of_a_save_into_memory_is_written_to_a_disk(memory: RunMemory) -> None:
    """The kernel counts them (proc(5), write_bytes); the same save to disk shows that it does."""
    counted = dict[str, int]()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        for name, at in (("first", memory), ("memory", memory), ("disk", None)):  # the first save also loads modules
            saver = ShardSaver(Path(disk), Ranks(), after=0, memory=at)
            before = written_bytes(os.getpid())
            saver.save(1, IDENTITY, tensors_of(torch.ones(2**20), torch.ones(2**20)), {})
            saver.wait()
            counted[name] = written_bytes(os.getpid()) - before
    assert counted["memory"] == 0 and counted["disk"] >= 2**23
