"""Run a trainer in a directory that follows the trainer contract (`gangline.core.runs.contract`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gangline.core.files import Beginning, File
from gangline.core.runs.contract import Failure, Manifest, Prepared, Progress
from gangline.core.runs.metrics import Reading
from gangline.core.runs.proof import Proof
from gangline.ports.server import Folder


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is complete on the node."""

    folder: Path
    manifest: Manifest
    in_memory: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A checkpoint that a trainer is writing."""

    step: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of a step, complete on the node, by their paths below `samples/`."""

    step: int
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Prepared files that are complete on the node."""

    folder: Path
    manifest: Prepared


@dataclass(frozen=True, slots=True)
class RunResult:
    """The files that a run left in `output/` and `samples/`, by their paths below them."""

    output: tuple[File, ...]
    samples: tuple[File, ...]


class Run(Protocol):
    directory: Path

    def exit_code(self) -> int | None:
        """Return the exit code; None while it runs, negative for the signal that ended it."""
        ...

    def progress(self) -> Progress:
        """Return the last progress that the trainer reported."""
        ...

    def take_readings(self) -> list[Reading]:
        """Return what the trainer measured since the last call, in the order of steps."""
        ...

    def failure(self) -> Failure | None:
        """Return the failure that the trainer itself reported."""
        ...

    def checkpoints(self) -> list[Saved]:
        """Return the complete checkpoints, oldest first."""
        ...

    def unfinished(self) -> Unfinished | None:
        """Return the checkpoint that it is writing; None if there is none newer than the complete ones."""
        ...

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        """Return the large files of a checkpoint in `folder`, complete or not, with the hashes of all parts that are complete, from the
        first one on; nothing of files whose parts the trainer does not announce."""
        ...

    def pictures(self) -> list[Pictures]:
        """Return the pictures of each step that it rendered, oldest first."""
        ...

    def place(self, folder: Folder, path: str) -> Path:
        """Return the path on this node of a file that it left below a folder."""
        ...

    def prepared(self) -> list[Made]:
        """Return what it prepared and other jobs can reuse, as far as that is complete."""
        ...

    def printed(self, first_byte: int, most: int) -> bytes:
        """Return at most `most` bytes of what it printed, from `first_byte` on."""
        ...

    def note(self, line: str) -> None:
        """Add a line to what it printed. Nothing happens if that cannot be written."""
        ...

    def result(self) -> RunResult | None:
        """Return the result of a run that has ended; None while its files are being hashed: ask again."""
        ...

    def ask_to_save(self) -> None:
        """Ask it to save after this step and continue. Ask only a trainer that has completed a step: before, it may not listen yet."""
        ...

    def ask_to_render(self, *, now: bool = False) -> None:
        """Ask it to render pictures and continue, under the condition of `ask_to_save`: of the step that it has kept for them, or `now` of
        this one."""
        ...

    def ask_to_finish(self) -> None:
        """Ask it to take no more steps and to write its result, at any time: it may not have begun. Repeated calls are no error."""
        ...

    def ask_to_stop(self) -> None:
        """Ask it to save, then exit with code 75. Repeated calls are no error, nor is asking a run that has ended."""
        ...

    def kill(self) -> None:
        """Kill it and every process that it started; none is left on return. It is no error if they were gone already."""
        ...


class Installing(Protocol):
    """A virtual environment that is found, made, or made by another worker of this machine meanwhile."""

    @property
    def place(self) -> Path:
        """Return the folder of the environment, which may be used once the exit code is 0, and until `release`."""
        ...

    @property
    def waits(self) -> bool:
        """Return whether it waits for another job of this machine that makes the environment, or has not begun."""
        ...

    def exit_code(self) -> int | None:
        """Return 0 once the environment can be used, another code if it cannot be made, None until then."""
        ...

    def printed(self, first_byte: int, most: int) -> bytes:
        """Return at most `most` bytes of the run's log, to which it prints, from `first_byte` on."""
        ...

    def release(self) -> None:
        """Stop making the environment, or using it. Repeated calls are no error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccess:
    """What a run may use besides its directory and its slots.

    Where the network can be cut, only one that wants the `network` has it; only one that reads data sets in `buckets` has the node's keys
    for them. A command has the values of its `secrets`, and the virtual `environment` that was made for it.
    """

    network: bool = False
    buckets: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Path | None = None


NO_ACCESS = RunAccess()


class Trainer(Protocol):
    def prove(self) -> Proof | None:
        """Return what this node can do, found by loading the libraries and trying the GPU, once; None while that is not finished."""
        ...

    def prepare(self) -> None:
        """Do in advance what a start would have to wait for and needs no job. Repeated calls are no error."""
        ...

    def install(self, directory: Path) -> Installing:
        """Begin to install the requirements among the inputs of a run that is laid out in `directory`."""
        ...

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> Run:
        """Start a run on these slots of the node: it sees their GPUs only, and has their share of the processor's cores. Its directory may
        be another one from then on: that of the run."""
        ...
