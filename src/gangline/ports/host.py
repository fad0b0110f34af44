"""The disk of a node: a cache by content, and a directory for each run, which goes with it."""

from pathlib import Path
from typing import Any, Protocol

from gangline.core.files import File


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

    def place_cached(self, directory: Path, path: str, file: File) -> bool:
        """Cached bytes, as `inputs/<path>` of a run: they stay in the cache as long as the run. False where they are not there."""
        ...

    def make_room(self, room_bytes: int) -> None:
        """In the cache, for so much more: what was used longest ago goes. Its limit holds but for what runs use."""
        ...

    def remember_base(self, base: str, files: tuple[File, ...]) -> None:
        """That these are what a run needs of `base`, and lie in the cache."""
        ...

    def bases(self) -> tuple[str, ...]:
        """Those that lie in the cache."""
        ...

    def place_prepared(self, directory: Path, key: str, manifest: dict[str, Any]) -> None:
        """The manifest of what was prepared under `key`, when its files are there."""
        ...

    def leave_out(self, directory: Path, parts: tuple[str, ...]) -> None:
        """Tell the trainer which parts of its base did not come."""
        ...

    def place_checkpoint(self, directory: Path, step: int, manifest: dict[str, Any]) -> Path:
        """The folder that the files of a checkpoint to go on from belong into; its manifest is there already."""
        ...

    def discard(self, path: Path) -> None:
        """Remove a file, or a folder and all below it. No error if it is gone."""
        ...
