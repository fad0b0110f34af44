"""Weights & Biases: the job's id is the run's id, and its steps are the run's steps.

The library runs in a separate process (`wandb_process`), because it starts processes, threads and exit hooks: whatever it does, the server
waits no longer than the timeouts here, and no process outlives the server. The process exists only while jobs are reported.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangline.core.errors import GanglineError, Unreachable
from gangline.core.runs.metrics import Measured
from gangline.ports.tracker import Ending, TrackedPicture, TrackedRun
from gangline.posix import die_with_parent

OPEN_S = 120.0
WRITE_S = 60.0
END_S = 300.0
GOODBYE_S = 10.0
EXIT_CODES = {"succeeded": 0, "canceled": 255}
"""W&B shows these as finished and killed; any other code as failed."""
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
PASSED_ON_ALL = ("WANDB_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
LOG = "wandb.log"


class Wandb:
    """The W&B tracker. All calls come from one thread, which lives as long as the process does."""

    name = "wandb"

    def __init__(self, project: str, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, run: TrackedRun, told: int) -> int:
        settings = {"project": self._project, "folder": str(self._folder), "told": told}
        asked = {
            "id": run.id,
            "name": run.name,
            "group": run.project,
            "tags": [*run.tags],
            "config": dict(run.settings),
        }
        return self._ask("open", OPEN_S, run=asked, **settings)["held"]

    def write(self, run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        told = [{"step": point.step, "at_ms": point.at_ms, "values": dict(point.values)} for point in points]
        shown = [
            {"path": picture.path, "step": picture.step, "content": b64encode(picture.content).decode()}
            for picture in pictures
        ]
        self._ask("write", WRITE_S, run=run, points=told, pictures=shown)

    def end(self, run: str, ending: Ending) -> None:
        code = EXIT_CODES.get(ending.state, 1)
        self._ask("end", END_S, run=run, summary={**ending.summary, "state": ending.state}, exit_code=code)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin and process.stdout
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GOODBYE_S)
        _kill(process)
        process.stdout.close()

    def _ask(self, what: str, seconds: float, **values: Any) -> Mapping[str, Any]:
        """Send a request and return the answer. Raises `Unreachable` if none comes in time; the process is then killed with all its open
        runs."""
        if self._process is None:
            self._process = self._start()
        line = json.dumps({"ask": what} | values).encode() + b"\n"
        try:
            answer = _talk(self._process, line, seconds)
        except TimeoutError:
            _kill(self._process)
            self.close()
            raise Unreachable(f"W&B did not answer for {seconds:.0f} s") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"W&B's library ended ({error})", hint=f"see {self._folder / LOG}") from None
        if "away" in answer:
            raise Unreachable(f"W&B is unreachable: {answer['away']}")
        if "refused" in answer:
            raise GanglineError(f"W&B refuses it: {answer['refused']}")
        return answer

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / LOG).open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, "-m", "gangline.adapters.trackers.wandb_process"],
                    cwd=self._folder,
                    env=_environment(self._folder),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - one call into libc
                )
        except OSError as error:
            raise Unreachable(f"W&B's library cannot be started: {error}") from None


def _talk(process: "subprocess.Popen[bytes]", line: bytes, seconds: float) -> Mapping[str, Any]:
    """Exchange a line. Raises `TimeoutError`, or `OSError` if the process has ended."""
    assert process.stdin and process.stdout
    until_s = time.monotonic() + seconds
    process.stdin.write(line)
    answer = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while not answer.endswith(b"\n"):
            if not ready.select(max(0.0, until_s - time.monotonic())):
                raise TimeoutError
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise OSError("it closed its output")
            answer += piece
    return json.loads(answer)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Return W&B's settings, and no secret of Gangline's."""
    passed = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PASSED_ON_ALL)}
    return passed | {"WANDB_DIR": str(folder), "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}
