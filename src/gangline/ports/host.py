"""The disk of a node: a cache by content, and a directory for each run that is deleted with it."""

from pathlib import Path
from typing import Any, Protocol

from gangline.core.files import File


class Host(Protocol):
    def cached(self, sha256: str) -> Path:
        """Return the path in the cache of the bytes with this hash, whether they are there or not."""
        ...

    def lay_out(self, attempt: str, spec: dict[str, Any]) -> Path:
        """Create and return an empty run directory with its spec.json."""
        ...

    def input_path(self, directory: Path, path: str) -> Path:
        """Return the path of an input of a run."""
        ...

    def place_cached(self, directory: Path, path: str, file: File) -> bool:
        """Place cached bytes as `inputs/<path>` of a run; they stay in the cache as long as the run.

        Return False if they are not cached.
        """
        ...

    def make_room(self, room_bytes: int) -> None:
        """Make room for this many bytes more in the cache: the least recently used go. Its limit holds, except for what runs use."""
        ...

    def remember_base(self, base: str, files: tuple[File, ...]) -> None:
        """Record that these files, which are in the cache, are what a run needs of `base`."""
        ...

    def bases(self) -> tuple[str, ...]:
        """Return the bases that are completely in the cache."""
        ...

    def place_prepared(self, directory: Path, key: str, manifest: dict[str, Any]) -> None:
        """Write the manifest of files prepared under `key`, once they are there."""
        ...

    def leave_out(self, directory: Path, parts: tuple[str, ...]) -> None:
        """Write down for the trainer which parts of its base were not downloaded."""
        ...

    def take_back(self, directory: Path) -> None:
        """Remove the symbolic links that an ended run left in its directory: what is written there next must not go elsewhere."""
        ...

    def place_checkpoint(
        self, directory: Path, step: int, manifest: dict[str, Any], size: int, *, on_disk: bool = False
    ) -> Path:
        """Return the folder for the files of a checkpoint to resume from, of `size` bytes together; its manifest is written there. It is in
        memory if there is room, unless it must be `on_disk`."""
        ...

    def drop_resumed(self, directory: Path) -> None:
        """Delete what a run has resumed from, which has saved a newer checkpoint. Repeated calls are no error."""
        ...

    def remove_run(self, directory: Path) -> None:
        """Delete a run's directory with everything below it, and what else was made for the run around it."""
        ...

    def discard(self, path: Path) -> None:
        """Delete a file, or a folder with everything below it. It is no error if it is gone."""
        ...
