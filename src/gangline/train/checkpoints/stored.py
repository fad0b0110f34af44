"""Read checkpoints: find the newest valid one, and the rows of its tensors that a rank needs."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from gangline.core.errors import Damaged
from gangline.core.runs.contract import Manifest
from gangline.core.specs.sections.continuing import Continued
from gangline.train.checkpoints.manifest import NUMBERS, check_file, check_format, newest_first, read_manifest
from gangline.train.checkpoints.shards import AVERAGED, NOTES, WEIGHTS, Span
from gangline.train.run.ranks import Ranks
from gangline.train.tensors import StateNumbers, Tensors


class Spread:
    """Tensors on disk, each in the files of several ranks. Raises `Damaged` if a tensor lacks rows."""

    def __init__(self, folder: Path, notes: Iterable[str]) -> None:
        self.folder = folder
        self.parts: dict[str, list[tuple[Span, str]]] = {}
        self._files: dict[str, Any] = {}
        try:
            for note in notes:
                self._take_note(json.loads((folder / note).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"its notes cannot be read: {error}") from None
        lacking = [name for name, parts in self.parts.items() if not _is_whole([found for found, _ in parts])]
        if lacking or not self.parts:
            raise Damaged(f"it lacks rows of {lacking[0] if lacking else 'every tensor'}")

    def below(self, prefix: str) -> list[str]:
        return [name for name in self.parts if name.startswith(prefix)]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.parts[name][0][0].shape

    def rows(self, name: str, wanted: Span) -> torch.Tensor:
        """Read only these rows. Raise `Damaged` if they cannot be read."""
        found = []
        try:
            for part, file in self.parts[name]:
                start, stop = max(part.start, wanted.start), min(part.stop, wanted.stop)
                if start < stop:
                    opened = self._opened(file)
                    if not part.shape:
                        return opened.get_tensor(name)
                    found.append(opened.get_slice(name)[start - part.start : stop - part.start])
        except (SafetensorError, OSError, KeyError) as error:
            raise Damaged(f"its tensors cannot be read: {error}") from None
        if not found:
            return torch.empty(0, *wanted.shape[1:])
        return found[0] if len(found) == 1 else torch.cat(found)

    def _opened(self, file: str) -> Any:
        """Return the opened file; it is opened once because its header has an entry for each tensor."""
        if file not in self._files:
            self._files[file] = safe_open(self.folder / file, framework="pt")
        return self._files[file]

    def _take_note(self, note: dict[str, Any]) -> None:
        for name, one in note["tensors"].items():
            found = Span(tuple(one["shape"]), one["start"], one["stop"])
            self.parts.setdefault(name, []).append((found, one["file"]))


class StoredCheckpoint(Spread):
    """A checkpoint on disk. Raises `Damaged` if it is incomplete."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, [file.path for file in manifest.files if PurePath(file.path).match(NOTES)])
        self.manifest = manifest
        try:
            self.numbers: StateNumbers = json.loads((folder / NUMBERS).read_text())
        except (OSError, ValueError) as error:
            raise Damaged(f"its notes cannot be read: {error}") from None


def averaged_or_not(folder: Path, step: int) -> Tensors:
    """Return the weights that would be the result: averaged ones if there are any. The folder may lack the optimiser's state and the
    manifest. Raise `Damaged` or `OtherFormat` if they cannot be read."""
    check_format(folder, step)
    spread = Spread(folder, sorted(path.name for path in folder.glob(NOTES)))
    kind = AVERAGED if spread.below(AVERAGED) else WEIGHTS
    whole = {name: Span(spread.shape(name), 0, sys.maxsize) for name in spread.below(kind)}
    return {name.removeprefix(kind): spread.rows(name, every) for name, every in whole.items()}


def newest_good(
    folders: tuple[Path, ...], spec_hash: str, names: set[str], ranks: Ranks, continues: Continued | None = None
) -> tuple[StoredCheckpoint | None, list[str]]:
    """Return the newest valid checkpoint with the weights `names`, the same one on every rank, and a sentence for each newer one that is
    rejected, on the rank that rejected it. It is one of the job's own, or the one of another job that it `continues`.

    Raise `OtherFormat` if another version wrote it.
    """
    rejected: list[str] = []
    for candidate in newest_first(folders):
        stored = None
        try:
            stored = _checked(candidate, spec_hash, names, ranks, continues)
        except Damaged as error:
            rejected.append(f"checkpoint {candidate.name} is rejected: {error.message}")
        if ranks.all(stored is not None):
            return stored, rejected
    return None, rejected


def _checked(
    folder: Path, spec_hash: str, names: set[str], ranks: Ranks, continues: Continued | None
) -> StoredCheckpoint:
    """Return a checkpoint whose files are checked: each rank checks its share of them. Raise `Damaged` or `OtherFormat`."""
    manifest = read_manifest(folder)
    if manifest.spec_hash != spec_hash and not _is_continued(manifest, continues):
        only = f", and this one continues step {continues.step} of {continues.job} alone" if continues else ""
        raise Damaged(f"it belongs to another job's spec{only}")
    check_format(folder, manifest.step)
    for file in manifest.files[ranks.rank :: ranks.count]:
        check_file(folder / file.path, file)
    stored = StoredCheckpoint(folder, manifest)
    if {name.removeprefix(WEIGHTS) for name in stored.below(WEIGHTS)} != names:
        raise Damaged("its weights have other names than this trainer's")
    return stored


def _is_continued(manifest: Manifest, continues: Continued | None) -> bool:
    return continues is not None and (manifest.spec_hash, manifest.step) == (continues.spec_hash, continues.step)


def _is_whole(spans: Iterable[Span]) -> bool:
    """Return whether the spans cover all rows of one tensor, each once."""
    reached, shape = 0, ()
    for found in sorted(spans, key=lambda found: found.start):
        if found.start != reached:
            return False
        reached, shape = found.stop, found.shape
    return reached == (shape[0] if shape else 1)
