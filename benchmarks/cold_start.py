"""What a start costs on a node with a line of so many Mbit/s: `python benchmarks/cold_start.py [GB] [MBIT]` (0.25 GB, 100 Mbit/s).

cold    the base has never been on this machine: the promise is bytes ÷ bandwidth + 60 s from the worker's start to its first step
warm    the same node, another job of the same photos: neither the base nor what the first one prepared from it is made or sent again
again   another worker on the same machine: its cache is there, its process is new

A real server, workers and trainers as processes. The base is the tiny one with random bytes beside it, which are fetched as a base is.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import logging
import os
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from threading import Event
from urllib.parse import urlsplit

from tests.inputs import BASE, SUBJECT
from tests.proxy import Proxy

from gangline.adapters.pools.local import start_node, stop_all
from gangline.cli.admin.box import Box
from gangline.core.models.bases import files_needed
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec

PARTS = 4
PROMISED_S = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    sent_bytes: int


class Bench:
    def __init__(self, box: Box, line: Proxy, folder: Path, size: int) -> None:
        self._box, self._line = box, line
        self._rank = 1
        names = files_needed([path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()])
        base = box.client.files.upload([BASE / name for name in names], BASE)
        paths = [folder / f"ballast-{number}" for number in range(PARTS)]
        for path in paths:
            path.write_bytes(os.urandom(size // PARTS))
        self._base = FilesBase(files=(*base, *box.client.files.upload(paths, folder)))
        self._photos = box.client.files.upload(sorted(SUBJECT.glob("*.png")), SUBJECT)
        self.bytes = sum(file.bytes for file in self._base.files)

    def start_node(self, home: Path) -> None:
        self._box.nodes["node"] = start_node(
            name="node", home=home, server=self._line.url, join_token=self._box.join_token
        )

    def stop_node(self) -> None:
        stop_all([self._box.nodes.pop("node")])

    def first_step(self) -> Start:
        """Of a new job, from now on."""
        self._rank += 1
        started_s, before = time.monotonic(), self._line.down.bytes
        spec = LoraSpec(
            base=self._base,
            photos=self._photos,
            prompt="sks cat face",
            resolution=64,
            steps=5,
            rank=self._rank,
            sample_steps=1,
            sample_seeds=(1,),
        )
        job = self._box.client.jobs.submit(spec).summary.id
        while (found := self._box.client.jobs.get(job).summary).step == 0:
            assert found.state in ("queued", "running"), found.because
            Event().wait(0.05)
        start = Start(time.monotonic() - started_s, self._line.down.bytes - before)
        while self._box.client.jobs.get(job).summary.state != "succeeded":
            Event().wait(0.2)
        return start


def main(gb: float, mbit: float) -> None:
    bytes_per_s = mbit * 125_000
    with TemporaryDirectory() as name, Box(Path(name) / "box", lease_s=30, heartbeat_interval_s=0.5) as box:
        address = urlsplit(box.url)
        with Proxy((address.hostname or "", address.port or 0), bytes_per_s=bytes_per_s) as line:
            bench, home = Bench(box, line, Path(name), round(gb * 1e9)), Path(name) / "machine"
            bench.start_node(home)
            cold = bench.first_step()
            warm = bench.first_step()
            bench.stop_node()
            bench.start_node(home)
            again = bench.first_step()
            bench.stop_node()
    bound_s = bench.bytes / bytes_per_s + PROMISED_S
    print(
        f"a base of {bench.bytes / 1e6:.0f} MB over {mbit:.0f} Mbit/s: {bench.bytes / bytes_per_s:.1f} s on the line alone"
    )
    for what, start in (("cold", cold), ("warm", warm), ("again", again)):
        print(f"{what:6} {start.seconds:6.1f} s to the first step, {start.sent_bytes / 1e6:8.2f} MB sent")
    print(f"bound of a cold start: {bound_s:.1f} s   {'kept' if cold.seconds <= bound_s else 'BROKEN'}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    given = [float(word) for word in sys.argv[1:]]
    main(*(given + [0.25, 100.0][len(given) :]))
