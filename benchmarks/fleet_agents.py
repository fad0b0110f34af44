"""A fleet of real agents, without their trainers, in few processes: the load of `python benchmarks/fleet.py agents`.

An agent is what `gangline worker` runs (`gangline.worker`): its requests go over HTTP, its disk is a folder, its files are uploaded by
the worker's own transfer. Only its trainer is a stand-in that takes time and computes nothing, but reports, prints and saves as
Gangline's own trainers do. The loop that steps agents is not that of the worker, which looks five times a second: here an agent is stepped
when it is due, or has news, by one of a few threads. So a process has hundreds of them.
"""

import hashlib
import heapq
import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from gangline.adapters.host.gauges import MeasuredMachine, NodeGauges
from gangline.adapters.host.host import LocalHost
from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.transfer.transfer import FutureTask, NodesTransfer
from gangline.core.errors import GanglineError, TooMany, Unreachable
from gangline.core.files import Beginning, File, Grant, Signed
from gangline.core.fleet.gauges import Gauges
from gangline.core.models.bases import ModelRole
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, Failure, Manifest, Progress
from gangline.core.runs.metrics import Point, Reading
from gangline.core.runs.proof import Proof
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_task, spec_hash
from gangline.ports.server import Assignment, Beat, Beaten, Folder, Hold, Join, NoWork, Stale, Upload
from gangline.ports.trainer import Made, Pictures, RunAccess, RunResult, Saved
from gangline.wire.agent import HttpServer
from gangline.worker.agent import Agent
from gangline.worker.edges import Edges
from gangline.worker.loop import STEP_EVERY_S

ROOT = Path(__file__).parents[1]
STEPPING = 32
"""The threads of a process that step its agents: so many requests of a process are under way at most."""
START_S = 3.0
"""From the start of a trainer to its first step."""
STEP_S = (0.2, 0.6)
"""Seconds a step takes: each machine has its own pace."""
STEPS = 300
SAVE_S = 0.3
"""How long a save holds up training (`benchmarks/card.py beside`). An agent asks for one every `SAVE_S` ÷ 1 % = 30 s."""
READING_S, LINE_S = 0.5, 5.0
"""How often Gangline's trainers write a line of progress, and a line of the log."""
FILES = {"weights.safetensors": 2048, "optimizer.safetensors": 4096}
"""The files of a checkpoint, with their bytes."""
LINE_BYTES = 64
DRIVE = """
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.fleet_agents import drive

url, token, folder, orders = sys.argv[1:]
drive(url, token, Path(folder), Connection(int(orders)))
"""
"""The program of a process that drives agents."""


@dataclass(slots=True)
class Seen:
    """What the agents of a process saw since it was taken last."""

    beats_s: list[float] = field(default_factory=list)
    """From the request to the answer, as the agent waits for it."""
    late_s: list[float] = field(default_factory=list)
    """How late a step came that was due: the load's own fault."""
    counts: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0

    def __iadd__(self, other: "Seen") -> "Seen":
        self.beats_s += other.beats_s
        self.late_s += other.late_s
        self.counts += other.counts
        self.cpu_s += other.cpu_s
        return self


@dataclass(frozen=True, slots=True)
class BareAnswer:
    """What `gangline.wire.http` asks of httpx's answers."""

    status_code: int
    content: bytes
    headers: dict[str, str]

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def json(self) -> Any:
        return json.loads(self.content)


class BareClient:
    """One kept connection to the server, instead of httpx's client, which takes two thirds of an agent's CPU."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._place = at.hostname, at.port
        self._socket: socket.socket | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        content: Any,
        headers: dict[str, str],
        params: dict[str, Any] | None,
        timeout: Any,
    ) -> BareAnswer:
        """Send a request. Raise httpx's errors."""
        body = (content or "").encode()
        lines = [f"{method} {path}{'?' + urlencode(params) if params else ''} HTTP/1.1", "Host: gangline"]
        lines += [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {len(body)}", "", ""]
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._place, timeout.connect)
                self._socket.settimeout(timeout.read)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall("\r\n".join(lines).encode() + body)
            return self._answer(self._socket)
        except OSError as error:
            self._socket = None
            raise (httpx.ReadTimeout if isinstance(error, TimeoutError) else httpx.ReadError)(str(error)) from None

    @staticmethod
    def _answer(connection: socket.socket) -> BareAnswer:
        came = b""
        while b"\r\n\r\n" not in came:
            came += _more(connection)
        head, _, body = came.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += _more(connection)
        return BareAnswer(int(status[9:12]), body, headers)


def _more(connection: socket.socket) -> bytes:
    found = connection.recv(65_536)
    if not found:
        raise ConnectionError("the server closed the connection")
    return found


class SeenServer(HttpServer):
    """The way to the server. It counts what the agent asks for, and measures heartbeats."""

    def __init__(self, url: str, token: str, seen: Callable[[], Seen]) -> None:
        super().__init__(url, token, BareClient(url))  # type: ignore[arg-type]
        self._seen = seen

    def claim(self, gauges: Gauges | None = None) -> Assignment | NoWork:
        answer = super().claim(gauges)
        self._seen().counts["claims" if isinstance(answer, Assignment) else "claims without work"] += 1
        return answer

    def beat(self, hold: Hold, beat: Beat) -> Beaten | Stale:
        began_s = time.perf_counter()
        try:
            answer = super().beat(hold, beat)
        except Unreachable as error:
            self._seen().counts["beats refused" if isinstance(error, TooMany) else "beats without an answer"] += 1
            raise
        except GanglineError:
            self._seen().counts["beats refused"] += 1
            raise
        finally:
            self._seen().beats_s.append(time.perf_counter() - began_s)
        self._seen().counts["leases lost"] += isinstance(answer, Stale)
        return answer

    def _of_attempt(self, hold: Hold, what: str, body: Any, kind: type[Any]) -> Any:
        answer = super()._of_attempt(hold, what, body, kind)
        self._seen().counts[what] += isinstance(answer, kind)
        self._seen().counts[f"{what} refused"] += not isinstance(answer, kind)
        return answer


class SeenTransfer:
    """The worker's own transfer, which wakes the agent when a file has arrived."""

    def __init__(self, inner: NodesTransfer, news: Callable[[], None], seen: Callable[[], Seen]) -> None:
        self._inner = inner
        self._news = news
        self._seen = seen

    def apart(self) -> "SeenTransfer":
        return SeenTransfer(self._inner.apart(), self._news, self._seen)

    def describe(self, file: File, source: Path) -> FutureTask[Upload]:
        return self._told(self._inner.describe(file, source))

    def upload(self, grant: Grant, file: File, source: Path) -> FutureTask[None]:
        self._seen().counts["files uploaded"] += 1
        return self._told(self._inner.upload(grant, file, source))

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> FutureTask[None]:
        return self._told(self._inner.download(signed, file, to, durable=durable))

    def list_hub(self, repo: str, commit: str, role: ModelRole) -> FutureTask[tuple[File, ...]]:
        return self._told(self._inner.list_hub(repo, commit, role))

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> FutureTask[None]:
        return self._told(self._inner.download_from_hub(repo, commit, file, to))

    def stop(self) -> None:
        self._inner.stop()

    @property
    def idle(self) -> bool:
        return self._inner.idle

    def _told(self, task: FutureTask[Any]) -> FutureTask[Any]:
        task.future.add_done_callback(lambda _: self._news())
        return task


@dataclass(slots=True)
class PacedTrainer:
    """The stand-in of a trainer, at the pace of its machine. `wake` steps the agent at a moment of its clock."""

    step_s: float
    wake: Callable[[float], None]

    def prove(self) -> Proof:
        return Proof()

    def prepare(self) -> None:
        """Do nothing: no libraries are loaded."""

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> "PacedRun":
        return PacedRun(self, directory)


class PacedRun:
    """A run that is where the clock says, and saves when it is asked to."""

    def __init__(self, trainer: PacedTrainer, directory: Path) -> None:
        self.directory = directory
        self._wake = trainer.wake
        self._step_s = trainer.step_s
        spec = parse_task(json.loads((directory / contract.SPEC).read_text()))
        assert isinstance(spec, LoraSpec)
        self._spec_hash, self._steps = spec_hash(spec), spec.steps
        self._began_s = time.monotonic() + START_S
        self._ends_s = self._began_s + self._steps * self._step_s
        self._code: int | None = None
        self._saves_s: float | None = None
        self._saved: list[Saved] = []
        self._said: list[Reading] = []
        self._read_step = 0
        self._result: RunResult | None = None
        self._wake(self._began_s + self._step_s)
        self._wake(self._ends_s)
        self._next_line_s = self._began_s + LINE_S
        self._wake(self._next_line_s)

    def _now_step(self) -> int:
        return max(0, min(self._steps, int((time.monotonic() - self._began_s) / self._step_s)))

    def exit_code(self) -> int | None:
        if self._code is None and time.monotonic() >= self._ends_s:
            self._result = RunResult(output=(self._write(contract.OUTPUT, DIFFUSERS_FILE, 2048),), samples=())
            self._code = EXIT_DONE
        return self._code

    def progress(self) -> Progress:
        step = self._now_step()
        if not step:
            return Progress(phase="preparing", steps=self._steps)
        saving = SAVE_S if self._saved else None
        return Progress(
            phase="training", step=step, steps=self._steps, loss=0.1, seconds_per_step=self._step_s, save_s=saving
        )

    def take_readings(self) -> list[Reading]:
        every = max(1, round(READING_S / self._step_s))
        steps = range(self._read_step + every, self._now_step() + 1, every)
        self._read_step = steps[-1] if steps else self._read_step
        values = {"loss": 0.1, "learning_rate": 1e-4, "seconds_per_step": self._step_s, "images_per_second": 2.0}
        found = [Reading(point=Point(step=step, values=values)) for step in steps]
        saved, self._said = self._said, []
        return sorted([*found, *saved], key=lambda reading: (reading.point.step, reading.saved))

    def failure(self) -> Failure | None:
        return None

    def checkpoints(self) -> list[Saved]:
        if self._saves_s is not None and time.monotonic() >= self._saves_s:
            self._save()
        return [saved for saved in self._saved if saved.folder.exists()]

    def _save(self) -> None:
        step, self._saves_s = self._now_step(), None
        name = f"{contract.CHECKPOINTS}/{contract.checkpoint_name(step)}"
        files = tuple(self._write(name, file, size) for file, size in FILES.items())
        manifest = Manifest(step=step, spec_hash=self._spec_hash, fingerprint={"gpu": "none"}, exact=True, files=files)
        self._saved.append(Saved(self.directory / name, manifest))
        self._said.append(Reading(point=Point(step=step, values={}), saved=True))

    def _write(self, folder: str, name: str, size: int) -> File:
        content, path = secrets.token_bytes(size), self.directory / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return File(path=name, bytes=size, sha256=hashlib.sha256(content).hexdigest())

    def unfinished(self) -> None:
        return None

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        return ()

    def pictures(self) -> list[Pictures]:
        return []

    def place(self, folder: Folder, path: str) -> Path:
        return self.directory / folder / path

    def prepared(self) -> list[Made]:
        return []

    def note(self, line: str) -> None:
        """It has no log to which a line could be added."""

    def printed(self, first_byte: int, most: int) -> bytes:
        now_s = time.monotonic()
        if now_s >= self._next_line_s:
            self._next_line_s += LINE_S
            if now_s < self._ends_s:
                self._wake(self._next_line_s)
        lines = int(max(0.0, min(now_s, self._ends_s) - self._began_s) / LINE_S)
        text = b"".join(_line(number) for number in range(first_byte // LINE_BYTES, lines))
        return text[first_byte % LINE_BYTES :][:most]

    def result(self) -> RunResult | None:
        return self._result

    def ask_to_save(self) -> None:
        self._saves_s = self._saves_s or time.monotonic() + self._step_s + SAVE_S
        self._wake(self._saves_s)

    def ask_to_render(self, *, now: bool = False) -> None:
        """Do nothing: the jobs want no pictures."""

    def ask_to_finish(self) -> None:
        """Do nothing: nobody finishes the jobs early."""

    def ask_to_stop(self) -> None:
        self._code = self._code if self._code is not None else EXIT_STOPPED

    def kill(self) -> None:
        self._ends_s = 0.0


def _line(number: int) -> bytes:
    return f"line {number}  loss 0.1000  0.4 s/step".ljust(LINE_BYTES - 1).encode() + b"\n"


class Driven:
    """An agent, and when it is stepped."""

    def __init__(self, loop: "Loop", number: int) -> None:
        self._loop = loop
        self.turn = 0
        self.running = self.again = False
        name = f"{os.getpid()}-{number}"
        rng, home = Random(name), loop.folder / name
        hub = NodesHub(loop.hub, home / "hub")
        edges = Edges(
            server=SeenServer(loop.url, loop.token, lambda: loop.seen),
            transfer=SeenTransfer(NodesTransfer(loop.url, hub, rng), self.wake, lambda: loop.seen),  # type: ignore[arg-type]
            trainer=PacedTrainer(rng.uniform(*STEP_S), lambda at_s: loop.at(at_s, self)),
            host=LocalHost(home),
            rng=rng,
            gauges=NodeGauges(MeasuredMachine(home, ()).measure).take,
        )
        self._agent = Agent(edges, Join(machine=f"machine-{name}", name=name), patient=True)

    def wake(self) -> None:
        self._loop.at(time.monotonic(), self)

    def step(self) -> float:
        """Return when it is due again."""
        self._agent.step(time.monotonic())
        for line in self._agent.news:
            if is_bad := any(words in line for words in ("lease is lost", "abandoned", "no longer knows")):
                self._loop.seen.counts["bad news"] += 1
            if is_bad or "trying again" in line:
                print(line, file=sys.stderr)
        self._agent.news.clear()
        return max(self._agent.due_s, time.monotonic() + STEP_EVERY_S)


class Loop:
    """Steps agents when they are due: one thread looks at the clock, a few step."""

    def __init__(self, url: str, token: str, folder: Path) -> None:
        self.url, self.token, self.folder = url, token, folder
        self.hub = HuggingFaceHub("")
        self.seen = Seen()
        self._heap: list[tuple[float, int, Driven, int | None]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._ready = SimpleQueue[tuple[Driven, float]]()
        for work in (self._look, *[self._step] * STEPPING):
            threading.Thread(target=work, daemon=True).start()

    def at(self, due_s: float, driven: Driven, turn: int | None = None) -> None:
        """Step it then; with its `turn`, only if it was not stepped before."""
        with self._changed:
            self._push(due_s, driven, turn)

    def _push(self, due_s: float, driven: Driven, turn: int | None) -> None:
        heapq.heappush(self._heap, (due_s, next(self._numbers), driven, turn))
        if self._heap[0][2] is driven:
            self._changed.notify()

    def _look(self) -> None:
        with self._changed:
            while True:
                wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                due_s, _, driven, turn = heapq.heappop(self._heap)
                if driven.running:
                    driven.again = True
                elif turn is None or turn == driven.turn:
                    driven.running = True
                    self._ready.put((driven, due_s))

    def _step(self) -> None:
        while True:
            driven, due_s = self._ready.get()
            self.seen.late_s.append(time.monotonic() - due_s)
            try:
                next_s = driven.step()
            except Exception:
                self.seen.counts["agents that died"] += 1
                raise
            with self._changed:
                driven.turn += 1
                again, driven.running, driven.again = driven.again, False, False
                self._push(time.monotonic() if again else next_s, driven, driven.turn)


def drive(url: str, token: str, folder: Path, orders: Connection) -> None:
    """Take orders: `("add", COUNT, SECONDS)` adds agents within that time, `("take",)` answers with what was seen since the last."""
    sys.setswitchinterval(0.001)  # else the threads of this process wait 5 ms for each other
    loop, numbers = Loop(url, token, folder), itertools.count()
    cpu_s = time.process_time()
    while True:
        try:
            order = orders.recv()
        except EOFError:  # whoever gave the orders is gone
            return
        if order[0] == "take":
            seen, loop.seen = loop.seen, Seen()
            seen.cpu_s, cpu_s = time.process_time() - cpu_s, time.process_time()
            orders.send(seen)
        else:
            _, count, within_s = order
            began_s = time.monotonic()
            for number in range(count):
                loop.at(began_s + number * within_s / count, Driven(loop, next(numbers)))


class Load:
    """The processes that drive agents, with the code of Gangline that `environment` leads to: this one's, or a release's."""

    def __init__(
        self, url: str, token: str, folder: Path, processes: int, environment: dict[str, str] | None = None
    ) -> None:
        self._orders, self._processes = list[Any](), list[Any]()
        for number in range(processes):
            ours, theirs = Pipe()
            command = [sys.executable, "-c", DRIVE, url, token, str(folder / str(number)), str(theirs.fileno())]
            with theirs:
                process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
            self._processes.append(process)
            self._orders.append(ours)

    def add(self, agents: int, within_s: float) -> None:
        each, rest = divmod(agents, len(self._orders))
        for number, orders in enumerate(self._orders):
            orders.send(("add", each + (number < rest), within_s))

    def take(self) -> Seen:
        """Return what all agents have seen since this was called last."""
        for orders in self._orders:
            orders.send(("take",))
        seen = Seen()
        for orders in self._orders:
            seen += orders.recv()
        return seen

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()
