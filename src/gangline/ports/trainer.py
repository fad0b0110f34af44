"""A trainer at work in a directory that keeps the trainer contract (gangline.core.runs.contract)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.core.files import File
from gangline.core.runs.contract import Failure, Manifest, Prepared, Progress
from gangline.core.runs.metrics import Reading
from gangline.core.runs.proof import Proof


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is complete on the node."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Pictures:
    """Of a step, complete on the node; by their paths below `samples/`."""

    step: int
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Something prepared that is complete on the node."""

    folder: Path
    manifest: Prepared


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left in `output/` and `samples/`, by paths below them."""

    output: tuple[File, ...]
    samples: tuple[File, ...]


class Run(Protocol):
    directory: Path

    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        ...

    def progress(self) -> Progress:
        """The last line that it reported."""
        ...

    def take_readings(self) -> list[Reading]:
        """What it measured since this was asked last, in the order of its steps."""
        ...

    def failure(self) -> Failure | None:
        """What it said of its own end."""
        ...

    def checkpoints(self) -> list[Saved]:
        """Those that are complete, oldest first."""
        ...

    def pictures(self) -> list[Pictures]:
        """Of each step that it rendered, oldest first."""
        ...

    def prepared(self) -> list[Made]:
        """What it prepared and others need not, as far as that is complete."""
        ...

    def printed(self, first_byte: int, most: int) -> bytes:
        """What it printed from `first_byte` on, `most` bytes of it."""
        ...

    def result(self) -> RunResult | None:
        """Of one that has ended. None while its files are being hashed: ask again."""
        ...

    def ask_to_save(self) -> None:
        """Save after this step, then go on. Only one that has taken a step is asked: before, a trainer may not listen yet."""
        ...

    def ask_to_render(self) -> None:
        """Pictures of this step, then go on. As `ask_to_save`."""
        ...

    def ask_to_stop(self) -> None:
        """Save, then exit 75. Asking again is no error, nor is asking one that has ended."""
        ...

    def kill(self) -> None:
        """It is gone on return, with every process that it started. No error if it is gone already."""
        ...


class Trainer(Protocol):
    def prove(self) -> Proof | None:
        """Return what this node can do, as loading the libraries and trying the card has shown; None while that is under way: ask again.
        It is looked at once."""
        ...

    def prepare(self) -> None:
        """Do now what a start would have to wait for and what needs no job. Asking again is no error."""
        ...

    def start(self, kind: str, directory: Path) -> Run: ...
