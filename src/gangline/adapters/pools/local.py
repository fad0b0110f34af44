"""The `local` pool driver: nodes are workers on this machine, as subprocesses. Each lives in a home folder, and a home is a machine: the
next node in it has its machine id and its cache. The kernel kills the nodes when the server dies, however it dies."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.core.server.merging import secret_variables
from gangline.core.server.programs import SECRETS_OF_BUCKETS
from gangline.core.server.settings import ServerSettings, WorkerSettings
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental
from gangline.posix import die_with_parent

WORKER = (sys.executable, "-m", "gangline.cli.main", "worker")
LOG = "worker.log"
RECORD = "instance.json"
GRACE_S = 30
OF_SERVER = {*secret_variables(ServerSettings), *SECRETS_OF_BUCKETS} - {*secret_variables(WorkerSettings)}
OF_PROVIDERS = "GANGLINE_POOL_"
ENDED_KEPT_S = 600
log = logging.getLogger("gangline.fleet.local")


@dataclass(slots=True)
class LocalNode:
    name: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """Kill the worker as a power failure would; its trainer dies with it."""
        self.process.kill()
        self.process.wait()


def start_node(
    *,
    name: str,
    home: Path,
    server: str,
    join_token: str,
    node: str = "",
    card: str = "",
    command: Sequence[str] = WORKER,
) -> LocalNode:
    """Start a worker. It joins as `node` if that was rented for it, and sees only the GPU `card`, if one is named. The token is passed in
    the environment, since `ps` shows arguments. The worker dies with the thread that calls this."""
    home.mkdir(parents=True, exist_ok=True)
    shown = {"CUDA_VISIBLE_DEVICES": card} if card else {}
    with (home / LOG).open("ab") as output:
        process = subprocess.Popen(
            [*command, "--server", server, "--name", name, "--home", home],
            env=_of_a_node() | {"GANGLINE_TOKEN": join_token, "GANGLINE_NODE": node} | shown,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one call into libc, which was loaded before
        )
    return LocalNode(name, process)


def _of_a_node() -> dict[str, str]:
    """Return the environment without the secrets that are the server's alone: a trainer, or a command that a user sent, may be able to read
    what its worker was given."""
    return {
        name: value for name, value in os.environ.items() if name not in OF_SERVER and not name.startswith(OF_PROVIDERS)
    }


def stop_all(nodes: Sequence[LocalNode]) -> None:
    """Ask each node to save, return its job and leave; kill those that take longer than `GRACE_S`."""
    for node in nodes:
        with suppress(ProcessLookupError):
            node.process.send_signal(signal.SIGTERM)
    until_s = time.monotonic() + GRACE_S
    for node in nodes:
        try:
            node.process.wait(max(0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            node.kill()


@dataclass(slots=True, kw_only=True)
class _Rented:
    """A node of this pool. `running` is None once it has ended. `asked_s` is when it was first asked to stop, `ended_s` when its end was
    seen (seconds of the monotonic clock)."""

    id: str
    name: str
    home: Path
    from_ms: int
    running: LocalNode | None
    to_ms: int | None = None
    asked_s: float | None = None
    ended_s: float | None = None
    ended: str = ""


class LocalPool:
    """Runs at most `nodes_max` nodes at a time, each on one of `cards` in turn. They reach the server at its own address on this box.

    Several threads may call it; no call but `stop_all` waits for a node.
    """

    def __init__(
        self,
        homes: Path,
        *,
        nodes_max: int,
        offer: Offer,
        server: str,
        cards: Sequence[str] = (),
        command: Sequence[str] = WORKER,
    ) -> None:
        self._offer = offer
        self._cards = cards
        self._homes = [homes / str(number) for number in range(1, nodes_max + 1)]
        self._server = server
        self._command = command
        self._lock = threading.Lock()
        self._closed = False
        # A node dies with the thread that started it: this one lives as long as the server.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="nodes")
        self._rented = _remembered(homes)

    def offers(self) -> list[Offer]:
        return [self._offer] if self._homes else []

    def start(self, offer: str, rental: Rental) -> None:
        name = rental.name
        with self._lock:
            self._look()
            if any(rented.name == name and rented.running for rented in self._rented):
                return
            home = self._free_home()
            if self._closed or offer != self._offer.id:
                raise NoCapacity(f"this box is stopping, or has no offer {offer}")
            if home is None:
                raise NoCapacity(f"all {len(self._homes)} places for nodes on this box are taken")
            from_ms = _now_ms()
            node = self._start(rental, home)
            instance = f"local-{from_ms}-{node.process.pid}"
            rented = _Rented(id=instance, name=name, home=home, from_ms=from_ms, running=node)
            self._rented.append(rented)
            _record(rented)
        log.info("node %s is process %d and writes %s", name, node.process.pid, home / LOG)

    def stop(self, instance: str) -> None:
        with self._lock:
            self._look()
            for rented in self._rented:
                if rented.id == instance and rented.running:
                    _stop(rented, rented.running)

    def list(self) -> list[Instance]:
        with self._lock:
            self._look()
            return [
                Instance(
                    id=rented.id,
                    name=rented.name,
                    billed_from_ms=rented.from_ms,
                    billed_to_ms=rented.to_ms,
                    ended=rented.ended,
                )
                for rented in self._rented
            ]

    def stop_all(self) -> None:
        """Stop all nodes, and start none any more."""
        with self._lock:
            self._closed = True
            running = [rented for rented in self._rented if rented.running]
            for rented in running:
                rented.asked_s = time.monotonic()
        stop_all([rented.running for rented in running if rented.running])
        self.list()
        self._starter.shutdown()

    def _start(self, rental: Rental, home: Path) -> LocalNode:
        try:
            return self._starter.submit(
                start_node,
                name=rental.name,
                home=home,
                server=self._server,
                join_token=rental.token,
                node=rental.name,
                card=self._cards[self._homes.index(home) % len(self._cards)] if self._cards else "",
                command=self._command,
            ).result()
        except OSError as error:
            raise NoCapacity(f"no process can be started on this box: {error}") from None

    def _look(self) -> None:
        """Check which nodes have ended, and forget those that ended long ago."""
        now_s = time.monotonic()
        for rented in self._rented:
            if rented.running:
                _look(rented, rented.running, now_s)
        self._rented = [
            rented for rented in self._rented if rented.ended_s is None or now_s - rented.ended_s < ENDED_KEPT_S
        ]

    def _free_home(self) -> Path | None:
        taken = {rented.home for rented in self._rented if rented.running}
        return next((home for home in self._homes if home not in taken), None)


def _look(rented: _Rented, node: LocalNode, now_s: float) -> None:
    exit_code = node.process.poll()
    if exit_code is None:
        with suppress(OSError):
            os.utime(rented.home / RECORD)
        return
    if exit_code != 0 and rented.asked_s is None:
        log.warning("node %s ended with exit code %d; its log is %s", rented.name, exit_code, rented.home / LOG)
    rented.running, rented.to_ms, rented.ended_s = None, _now_ms(), now_s
    rented.ended = f"{_how(exit_code)} on this box"
    _record(rented)


def _how(exit_code: int) -> str:
    return f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"it ended with exit code {exit_code}"


def _stop(rented: _Rented, node: LocalNode) -> None:
    now_s = time.monotonic()
    if rented.asked_s is None:
        rented.asked_s = now_s
        node.process.terminate()
    elif now_s - rented.asked_s >= GRACE_S:
        node.process.kill()


def _record(rented: _Rented) -> None:
    """Record the node for a server that restarts after a crash, so that it knows which nodes died. A lost record costs an exact end time,
    so an error does not stop the tick."""
    partial = rented.home / f".{RECORD}"
    facts = {"id": rented.id, "name": rented.name, "from_ms": rented.from_ms, "to_ms": rented.to_ms}
    with suppress(OSError):
        partial.write_text(json.dumps(facts))
        partial.rename(rented.home / RECORD)


def _remembered(homes: Path) -> list[_Rented]:
    """Return the nodes of an earlier server as ended: at the recorded time, else when they were last seen."""
    found = []
    for record in sorted(homes.glob(f"*/{RECORD}")):
        with suppress(OSError, ValueError):
            facts = json.loads(record.read_text())
            seen_ms = max(facts["from_ms"], record.stat().st_mtime_ns // 1_000_000)
            known_ms = facts.pop("to_ms")
            to_ms, ended = (
                known_ms or seen_ms,
                "it ended on this box" if known_ms else "it ended when this box's server ended",
            )
            found.append(
                _Rented(
                    **facts,
                    home=record.parent,
                    running=None,
                    to_ms=to_ms,
                    ended_s=time.monotonic(),
                    ended=ended,
                )
            )
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
