"""Checkpoints of a run that several ranks share: each writes its part, and any number of ranks that resumes reads the rows it needs.

    weights-00000.safetensors    the rows of each weight that this rank has; averaged-…, best-… and optimizer-… likewise
    rank-00000.json              which rows of which tensor are in which file, and the bytes and SHA-256 of those files
    numbers.json                 all state that is not a tensor
    manifest.json                written last, by the first rank, once all ranks have reported that their part is on disk

A tensor that every rank has (DDP) is written by one of them, balanced so that all write about as many bytes.
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from gangline.core.files import File
from gangline.core.runs.contract import Manifest, checkpoint_name
from gangline.posix import RunMemory, flush
from gangline.train.checkpoints.manifest import NUMBERS, CheckpointIdentity, copy_to_host, write_manifest
from gangline.train.checkpoints.places import CheckpointPlaces
from gangline.train.checkpoints.streamed import parts_name, write_streamed
from gangline.train.run.digest import hashed_file
from gangline.train.run.ranks import Ranks
from gangline.train.tensors import StateNumbers, Tensors

NOTHING = -1
WEIGHTS, AVERAGED, BEST, OPTIMIZER = "weights/", "averaged/", "best/", "optimizer/"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` of a tensor of this `shape`; a scalar has one row."""

    shape: tuple[int, ...]
    start: int
    stop: int


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank has."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def rows_of_shard(tensor: torch.Tensor) -> Span:
    """Return which rows this rank has. FSDP cuts the first dimension as `torch.chunk` does."""
    shape = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        return Span(shape, 0, shape[0] if shape else 1)
    size = -(-shape[0] // tensor.device_mesh.size())
    start = min(tensor.device_mesh.get_local_rank() * size, shape[0])
    return Span(shape, start, start + tensor.to_local().shape[0])


def as_sharded_as(like: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return `rows` as this rank's shard of a tensor with the shape and placement of `like`."""
    if not isinstance(like, DTensor):
        return rows
    return DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def shared_out(tensors: Tensors, ranks: Ranks) -> list[str]:
    """Return the names of the unsharded tensors that this rank writes: the largest first, each to the rank with the least bytes so far."""
    load = [0] * ranks.count
    mine = []
    for name in sorted(tensors, key=lambda name: (-tensors[name].nbytes, name)):
        rank = load.index(min(load))
        load[rank] += tensors[name].nbytes
        if rank == ranks.rank:
            mine.append(name)
    return mine


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """One rank's part of a checkpoint; only the first rank writes `numbers`."""

    spans: dict[str, Span]
    tensors: Tensors
    numbers: StateNumbers

    @classmethod
    def of(cls, tensors: Tensors, numbers: StateNumbers, ranks: Ranks) -> "CheckpointPart":
        """Copy this rank's part to the host, so that training can continue."""
        whole = {name: tensor for name, tensor in tensors.items() if not isinstance(tensor, DTensor)}
        mine = set(shared_out(whole, ranks)) | (tensors.keys() - whole.keys())
        spans = {
            name: found
            for name in sorted(mine)
            for found in (rows_of_shard(tensors[name]),)
            if found.stop > found.start
        }
        return cls(spans, copy_to_host({name: local(tensors[name]) for name in spans}), numbers)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


class ShardSaver:
    """A thread that saves this rank's part of one checkpoint at a time. Training is held up only while the state is copied.

    No thread waits for another rank: a rank reports what it has written in the exchange that all have at each step, so if one dies nothing
    hangs, and the checkpoint stays incomplete. Checkpoints beyond the step `after` that all ranks resume from are deleted: an earlier
    attempt left them torn or damaged. Each goes to `memory` where that has room, else to `folder`: also one that turns out not to fit while
    it is written, from the copy of the state that is still there.
    """

    def __init__(self, folder: Path, ranks: Ranks, *, after: int, memory: RunMemory | None = None) -> None:
        self._places = CheckpointPlaces(folder, memory, ranks)
        self._places.clear_after(after)
        ranks.meet()
        self._ranks = ranks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._writing: Future[None] | None = None
        self._complete: Callable[[], None] | None = None
        self._step = NOTHING

    def save(self, step: int, identity: CheckpointIdentity, tensors: Tensors, numbers: StateNumbers) -> None:
        """Start to save, on every rank at the same step. Raise the error of the previous checkpoint, if it had one."""
        self.wait()
        part = CheckpointPart.of(tensors, numbers, self._ranks)
        done = torch.cuda.current_stream().record_event() if any(one.is_cuda for one in tensors.values()) else None
        target = self._places.choose(checkpoint_name(step), part.bytes)
        self._step = step
        ranks = self._ranks.count
        self._complete = lambda: self._places.complete(
            target, map(note_name, range(ranks)), lambda folder: complete(folder, step, identity, ranks)
        )
        self._writing = self._thread.submit(self._write, target, part, done)

    @property
    def written(self) -> int:
        """The last step whose part is on this rank's disk. Raises that part's error, if it had one."""
        if self._writing is None or not self._writing.done():
            return NOTHING
        self._writing.result()
        return self._step

    def heard(self, written: int) -> None:
        """Handle that every rank has written its part of step `written`: if that is the last one saved, the first rank completes it."""
        if self._complete and written == self._step != NOTHING:
            if self._ranks.count > 1 and self._ranks.is_first:
                self._complete()
            self._complete = None

    def wait(self) -> None:
        """Wait until the last checkpoint is complete; all ranks together."""
        if self._writing is None:
            return
        self._writing.result()
        if self._complete:
            self._ranks.meet()  # every part is on disk before the first rank writes the manifest
            self.heard(self._step)
            self._ranks.meet()  # no rank continues before the manifest is there

    def _write(self, target: Path, part: CheckpointPart, done: torch.Event | None) -> None:
        if done:
            done.synchronize()
        self._places.write(target, lambda folder: write_part(folder, part, self._ranks), f"*-{self._ranks.rank:05d}.*")
        if self._ranks.count == 1 and self._complete:
            self._complete()


def write_part(target: Path, part: CheckpointPart, ranks: Ranks) -> None:
    """Write this rank's part, and its note once its bytes are on disk."""
    target.mkdir(parents=True, exist_ok=True)
    (target / parts_name(ranks.rank)).unlink(missing_ok=True)
    if ranks.is_first:
        (target / NUMBERS).write_text(json.dumps(part.numbers))
        flush(target / NUMBERS)
    files = [_write_tensors(target, kind, part.tensors, ranks.rank) for kind in (WEIGHTS, AVERAGED, BEST, OPTIMIZER)]
    spans = {name: asdict(found) | {"file": file_name(name, ranks.rank)} for name, found in part.spans.items()}
    note = target / note_name(ranks.rank)
    note.write_text(json.dumps({"files": [asdict(file) for file in files if file], "tensors": spans}))
    flush(note)


def _write_tensors(target: Path, kind: str, tensors: Tensors, rank: int) -> File | None:
    """Write the tensors of one kind, if there are any."""
    own = {name: tensor for name, tensor in tensors.items() if name.startswith(kind)}
    if not own:
        return None
    path = target / file_name(kind, rank)
    file = write_streamed(own, path, rank)
    flush(path)
    return file


def complete(target: Path, step: int, identity: CheckpointIdentity, ranks: int) -> None:
    """Write the manifest: from now on the checkpoint exists."""
    files = [hashed_file(target / NUMBERS, NUMBERS)]
    for rank in range(ranks):
        note = note_name(rank)
        files += [File(**file) for file in json.loads((target / note).read_text())["files"]]
        files.append(hashed_file(target / note, note))
    write_manifest(target, Manifest(step=step, files=tuple(files), **asdict(identity)))


NOTES = "rank-*.json"


def note_name(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def file_name(tensor: str, rank: int) -> str:
    return f"{tensor.partition('/')[0]}-{rank:05d}.safetensors"
