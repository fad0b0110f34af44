"""Checkpoints on disk: safetensors and a manifest that is written last. A checkpoint without a good manifest does not exist."""

import hashlib
import json
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from gangline.core.contract import MANIFEST, Manifest, checkpoint_name, parse_manifest
from gangline.core.errors import Damaged
from gangline.core.files import File

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a run needs to go on, besides its spec and its inputs."""

    manifest: Manifest
    weights: Tensors
    optimizer: Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose checkpoint it is and under which numerics it came about; see `Manifest`."""

    spec_hash: str
    fingerprint: dict[str, str]
    exact: bool


def save(folder: Path, step: int, identity: Identity, *, weights: Tensors, optimizer: Tensors) -> Path:
    """Write `folder/000100` for step 100. Every byte is on the disk before the manifest is."""
    target = folder / checkpoint_name(step)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, tensors in ((WEIGHTS, weights), (OPTIMIZER, optimizer)):
        save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, target / name)
        _flush(target / name)
    files = tuple(describe(target / name, name) for name in (WEIGHTS, OPTIMIZER))
    manifest = Manifest(step=step, files=files, **asdict(identity))
    partial = target / f".{MANIFEST}"
    partial.write_text(json.dumps(manifest.to_json(), indent=1))
    _flush(partial)
    partial.rename(target / MANIFEST)
    _flush(target)
    return target


class Saver:
    """Saves beside the training, which is held up only while the state is copied; one checkpoint at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._saving: Future[Path] | None = None

    def save(self, step: int, identity: Identity, *, weights: Tensors, optimizer: Tensors) -> None:
        """Raises what went wrong with the one before."""
        self.wait()
        copies = {"weights": _copied(weights), "optimizer": _copied(optimizer)}
        self._saving = self._thread.submit(save, self._folder, step, identity, **copies)

    def wait(self) -> None:
        """Until the last one is complete. Raises what went wrong with it."""
        if self._saving:
            self._saving.result()


def newest_good(folders: tuple[Path, ...], spec_hash: str) -> tuple[State | None, list[str]]:
    """The newest checkpoint below `folders` that is whole and of this spec, and a sentence for each newer one that is not."""
    rejected: list[str] = []
    for candidate in _newest_first(folders):
        try:
            return load(candidate, spec_hash), rejected
        except Damaged as error:
            rejected.append(f"checkpoint {candidate.name} is rejected: {error.message}")
    return None, rejected


def load(checkpoint: Path, spec_hash: str) -> State:
    """Raises `Damaged` unless every byte is what the manifest says and the checkpoint belongs to this spec."""
    manifest = read_manifest(checkpoint)
    if manifest.spec_hash != spec_hash:
        raise Damaged("it belongs to another job's spec")
    for file in manifest.files:
        check(checkpoint / file.path, file)
    try:
        return State(manifest, load_file(checkpoint / WEIGHTS), load_file(checkpoint / OPTIMIZER))
    except (SafetensorError, OSError) as error:
        raise Damaged(f"its tensors cannot be read: {error}") from None


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


def check(path: Path, expected: File) -> None:
    """Raises `Damaged` unless the file at `path` is `expected`."""
    if not path.is_file():
        raise Damaged(f"{expected.path} is missing")
    if path.stat().st_size != expected.bytes:
        raise Damaged(f"{expected.path} has {path.stat().st_size} bytes of {expected.bytes}")
    if describe(path, expected.path).sha256 != expected.sha256:
        raise Damaged(f"{expected.path} does not match its SHA-256")


def describe(path: Path, name: str) -> File:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path=name, bytes=path.stat().st_size, sha256=sha256)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> Tensors:
    """The optimiser's state as `<parameter>/<moment>`; `names` are the parameters in the optimiser's order."""
    state = optimizer.state_dict()["state"]
    return {
        f"{names[index]}/{moment}": torch.as_tensor(value)
        for index, moments in state.items()
        for moment, value in moments.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, names: list[str], tensors: Tensors) -> None:
    indices = {name: index for index, name in enumerate(names)}
    state: dict[int, Tensors] = {}
    for key, tensor in tensors.items():
        name, moment = key.rsplit("/", 1)
        state.setdefault(indices[name], {})[moment] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _copied(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _newest_first(folders: tuple[Path, ...]) -> list[Path]:
    found = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()]
    return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name), reverse=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
