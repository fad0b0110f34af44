"""The folder in which somebody's script keeps its checkpoints, on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.core.command.candidate import CheckpointCandidate, title_of
from gangline.core.files import File
from gangline.core.runs.contract import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A checkpoint that stays, whatever the script does: its files by their paths below the folder of all. `marks` tell whether one was
    written over since, `written_ns` when the script wrote each (Unix). `adds`: it is the one that was taken last under this name, and
    more files."""

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
        """Until something appears in the folder, where the system tells; at most so long."""
        ...

    def look(self, now_s: float, *, ended: bool = False, well: bool = False) -> list[CheckpointCandidate]:
        """What may be checkpoints and was not taken as it is now. Their files are held from then on: they stay readable here when the
        script deletes them; what it deleted is told of once. `ended`: nobody writes any more; `well`: who wrote has come to its end."""
        ...

    def step_of(self, candidate: CheckpointCandidate) -> int | None: ...

    def take(self, candidate: CheckpointCandidate) -> Taken | None:
        """To be given back by `release`. None where it has changed since the look."""
        ...

    def release(self, taken: Taken) -> None: ...

    def describe(self, taken: Taken) -> tuple[File, ...]:
        """With their SHA-256s. Raises `Damaged` where one has changed."""
        ...

    def know(self, name: str) -> None:
        """What is there by this name now is in the object store: the next look leaves it out while it stays so."""
        ...

    def holds(self, name: str, manifest: Manifest) -> bool:
        """Whether just these bytes lie there by this name."""
        ...

    def incoming(self, manifest: Manifest) -> Path:
        """Where files of this checkpoint come in, each under its path; a later try finds what came."""
        ...

    def install(self, name: str, manifest: Manifest, written_ns: Mapping[str, int]) -> Path:
        """What came in gets its place by this name, and its files when they were written; what was there is set aside. Its path."""
        ...

    def discard(self) -> None:
        """Whatever came in and was not installed."""
        ...

    def set_aside(self, name: str) -> None:
        """Out of the script's sight; what earlier processes set aside goes."""
        ...

    def room(self) -> int:
        """Bytes that are free."""
        ...

    def place(self, name: str) -> Path:
        """Where the script finds it."""
        ...

    def remembered(self) -> dict[str, str]:
        """What `remember` was told last, also by an earlier process."""
        ...

    def remember(self, told: dict[str, str]) -> None: ...

    def close(self) -> None:
        """Others may be at work in it from now on."""
        ...
