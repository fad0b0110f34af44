"""Run a trainer as a subprocess in its own session, with a small environment: no token, no key, no user's settings.

When the agent dies the kernel kills the trainer too (PR_SET_PDEATHSIG), so a node never trains without a lease to renew.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.runs import contract
from gangline.core.runs.contract import Failure, Manifest, Prepared, Progress, parse_manifest, parse_prepared
from gangline.core.runs.metrics import Point, Reading, sound
from gangline.core.runs.proof import PROBE, Proof
from gangline.core.specs.kinds import KINDS
from gangline.ports.trainer import Made, Pictures, RunResult, Saved
from gangline.posix import CORES, cores, die_with_parent

MODULES = {name: kind.program for name, kind in KINDS.items()}
STANDBY = "gangline.train.run.standby"
PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "LANG",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PATH",
    "PYTHONPATH",
    "TMPDIR",
)
OF_DATA = "GANGLINE_DATA_"
"""The prefix of variables in which a node's operator gives trainers access to data sets; no other secret of the node reaches them."""
LOG = "log.txt"
PROOF_S_MAX = 600.0
"""The longest time that loading the libraries may take: usually seconds, from a cold disk a minute or two."""


class ProcessTrainer:
    """Starts each run in a standby process, which has loaded the libraries already: loading takes longer than downloading a checkpoint. The
    standby holds a few hundred megabytes of memory; it is started on demand if there is none. The first one proves what this machine can
    do; `card` is the driver's name of its first GPU. `cards` are the GPUs of the node's slots by their names in CUDA_VISIBLE_DEVICES; none
    on a machine without."""

    def __init__(self, *, card: str = "", cards: Sequence[str] = (), slots: int = 1) -> None:
        self._card = card
        self._cards = cards
        self._slots = slots
        self._standby: subprocess.Popen[bytes] | None = None
        self._proving: _Proving | None = None

    def prove(self) -> Proof | None:
        if self._proving is None:
            reading, writing = os.pipe()
            self._stand_by("--report", str(writing), "--card", self._card, pass_fds=(writing,))
            os.close(writing)
            self._proving = _Proving(reading, time.monotonic() + PROOF_S_MAX)
        proof = self._proving.look()
        if proof and PROBE in proof.problems and self._standby:
            self._standby.kill()
        return proof

    def prepare(self) -> None:
        if self._standby is None or self._standby.poll() is not None:
            self._stand_by()

    def _stand_by(self, *options: str, pass_fds: Sequence[int] = ()) -> None:
        # -P: no module in the working directory may shadow one of ours
        command = [sys.executable, "-P", "-m", STANDBY, *MODULES.values(), *options]
        self._standby = _start(
            command,
            below="/",
            home="/nonexistent",
            stdin=subprocess.PIPE,
            log=subprocess.DEVNULL,
            pass_fds=pass_fds,
        )

    def start(self, kind: str, directory: Path, slots: tuple[int, ...] = (0,)) -> "ProcessRun":
        self.prepare()
        process, self._standby = self._standby, None
        assert process and process.stdin
        (directory / LOG).touch()
        order = {
            "module": MODULES[kind],
            "directory": str(directory),
            "log": str(directory / LOG),
            "environment": self._of_slots(slots),
        }
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(order).encode() + b"\n")
        return ProcessRun(process, directory)

    def _of_slots(self, slots: tuple[int, ...]) -> dict[str, str]:
        """Return what a trainer's environment says of its slots. Their number decides the threads that read pictures, and no result."""
        cards = {"CUDA_VISIBLE_DEVICES": ",".join(self._cards[slot] for slot in slots)} if self._cards else {}
        share = {CORES: str(max(1, cores() * len(slots) // self._slots))} if self._slots > 1 else {}
        return cards | share


class _Proving:
    """The report of the standby process, read without blocking until the process has closed its end."""

    def __init__(self, reading: int, until_s: float) -> None:
        os.set_blocking(reading, False)
        self._reading = reading
        self._until_s = until_s
        self._said = b""
        self._proof: Proof | None = None

    def look(self) -> Proof | None:
        if self._proof is None:
            self._proof = self._read()
            if self._proof:
                os.close(self._reading)
        return self._proof

    def _read(self) -> Proof | None:
        with suppress(BlockingIOError):
            while part := os.read(self._reading, 65_536):
                self._said += part
            return _proof_of(self._said)
        if time.monotonic() < self._until_s:
            return None
        return Proof(kinds=(), problems={PROBE: f"the libraries did not load in {PROOF_S_MAX / 60:.0f} min"})


def _proof_of(said: bytes) -> Proof:
    """Parse the complete report; it is cut off if the process died."""
    try:
        told = json.loads(said)
    except ValueError:
        return Proof(kinds=(), problems={PROBE: "the process that loads the libraries died"})
    return Proof(kinds=tuple(told["kinds"]), problems=told["problems"], measured=told["measured"])


def start_program(command: Sequence[str], directory: Path, *, below: Path) -> "ProcessRun":
    """Start any program that keeps the contract in `directory`; its working directory is `below`. Raises `BadInput` if it cannot be
    started."""
    with (directory / LOG).open("ab") as log:
        try:
            process = _start(command, below=below, home=directory, stdin=subprocess.DEVNULL, log=log)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadInput(
                f"{command[0]} cannot be started: {why}", hint="check that it is installed, and in PATH"
            ) from None
    return ProcessRun(process, directory)


def _start(
    command: Sequence[str],
    *,
    below: str | Path,
    home: str | Path,
    stdin: int,
    log: IO[bytes] | int,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        cwd=below,
        env=_environment(home),
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one call into libc, and the agent's step has one thread
    )


class ProcessRun:
    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.directory = directory
        self._process = process
        self._read_to = 0
        self._progress = Progress()
        self._failure: Failure | None = None
        self._readings: list[Reading] = []
        self._known: dict[Path, Manifest] = {}
        self._rendered: dict[Path, Pictures] = {}
        self._made: dict[Path, Prepared] = {}
        self._hashing: Future[RunResult] | None = None

    def exit_code(self) -> int | None:
        return self._process.poll()

    def progress(self) -> Progress:
        self._read_reports()
        return self._progress

    def take_readings(self) -> list[Reading]:
        self._read_reports()
        taken, self._readings = self._readings, []
        return taken

    def failure(self) -> Failure | None:
        self._read_reports()
        return self._failure

    def checkpoints(self) -> list[Saved]:
        folder = self.directory / contract.CHECKPOINTS
        found = [Saved(path.parent, self._manifest(path)) for path in folder.glob(f"*/{contract.MANIFEST}")]
        return sorted(found, key=lambda saved: saved.manifest.step)

    def pictures(self) -> list[Pictures]:
        for path in (self.directory / contract.SAMPLES).glob(f"*/{contract.PICTURES}"):
            if path not in self._rendered:
                self._rendered[path] = _pictures_in(path.parent)
        return sorted(self._rendered.values(), key=lambda pictures: pictures.step)

    def prepared(self) -> list[Made]:
        folder = self.directory / contract.PREPARED
        return [Made(path.parent, self._prepared(path)) for path in sorted(folder.glob(f"*/{contract.MANIFEST}"))]

    def printed(self, first_byte: int, most: int) -> bytes:
        with (self.directory / LOG).open("rb") as log:
            log.seek(first_byte)
            return log.read(most)

    def result(self) -> RunResult | None:
        if self._hashing is None:
            self._hashing = ThreadPoolExecutor(1, thread_name_prefix="result").submit(_result_in, self.directory)
        return self._hashing.result() if self._hashing.done() else None

    def ask_to_save(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def ask_to_render(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR2)

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _manifest(self, path: Path) -> Manifest:
        if path not in self._known:
            self._known[path] = parse_manifest(json.loads(path.read_text()))
        return self._known[path]

    def _prepared(self, path: Path) -> Prepared:
        if path not in self._made:
            self._made[path] = parse_prepared(json.loads(path.read_text()))
        return self._made[path]

    def _read_reports(self) -> None:
        """Read complete lines only: the trainer may be in the middle of one."""
        path = self.directory / contract.PROGRESS
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read_to)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, report: dict[str, Any]) -> None:
        if "failure" in report:
            self._failure = Failure(**report["failure"])
            return
        last = self._progress
        self._progress = Progress(
            phase=report["phase"],
            step=report["step"],
            steps=report["steps"],
            loss=report["loss"] if report["loss"] is not None else last.loss,
            seconds_per_step=report["seconds_per_step"] or last.seconds_per_step,
            save_s=report.get("save_s") or last.save_s,
        )
        self._measure(report)

    def _measure(self, report: dict[str, Any]) -> None:
        values, saved = sound(report.get("metrics")), report["phase"] == "saving"
        if values or saved:
            self._readings.append(Reading(point=Point(step=report["step"], values=values), saved=saved))


def _environment(home: str | Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(OF_DATA)}
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
    return {"OMP_NUM_THREADS": "1"} | kept | quiet | {"HOME": str(home)}


def _pictures_in(folder: Path) -> Pictures:
    """Return the pictures with the hashes that the trainer wrote down."""
    told = json.loads((folder / contract.PICTURES).read_text())
    files = [File(path=one["path"], bytes=one["bytes"], sha256=one["sha256"]) for one in told["pictures"]]
    files.append(described_file(folder / contract.PICTURES, folder))
    return Pictures(told["step"], tuple(replace(file, path=f"{folder.name}/{file.path}") for file in files))


def _result_in(directory: Path) -> RunResult:
    output, samples = (_describe_all(directory / name) for name in (contract.OUTPUT, contract.SAMPLES))
    return RunResult(output=output, samples=samples)


def _describe_all(folder: Path) -> tuple[File, ...]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(described_file(path, folder) for path in paths)


def described_file(path: Path, folder: Path) -> File:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=sha256)
