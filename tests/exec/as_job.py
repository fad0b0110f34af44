"""A command as a job on nodes that vanish: each start has an empty directory, and of those before it only the newest checkpoint that
arrived, as a server would give it."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.host.trainer.start import start_program
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_DONE
from gangline.core.specs.kinds import KINDS
from gangline.ports.trainer import Saved

NAP_S = 0.01
PROGRAM = (sys.executable, "-P", "-m", KINDS["command"].program, ".")


@dataclass
class StartedJob:
    """A run of it, and what arrived of it: as an agent does, `look` takes the newest checkpoint and deletes those before it."""

    run: ProcessRun
    arrived: Path
    shipped: list[int] = field(default_factory=list)

    def look(self) -> None:
        saved = self.run.checkpoints()
        if saved and saved[-1].manifest.step not in self.shipped:
            _copy(saved[-1], self.arrived)
            self.shipped.append(saved[-1].manifest.step)
            for old in saved[:-1]:
                shutil.rmtree(old.folder)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait as an agent waits; the test's time-out ends it."""
        while not condition():
            assert self.run.exit_code() is None or condition(), self.text
            self.look()
            Event().wait(NAP_S)

    def until_saved(self, times: int = 1) -> None:
        self.until(lambda: len(self.shipped) >= times)

    def until_said(self, words: str) -> None:
        self.until(lambda: words in self.text)

    def run_for(self, seconds: float) -> None:
        """Let it run so long, or until it ends."""
        until_s = monotonic() + seconds
        self.until(lambda: monotonic() >= until_s or self.run.exit_code() is not None)

    def kill(self) -> None:
        """The node is gone: nothing more arrives of it."""
        self.run.kill()

    def end(self) -> int:
        self.until(lambda: self.run.exit_code() is not None)
        self.run.kill()
        self.look()
        code = self.run.exit_code()
        assert code is not None
        return code

    def succeed(self) -> dict[str, bytes]:
        """Return its results by their paths, once it has ended well."""
        assert self.end() == EXIT_DONE, self.text
        output = self.run.directory / contract.OUTPUT
        return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}

    @property
    def text(self) -> str:
        return self.run.printed(0, 1 << 20).decode()

    @property
    def failure(self) -> str:
        failure = self.run.failure()
        return failure.because if failure else ""


@dataclass
class CommandLine:
    """A job, and the nodes that try it one after the other."""

    root: Path
    spec: dict[str, Any]
    code: tuple[Path, ...] = ()
    started: list[StartedJob] = field(default_factory=list)
    told: dict[str, Any] | None = None

    def start(self) -> StartedJob:
        directory = self.root / f"node-{len(self.started)}"
        (directory / contract.INPUTS / "code").mkdir(parents=True)
        for path in self.code:
            shutil.copy(path, directory / contract.INPUTS / "code")
        (directory / contract.SPEC).write_text(json.dumps({"kind": "command"} | self.spec))
        arrived = [step for each in self.started if each.arrived.exists() for step in sorted(each.arrived.iterdir())]
        if arrived:
            shutil.copytree(arrived[-1], directory / contract.RESUME / arrived[-1].name)
        run = start_program(PROGRAM, directory, told=self.told)
        self.started.append(StartedJob(run, self.root / f"arrived-{len(self.started)}"))
        return self.started[-1]


def _copy(saved: Saved, arrived: Path) -> None:
    """Copy what the manifest names, and check that it is what it says: nothing else of a checkpoint arrives."""
    to = arrived / saved.folder.name
    for file in saved.manifest.files:
        place = to / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(saved.folder / file.path, place)
        assert place.stat().st_size == file.bytes
    shutil.copy2(saved.folder / contract.MANIFEST, to)
