"""Checkpoints on disk: safetensors and a manifest that is written last. A checkpoint without a valid manifest does not exist."""

import hashlib
import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from gangline.core.errors import Damaged
from gangline.core.files import File
from gangline.core.runs.contract import MANIFEST, Manifest, checkpoint_name, parse_manifest
from gangline.posix import flush
from gangline.train.run.optimiser import OptimizerState
from gangline.train.tensors import Tensors

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
AVERAGED = "averaged.safetensors"
NUMBERS = "numbers.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a run needs to resume, besides its spec and inputs.

    `averaged` are the weights that would be the result now, if they are not those in training. `scaler` is the state of the loss scale in
    half precision.
    """

    weights: Tensors
    optimizer: OptimizerState
    averaged: Tensors = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Tensors]:
        named = {WEIGHTS: self.weights, OPTIMIZER: self.optimizer.tensors, AVERAGED: self.averaged}
        return {name: tensors for name, tensors in named.items() if tensors or name != AVERAGED}


@dataclass(frozen=True, slots=True)
class SavedState:
    """A snapshot that was read from disk."""

    manifest: Manifest
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIdentity:
    """Which job's checkpoint it is, and under which numerics it was made; see `Manifest`."""

    spec_hash: str
    fingerprint: dict[str, str]
    exact: bool


def write_checkpoint(folder: Path, step: int, identity: CheckpointIdentity, snapshot: Snapshot) -> Path:
    """Write `folder/000100` for step 100. Every byte is on disk before the manifest is."""
    target = folder / checkpoint_name(step)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, tensors in snapshot.files.items():
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, target / name)
    (target / NUMBERS).write_text(json.dumps({"optimizer": snapshot.optimizer.numbers, "scaler": snapshot.scaler}))
    names = [*snapshot.files, NUMBERS]
    for name in names:
        flush(target / name)
    files = tuple(checkpoint_file(target / name, name) for name in names)
    write_manifest(target, Manifest(step=step, files=files, **asdict(identity)))
    return target


def write_manifest(target: Path, manifest: Manifest) -> None:
    """Write the manifest atomically.

    Its content is flushed before it is renamed, and the folder afterwards: after a power loss there is a whole manifest or none.
    """
    partial = target / f".{MANIFEST}"
    partial.write_text(json.dumps(manifest.to_json(), indent=1))
    flush(partial)
    partial.rename(target / MANIFEST)
    flush(target)


class CheckpointSaver:
    """A thread that saves one checkpoint at a time. Training is held up only while the state is copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._saving: Future[Path] | None = None

    def save(self, step: int, identity: CheckpointIdentity, snapshot: Snapshot) -> None:
        """Start to save. Raise the error of the previous checkpoint, if it had one."""
        self.wait()
        copied = Copied(snapshot)
        self._saving = self._thread.submit(lambda: write_checkpoint(self._folder, step, identity, copied.snapshot()))

    def wait(self) -> None:
        """Wait until the last checkpoint is complete. Raise its error, if it had one."""
        if self._saving:
            self._saving.result()


class Copied:
    """A snapshot as it was at this moment, whatever happens to the original. From a card it is copied in the background, into pinned
    memory, in the order of the card's work."""

    def __init__(self, snapshot: Snapshot) -> None:
        optimizer = replace(snapshot.optimizer, tensors=copy_to_host(snapshot.optimizer.tensors))
        weights, averaged = copy_to_host(snapshot.weights), copy_to_host(snapshot.averaged)
        self._snapshot = replace(snapshot, weights=weights, averaged=averaged, optimizer=optimizer)
        on_card = any(tensor.is_cuda for tensor in snapshot.weights.values())
        self._done = torch.cuda.current_stream().record_event() if on_card else None

    def snapshot(self) -> Snapshot:
        """Return the copy; blocks until it is complete."""
        if self._done:
            self._done.synchronize()
        return self._snapshot


def newest_good(folders: tuple[Path, ...], spec_hash: str, names: set[str]) -> tuple[SavedState | None, list[str]]:
    """Return the newest valid checkpoint below `folders` of this spec with the weights `names`, and a sentence for each newer one that is
    rejected."""
    rejected: list[str] = []
    for candidate in newest_first(folders):
        try:
            return _of_this_trainer(load_checkpoint(candidate, spec_hash), names), rejected
        except Damaged as error:
            rejected.append(f"checkpoint {candidate.name} is rejected: {error.message}")
    return None, rejected


def _of_this_trainer(state: SavedState, names: set[str]) -> SavedState:
    if state.snapshot.weights.keys() != names:
        raise Damaged("its weights have other names than this trainer's")
    return state


def load_checkpoint(checkpoint: Path, spec_hash: str) -> SavedState:
    """Load a checkpoint. Raise `Damaged` unless every byte matches the manifest and it belongs to this spec."""
    manifest = read_manifest(checkpoint)
    if manifest.spec_hash != spec_hash:
        raise Damaged("it belongs to another job's spec")
    listed = {file.path for file in manifest.files}
    if not {WEIGHTS, OPTIMIZER, NUMBERS} <= listed:
        raise Damaged("its manifest does not list all that a checkpoint has")
    for file in manifest.files:
        check_file(checkpoint / file.path, file)
    try:
        return SavedState(manifest, _read(checkpoint, listed))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise Damaged(f"its tensors cannot be read: {error}") from None


def _read(checkpoint: Path, listed: set[str]) -> Snapshot:
    """Read the files that the manifest lists, and no others."""
    numbers = json.loads((checkpoint / NUMBERS).read_text())
    return Snapshot(
        weights=load_file(checkpoint / WEIGHTS),
        optimizer=OptimizerState(load_file(checkpoint / OPTIMIZER), numbers["optimizer"]),
        averaged=load_file(checkpoint / AVERAGED) if AVERAGED in listed else {},
        scaler=numbers["scaler"],
    )


def read_manifest(checkpoint: Path) -> Manifest:
    try:
        text = (checkpoint / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        raise Damaged("it has no manifest") from None
    try:
        value = json.loads(text)
    except ValueError:
        raise Damaged("its manifest is not JSON") from None
    return parse_manifest(value)


def check_file(path: Path, expected: File) -> None:
    """Raise `Damaged` unless the file at `path` is `expected`."""
    if not path.is_file():
        raise Damaged(f"{expected.path} is missing")
    if path.stat().st_size != expected.bytes:
        raise Damaged(f"{expected.path} has {path.stat().st_size} bytes of {expected.bytes}")
    if checkpoint_file(path, expected.path).sha256 != expected.sha256:
        raise Damaged(f"{expected.path} does not match its SHA-256")


def checkpoint_file(path: Path, name: str) -> File:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path=name, bytes=path.stat().st_size, sha256=sha256)


def copy_to_host(tensors: Tensors) -> Tensors:
    """Copy tensors to host memory; from a card once its work so far is done, without waiting for it."""
    return {
        name: torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(
            tensor.detach(), non_blocking=True
        )
        for name, tensor in tensors.items()
    }


def newest_first(folders: tuple[Path, ...]) -> list[Path]:
    """Return the checkpoints in these folders, complete or not, the highest step first."""
    found = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()]
    return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name), reverse=True)
