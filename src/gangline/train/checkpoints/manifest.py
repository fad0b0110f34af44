"""The manifest of a checkpoint, which is written last: a checkpoint without a valid one does not exist."""

import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from gangline.core.errors import Damaged, GanglineError
from gangline.core.files import File
from gangline.core.runs.contract import MANIFEST, Manifest, parse_manifest
from gangline.posix import flush
from gangline.train.run.digest import hashed_file
from gangline.train.tensors import Tensors
from gangline.version import VERSION

NUMBERS = "numbers.json"
FORMAT, MADE_BY = 2, "made_by"
"""The version of how a checkpoint is laid out in files; its numbers name it, and the Gangline that wrote them."""
OF_FIRST_FORMAT, LAST_OF_FIRST_FORMAT = "weights.safetensors", "0.1"
"""The file that only LoRAs' checkpoints of Gangline 0.1 have. Those of other trainings had format 2 from the start."""


class OtherFormat(GanglineError):
    """Raised for a good checkpoint that this version does not read: another version of Gangline, an older or a `newer` one, can finish its
    run."""

    def __init__(self, step: int, made_by: str, *, newer: bool) -> None:
        super().__init__(
            f"the checkpoint of step {step} was written by Gangline {made_by}, whose format Gangline {VERSION} does not read",
            hint=f"a worker of Gangline {made_by} can finish the run",
        )
        self.newer = newer


def check_format(folder: Path, step: int) -> None:
    """Raise `OtherFormat` unless this version reads the checkpoint of `step`. What it cannot tell, because it is damaged, passes."""
    if (folder / OF_FIRST_FORMAT).is_file():
        raise OtherFormat(step, LAST_OF_FIRST_FORMAT, newer=False)
    with suppress(OSError, ValueError, TypeError, AttributeError):
        numbers = json.loads((folder / NUMBERS).read_text())
        if (its := numbers.get("format", FORMAT)) != FORMAT:
            raise OtherFormat(step, str(numbers.get(MADE_BY)), newer=its > FORMAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIdentity:
    """Which job's checkpoint it is, and under which numerics it was made; see `Manifest`."""

    spec_hash: str
    fingerprint: dict[str, str]
    exact: bool
    best: bool = False


def write_manifest(target: Path, manifest: Manifest) -> None:
    """Write the manifest atomically.

    Its content is flushed before it is renamed, and the folder afterwards: after a power loss there is a whole manifest or none.
    """
    partial = target / f".{MANIFEST}"
    partial.write_text(json.dumps(manifest.to_json(), indent=1))
    flush(partial)
    partial.rename(target / MANIFEST)
    flush(target)


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
    if hashed_file(path, expected.path).sha256 != expected.sha256:
        raise Damaged(f"{expected.path} does not match its SHA-256")


def copy_to_host(tensors: Tensors) -> Tensors:
    """Copy tensors to host memory; from a card once its work so far is done, without waiting for it. Views that make up most of a buffer
    are copied with it, at once."""
    copies, buffers = Tensors(), defaultdict[int, Tensors](Tensors)
    for name, tensor in tensors.items():
        buffers[tensor.untyped_storage().data_ptr()][name] = tensor.detach()
    for views in buffers.values():
        first = next(iter(views.values()))
        buffer = torch.empty(0, dtype=first.dtype, device=first.device).set_(first.untyped_storage())  # pyright: ignore[reportArgumentType]
        of_one_type = all(view.dtype == first.dtype for view in views.values())
        if len(views) == 1 or not of_one_type or 2 * sum(view.nbytes for view in views.values()) < buffer.nbytes:
            copies |= {name: _on_host(view) for name, view in views.items()}
        else:
            host = _on_host(buffer)
            copies |= {
                name: host.as_strided(view.size(), view.stride(), view.storage_offset()) for name, view in views.items()
            }
    return copies


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(tensor, non_blocking=True)


def newest_first(folders: tuple[Path, ...]) -> list[Path]:
    """Return the checkpoints in these folders, complete or not, the highest step first."""
    found = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()]
    return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name), reverse=True)
