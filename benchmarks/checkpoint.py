"""How soon a checkpoint is safe, and what is written to disk for it: `python benchmarks/checkpoint.py [MEGABYTES[@MBIT] ...]`
(66@100 66 2000@1000 2000; with @MBIT over a line that carries so many Mbit/s, which costs this machine CPU as well).

The real agent and the trainer's own saver, in a process of its own, against SeaweedFS on this machine. `safe` is the time from the save to
the commit; `the wire` the time in which the same transfer uploads a file of that size whose parts are hashed already, before and after the
saves. `disk` is what the kernel counts that the trainer and the agent, with the server in one process, have written to disks; the
inputs, the log and the database are among it. First with checkpoints in memory, then without.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import hashlib
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from urllib.parse import urlsplit

from tests.processes import written_bytes
from tests.proxy import Proxy
from tests.servers import s3_server
from tests.service.conftest import JOIN, Service, a_service
from tests.sqlite import make_database

from gangline.adapters.host.host import LocalHost
from gangline.adapters.host.trainer.beneath import open_of_runs
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.host.trainer.start import start_program
from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import find_abilities
from gangline.adapters.objects.s3_wire import Wire
from gangline.adapters.transfer.transfer import NodesTransfer
from gangline.core.files import File, Grant, part_lengths
from gangline.core.runs.proof import Proof
from gangline.core.specs.spec import spec_hash
from gangline.ports.objects import UploadPart
from gangline.ports.server import Join
from gangline.ports.trainer import RunAccess
from gangline.wire.agent import HttpServer
from gangline.worker.agent import Agent
from gangline.worker.edges import Edges
from gangline.worker.loop import wait_for_news

SHM = Path("/dev/shm")  # noqa: S108
SAVES = 3
WOKEN = Event()
STEPS = 10_000
TRAINS = """
import json, sys, threading, time
from pathlib import Path
import torch
from gangline.posix import RunMemory
from gangline.train.checkpoints.manifest import CheckpointIdentity
from gangline.train.checkpoints.shards import ShardSaver
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks

run, size = RunDirectory(Path("."), RunMemory.told(), steps=STEPS), int(sys.argv[1])
identity = CheckpointIdentity(spec_hash=sys.argv[2], fingerprint={}, exact=True)
orders = Orders()
orders.obey_signals()
saver = ShardSaver(run.checkpoints, Ranks(), after=0, memory=run.memory)
state = {f"{kind}/{number}": torch.zeros(size // 48) for kind in ("weights", "optimizer", "averaged") for number in range(4)}
run.phase = "training"
while not orders.stop:
    threading.Event().wait(0.02)
    run.report_step(run.step + 1, {"loss": 0.5}, steps_since=1)
    if orders.save:
        orders.save = False
        run.report_phase("saving")
        with open("saves.jsonl", "a") as told:
            print(json.dumps([run.step, time.time()]), file=told)
        saver.save(run.step, identity, state, {})
        run.report_phase("training")
saver.wait()
sys.exit(75)
""".replace("STEPS", str(STEPS))


class SavingProcess:
    """A trainer that does nothing but save a state of some bytes when it is asked."""

    def __init__(self, host: LocalHost, size: int, spec: str) -> None:
        self._host = host
        self._command = [sys.executable, "-c", TRAINS, str(size), spec]
        self.run: ProcessRun | None = None

    def prove(self) -> Proof:
        return Proof()

    def prepare(self) -> None:
        """It has nothing to load in advance."""

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ProcessRun:
        self.run = start_program(self._command, directory, memory=self._host.memory)
        return self.run


@contextmanager
def a_node(service: Service, home: Path, size: int, tmpfs: Path | None) -> Iterator[tuple[Agent, SavingProcess]]:
    host = LocalHost(home, tmpfs=tmpfs)
    roots = [host.runs, *([host.memory.root] if host.memory else [])]
    hub = NodesHub(HuggingFaceHub(""), Path())
    trainer = SavingProcess(host, size, spec_hash(service.spec(steps=STEPS)))
    edges = Edges(
        server=HttpServer("http://testserver", JOIN, service.http),  # type: ignore[arg-type]
        transfer=NodesTransfer("", hub, Random(0), opens=partial(open_of_runs, roots), news=WOKEN.set),
        trainer=trainer,  # type: ignore[arg-type]
        host=host,
        rng=Random(0),
    )
    agent = Agent(edges, Join(machine="m", name="node"))
    yield agent, trainer
    agent.ask_to_stop()
    while not agent.stopped:
        step(service, agent)


def step(service: Service, agent: Agent) -> None:
    service.store.time_ms = time.time_ns() // 1_000_000
    agent.step(time.monotonic())
    wait_for_news(agent, WOKEN)


def saves(service: Service, size: int, tmpfs: Path | None) -> tuple[list[float], int, list[str]]:
    """Return the seconds from each save to its commit, the bytes written to disks, and what the node said of where checkpoints lie."""
    job = service.submit(steps=STEPS)
    safe = list[float]()
    with TemporaryDirectory(dir="/var/tmp") as home, a_node(service, Path(home), size, tmpfs) as (agent, trainer):
        before, seen = written_bytes(os.getpid()), 0
        while len(safe) < SAVES:
            step(service, agent)
            rows = service.store.load("checkpoints", job=job)
            if rows and rows[0]["step"] > seen:
                seen, now_s = rows[0]["step"], time.time()
                run = trainer.run
                assert run
                told = [
                    line.strip("[]\n").split(", ") for line in (run.directory / "saves.jsonl").read_text().splitlines()
                ]
                safe.append(now_s - next(float(at) for step, at in told if int(step) == seen))
        assert trainer.run
        written = written_bytes(os.getpid()) - before + written_bytes(trainer.run._process.pid)
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    return safe, written, [line for line in agent.news if "checkpoints lie" in line]


def wire(objects: S3Objects, size: int, key: str) -> float:
    """Return the seconds of the upload alone: what it takes to send these bytes and make an object of them."""
    transfer = NodesTransfer("", NodesHub(HuggingFaceHub(""), Path()), Random(0))
    with TemporaryDirectory(dir=SHM) as folder:
        source = Path(folder) / "file"
        with source.open("wb") as file:
            file.truncate(size)
        upload = transfer.describe(File(path="file", bytes=size, sha256=_zeros(size)), source).future.result()
        parts = [UploadPart(count, sha256) for count, sha256 in zip(part_lengths(size), upload.parts, strict=True)]
        begun_s = time.perf_counter()
        begun, until = objects.begin(key), {"now_ms": time.time_ns() // 1_000_000, "seconds": 3600.0}
        signed = [objects.sign_part(key, begun, number, part, **until) for number, part in enumerate(parts, 1)]
        transfer.upload(Grant(parts=tuple(signed)), upload, source).future.result()
        objects.complete(key, begun, parts)
        assert objects.stat(key)
        took_s = time.perf_counter() - begun_s
    objects.delete([key])
    return took_s


def _zeros(size: int) -> str:
    hashed, piece = hashlib.sha256(), bytes(2**24)
    for part in part_lengths(size):
        hashed.update(piece[:part])
    return hashed.hexdigest()


def main() -> None:
    warnings.filterwarnings("ignore")  # of the test client that stands for the network
    words = sys.argv[1:] or ["66@100", "66", "2000@1000", "2000"]
    print(f"{'checkpoint':>12}{'place':>10}{'safe':>10}{'the wire':>10}{'more':>8}{'disk':>14}")
    with TemporaryDirectory(dir="/var/tmp") as store, s3_server(Path(store)) as bucket:
        able = find_abilities(Wire(bucket))
        for word in words:
            megabytes, _, mbit = word.partition("@")
            address = urlsplit(bucket.endpoint)
            rate = float(mbit) * 125_000 if mbit else float("inf")
            for name, tmpfs in (("memory", SHM), ("disk", None)):
                with Proxy((address.hostname or "", address.port or 0), bytes_per_s=rate) as line:
                    at = replace(bucket, prefix=f"{word}-{name}", endpoint=line.url if mbit else bucket.endpoint)
                    show(word, int(megabytes) * 10**6, name, tmpfs, S3Objects(Wire(at), able))


def show(word: str, size: int, name: str, tmpfs: Path | None, objects: S3Objects) -> None:
    with TemporaryDirectory(dir=SHM) as folder:
        make_database(Path(folder) / "db.sqlite")
        with a_service(Path(folder), str(Path(folder) / "db.sqlite"), objects) as service:
            service.change_policy(save_gb_per_hour=1e6)
            service.app.state.deployment = service.deployment
            alone = [wire(objects, size, f"alone-{number}") for number in range(2)]
            safe, written, said = saves(service, size, tmpfs)
            alone += [wire(objects, size, f"again-{number}") for number in range(2)]
    safe_s, wire_s = statistics.median(safe), statistics.median(alone)
    place = said[-1].rpartition(" ")[2] if said else name
    print(
        f"{word:>12}{place:>10}{safe_s:>8.2f} s{wire_s:>8.2f} s{safe_s - wire_s:>6.2f} s{written / 1e6:>11.2f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
