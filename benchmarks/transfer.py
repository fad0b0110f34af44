"""What it costs to move a checkpoint of 66 MB, and to lose a node: `python benchmarks/transfer.py [s3] [lost] [real]`.

s3      up and down against SeaweedFS on this machine, beside a bare S3 client (obstore) that checks no hash, in turns
lost    seconds of training that a kill at a random moment costs, the real agent in virtual time, beside the bound that is promised
real    the same once more in real time: a server, a worker and the trainer as processes, with a line of 100 Mbit/s between them
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import hashlib
import logging
import os
import statistics
import time
from collections.abc import Callable
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store
from tests.inputs import BASE, SUBJECT
from tests.proxy import Proxy
from tests.servers import s3_server

from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import find_abilities
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.adapters.pools.local import start_node, stop_all
from gangline.adapters.transfer.transfer import NodesTransfer
from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from gangline.compose.client import Client
from gangline.core.files import File, Grant, part_lengths
from gangline.ports.objects import UploadPart
from gangline.sim.scenario import Fleet, Jobs, Machines, Scenario
from gangline.sim.simulation import Simulation
from gangline.sim.world import START_MS

CHECKPOINT_BYTES = 66_000_000
ROUNDS = 15
SIGNED_S = 300


class Ours:
    """What the agent and the server do with a file: hash its parts, send them, make an object of them; check what comes down."""

    def __init__(self, bucket: S3Bucket, folder: Path, file: File) -> None:
        wire = Wire(bucket)
        self._objects = S3Objects(wire, find_abilities(wire))
        self._to, self._file = folder / "ours", file
        self._transfer = NodesTransfer("", NodesHub(HuggingFaceHub(""), Path()), Random(0))

    def up(self, key: str, source: Path) -> None:
        upload = self._transfer.describe(self._file, source).future.result()
        parts = [
            UploadPart(size, sha256) for size, sha256 in zip(part_lengths(upload.bytes), upload.parts, strict=True)
        ]
        begun, until = self._objects.begin(key), {"now_ms": time.time_ns() // 1_000_000, "seconds": SIGNED_S}
        signed = [self._objects.sign_part(key, begun, number, part, **until) for number, part in enumerate(parts, 1)]
        self._transfer.upload(Grant(parts=tuple(signed)), upload, source).future.result()
        self._objects.complete(key, begun, parts)
        assert self._objects.stat(key), "it is an object now"

    def down(self, key: str) -> None:
        signed = self._objects.sign_get(key, now_ms=time.time_ns() // 1_000_000, seconds=SIGNED_S)
        self._transfer.download(signed, self._file, self._to, durable=False).future.result()


class Bare:
    def __init__(self, bucket: S3Bucket, folder: Path) -> None:
        self._to = folder / "bare"
        self._store = S3Store(
            bucket.name,
            endpoint=bucket.endpoint,
            region=bucket.region,
            access_key_id=bucket.credentials.access_key,
            secret_access_key=bucket.credentials.secret_key,
            client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )

    def up(self, key: str, source: Path) -> None:
        obstore.put(self._store, key, source)

    def down(self, key: str) -> None:
        with self._to.open("wb") as to:
            for piece in obstore.get(self._store, key).stream(min_chunk_size=2**20):
                to.write(piece)

    def down_checked(self, key: str) -> None:
        """As ours is: with its SHA-256."""
        self.down(key)
        with self._to.open("rb") as content:
            hashlib.file_digest(content, "sha256")


def s3() -> None:
    with TemporaryDirectory() as name, s3_server(Path(name)) as bucket:
        folder, source = Path(name), Path(name) / "checkpoint"
        content = os.urandom(CHECKPOINT_BYTES)
        source.write_bytes(content)
        file = File(path="checkpoint", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        ours, bare = Ours(bucket, folder, file), Bare(bucket, folder)
        acts: dict[str, Callable[[], None]] = {
            "ours up": lambda: ours.up("ours", source),
            "bare up": lambda: bare.up("bare", source),
            "ours down": lambda: ours.down("bare"),
            "bare down": lambda: bare.down("bare"),
            "bare down, hashed": lambda: bare.down_checked("bare"),
        }
        for act in acts.values():
            act()  # what is slower the first time is not what is asked
        took: dict[str, list[float]] = {what: [] for what in acts}
        for number in range(ROUNDS):
            for what in reversed(acts) if number % 2 else acts:
                took[what].append(_seconds(acts[what]))
        _show(took)


def _seconds(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _show(took: dict[str, list[float]]) -> None:
    print(f"{'':18} {'MB/s':>8} {'slowest':>8} {'fastest':>8}   of {ROUNDS}")
    for what, seconds in took.items():
        rates = [CHECKPOINT_BYTES / 1e6 / each for each in seconds]
        print(f"{what:18} {statistics.median(rates):8.0f} {min(rates):8.0f} {max(rates):8.0f}")
    for way in ("up", "down"):
        share = statistics.median(took[f"bare {way}"]) / statistics.median(took[f"ours {way}"])
        print(f"{way:18} {share:8.0%} of the bare client's rate")


KILLS = 300
PACE_S = 0.1
NODES = 10


def lost() -> None:
    print(
        f"{'uplink':>12} {'upload':>8} {'lost: mean':>11} {'median':>8} {'most':>8} {'bound':>8}   seconds, {KILLS} kills each"
    )
    for uplink_mbit in (10, 20, 100, 1000):
        upload_s = CHECKPOINT_BYTES * 8 / 1e6 / uplink_mbit
        seconds = Kills(uplink_mbit).seconds()
        mean, bound = statistics.mean(seconds), 1.5 * upload_s + 5
        print(
            f"{uplink_mbit:5} Mbit/s {upload_s:8.1f} {mean:11.1f} {statistics.median(seconds):8.1f} {max(seconds):8.1f} "
            f"{bound:8.1f}   {'kept' if mean <= bound else 'BROKEN'}",
            flush=True,
        )


class Kills:
    """Jobs that never end on nodes with this uplink, and now and then the death of one that trains."""

    def __init__(self, uplink_mbit: int) -> None:
        self._simulation = Simulation(_fleet(uplink_mbit), 0)
        self._rng = Random(uplink_mbit)
        self._lost: list[float] = []
        self._next()

    def seconds(self) -> list[float]:
        until_ms = START_MS
        while len(self._lost) < KILLS:
            until_ms += 600_000
            self._simulation.play(until_ms=until_ms)
        return self._lost

    def _next(self) -> None:
        self._simulation.world.after(self._rng.expovariate(NODES / 600), "kill", self._kill)

    def _kill(self) -> None:
        nodes = [node for node in self._simulation.cloud.nodes() if node.is_busy and node.trainer.run]
        if nodes:
            node = self._rng.choice(nodes)
            run = node.trainer.run
            assert run
            if run.progress().loss is not None and run.exit_code() is None:
                self._lost.append((run.progress().step - self._committed(run.directory.name)) * PACE_S)
                self._simulation.strike_node("kill", node, 0)
        self._next()

    def _committed(self, attempt: str) -> int:
        """The step from which this attempt's job goes on."""
        found = self._simulation.store.look(
            "SELECT MAX(checkpoint.step) FROM checkpoint JOIN attempt ON attempt.job = checkpoint.job "
            "WHERE attempt.id = ? AND checkpoint.state = 'committed'",
            attempt,
        )
        return found[0][0] or 0


SAVE_EVERY_S = 8.0  # as an operator sets it who wants as little lost as the line allows


def _fleet(uplink_mbit: int) -> Scenario:
    return Scenario(
        title="jobs that never end",
        fleet=Fleet(nodes_max=NODES, start_s=20),
        machines=(Machines(count=3 * NODES, seconds_per_step=PACE_S, start_s=10, uplink_mbit=uplink_mbit),),
        jobs=(Jobs(count=NODES, steps=10_000_000, checkpoint_every_s=3600, checkpoint_mb=66, attempts_max=100),),
        policy={"save_interval_max_s": SAVE_EVERY_S},
    )


RANK = 860  # of a LoRA of the tiny base whose checkpoints have 66 MB
REAL_S = 120
REAL_MBIT = 100


def real() -> None:
    """Looks once a second at what a kill would cost now: the steps since the newest commit, at their pace."""
    settings = {
        "prompt": "sks cat face",
        "steps": 10_000_000,
        "resolution": 64,
        "rank": RANK,
        "checkpoint_every_s": SAVE_EVERY_S,
    }
    with TemporaryDirectory() as name, Box(Path(name), lease_s=30, heartbeat_interval_s=0.5) as box:
        job = box.client.jobs.submit(upload_inputs(box.client, SUBJECT, str(BASE), [], settings)).summary.id
        address = urlsplit(box.url)
        with Proxy((address.hostname or "", address.port or 0), bytes_per_s=REAL_MBIT * 125_000) as line:
            home = Path(name) / "node"
            box.nodes["node"] = start_node(name="node", home=home, server=line.url, join_token=box.join_token)
            seconds = _would_be_lost(box.client, job)
            stop_all(list(box.nodes.values()))
    upload_s = CHECKPOINT_BYTES * 8 / 1e6 / REAL_MBIT
    mean, bound = statistics.mean(seconds), 1.5 * upload_s + 5
    print(
        f"{REAL_MBIT} Mbit/s: upload {upload_s:.1f} s; lost: mean {mean:.1f}, most {max(seconds):.1f}; bound {bound:.1f}"
    )


def _would_be_lost(client: Client, job: str) -> list[float]:
    found: list[float] = []
    while len(found) < REAL_S:
        Event().wait(1)
        view = client.jobs.get(job).summary
        if view.committed_step and view.seconds_per_step:
            found.append((view.step - view.committed_step) * view.seconds_per_step)
    return found


PARTS = {"s3": s3, "lost": lost, "real": real}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for part in sys.argv[1:] or PARTS:
        print(f"\n{part}")
        PARTS[part]()
