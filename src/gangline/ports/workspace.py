"""The folder on this machine in which a user's script keeps its checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.core.command.candidate import CheckpointCandidate, title_of
from gangline.core.files import File
from gangline.core.runs.contract import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A checkpoint that stays the same, whatever the script does: its files, by their paths below the workspace's folder.

    `marks` show whether a file was overwritten since; `written_ns` has the Unix time when the script wrote each. `adds` says that it is the
    checkpoint that was taken last under this name, with more files.
    """

    name: str
    step: int | None
    files: dict[str, Path]
    marks: dict[str, tuple[int, int, int]]
    written_ns: dict[str, int]
    adds: bool = False

    @property
    def title(self) -> str:
        return title_of(self.name, self.files)


class Workspace(Protocol):
    def wait(self, seconds: float) -> None:
        """Wait until something appears in the folder, if the system notifies of that; at most this long."""
        ...

    def look(self, now_s: float, *, ended: bool = False, well: bool = False) -> list[CheckpointCandidate]:
        """Return what may be checkpoints and was not taken in its current version.

        Their files are held from then on: they stay readable here when the script deletes them; a deletion is reported once. `ended` says
        that no process writes any more, `well` that the script ended successfully.
        """
        ...

    def step_of(self, candidate: CheckpointCandidate) -> int | None: ...

    def take(self, candidate: CheckpointCandidate) -> Taken | None:
        """Take a checkpoint, to be returned by `release`. Return None if it changed since the look."""
        ...

    def release(self, taken: Taken) -> None: ...

    def describe(self, taken: Taken) -> tuple[File, ...]:
        """Return its files with their SHA-256s. Raise `Damaged` if one has changed."""
        ...

    def know(self, name: str) -> None:
        """Remember that this name's current version is in the object store: `look` leaves it out until it changes."""
        ...

    def holds(self, name: str, manifest: Manifest) -> bool:
        """Return whether exactly these bytes are there under this name."""
        ...

    def incoming(self, manifest: Manifest) -> Path:
        """Return the folder to download this checkpoint's files to, each under its path; a retry finds what arrived before."""
        ...

    def install(self, name: str, manifest: Manifest, written_ns: Mapping[str, int]) -> Path:
        """Move a downloaded checkpoint to its name and set the times when its files were written. Return its path.

        An older checkpoint of that name is set aside.
        """
        ...

    def discard(self) -> None:
        """Delete all downloads that were not installed."""
        ...

    def set_aside(self, name: str) -> None:
        """Move a checkpoint out of the script's sight; what earlier processes set aside is deleted."""
        ...

    def room(self) -> int:
        """Return the free bytes on the disk."""
        ...

    def place(self, name: str) -> Path:
        """Return the path at which the script finds a checkpoint."""
        ...

    def remembered(self) -> dict[str, str]:
        """Return the last argument of `remember`, also by an earlier process."""
        ...

    def remember(self, told: dict[str, str]) -> None: ...

    def close(self) -> None:
        """Release the folder: other processes may use it from now on."""
        ...


class FolderInMemory(Protocol):
    """The folder for checkpoints that a script names, whose files may lie on a tmpfs: then `link`, the path that it names, is a link to
    `place`."""

    link: Path
    place: Path

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of a script is in memory."""
        ...

    def enter(self, size: int) -> str:
        """Let the link lead to memory, where checkpoints of `size` bytes will lie. Return why not, if it must not.

        Raises `UserError` if another process uses the folder.
        """
        ...

    def lack(self, size: int) -> str:
        """Return why there is no room for checkpoints of `size` bytes; "" if there is."""
        ...

    def move_to_disk(self) -> None:
        """Let the link be a folder on disk with all that was in memory. Raises `UserError` if the disk has no room for it."""
        ...

    def discard(self) -> bool:
        """Delete the link, and all that is in memory. If some of that is never uploaded, delete nothing and return False."""
        ...
