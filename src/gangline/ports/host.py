"""The disk of a node: a cache of bases by content, and a directory for each run, which goes with it."""

from pathlib import Path
from typing import Any, Protocol


class Host(Protocol):
    def cached(self, sha256: str) -> Path:
        """Where the bytes with this hash lie, or are to be put."""
        ...

    def lay_out(self, attempt: str, spec: dict[str, Any]) -> Path:
        """A new, empty run directory with its spec.json."""
        ...

    def input_path(self, directory: Path, path: str) -> Path:
        """Where an input of a run belongs."""
        ...

    def place_base(self, directory: Path, base: Path) -> None:
        """A folder of the node, as `inputs/base` of a run."""
        ...

    def place_cached(self, directory: Path, path: str, sha256: str) -> None:
        """Cached bytes, as `inputs/<path>` of a run."""
        ...

    def place_checkpoint(self, directory: Path, step: int, manifest: dict[str, Any]) -> Path:
        """The folder that the files of a checkpoint to go on from belong into; its manifest is there already."""
        ...

    def has(self, path: Path) -> bool: ...

    def discard(self, path: Path) -> None:
        """Remove a file, or a folder and all below it. No error if it is gone."""
        ...
