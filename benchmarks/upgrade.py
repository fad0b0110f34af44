"""An upgrade under load: `python benchmarks/upgrade.py [--agents N] [--seconds S] [--release v0.2.0]` (200 agents, 30 s before and after).

Real agents of the release, without trainers (`benchmarks/fleet_agents.py`), claim, beat and upload against its server over PostgreSQL, both
from its code in the history. The server is stopped as Ctrl-C does, and today's starts over the same home and port. The agents continue for
a lease time more, within which the lease of an agent that died would end. Then: how long nobody answered, how many heartbeats and other
requests for an attempt were refused, how many leases were lost and how many agents died or said so (the limits are 0), and the longest time
between two heartbeats of a lease that the service took, beside the lease time of 45 s. The exit status is 1 where a limit is not kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import psycopg
from benchmarks.fleet import ENDED_WELL, MEMORY, PROCESSES, RAMP_S, SETTLE_S, in_ms
from benchmarks.fleet_agents import STEP_S, STEPS, Load
from benchmarks.http import wait
from tests.postgres import postgres
from tests.upgrade.make import code_of, environment_of

from gangline.compose.client import Client
from gangline.core.policy import Policy
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec

BATCH = 1000
LEASE_S = Policy().lease_s
EXPIRES_S = LEASE_S + 15
"""What is over after it, is known to be: the controller looks every few seconds."""


class Served:
    """A server of some code in a process of its own."""

    def __init__(self, home: Path, database: str, port: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "gangline.cli.main", "server", "-o", "json", "--home", str(home)]
        self._process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"GANGLINE_DATABASE_URL": database},
        )
        assert self._process.stdout is not None, "it is a pipe"
        access = json.loads(self._process.stdout.readline())
        self.url, self.user, self.join = access["url"], access["operator_key"], access["join_token"]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.communicate()


class Gaps:
    """Looks into the database ten times a second: how long each lease was without a heartbeat that was taken."""

    def __init__(self, database: str) -> None:
        self.longest_s = 0.0
        self._beats: dict[str, int] = {}
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self._database, autocommit=True) as connection:
            while not self._stopping.wait(0.1):
                for attempt, beat_ms in connection.execute("SELECT attempt, beat_ms FROM lease").fetchall():
                    before_ms = self._beats.get(attempt, beat_ms)
                    self.longest_s = max(self.longest_s, (beat_ms - before_ms) / 1000)
                    self._beats[attempt] = beat_ms


def submit(server: Served, folder: Path, jobs: int) -> None:
    client, photo = Client(server.url, server.user), folder / "photo.png"
    photo.write_bytes(b"a photo")
    files = client.files.upload([photo], folder)
    spec = LoraSpec(base=FilesBase(files=files), photos=files, prompt="sks dog", steps=STEPS, sample_result=False)
    for first in range(0, jobs, BATCH):
        client.jobs.submit_batch([spec] * min(BATCH, jobs - first))


def attempts_of(database: str) -> dict[str, int]:
    with psycopg.connect(database) as connection:
        return dict(connection.execute("SELECT state, COUNT(*) FROM attempt GROUP BY state ORDER BY state").fetchall())


def is_wrong(what: str) -> bool:
    return what in ("leases lost", "agents that died", "bad news") or what.endswith(" refused")


def upgrade(given: Any, folder: Path, code: Path, database: str) -> bool:
    own: dict[str, str] = dict(os.environ)
    of_release = environment_of(code)
    home = folder / "home"
    old = Served(home, database, 0, of_release)
    after_s = max(given.seconds, EXPIRES_S)
    total_s = given.seconds + after_s + RAMP_S + SETTLE_S + 60
    try:
        submit(old, folder, round(total_s / (STEPS * STEP_S[0]) + 1) * given.agents * 2)
        load, gaps = Load(old.url, old.join, folder, PROCESSES, of_release), Gaps(database)
        new = None
        try:
            load.add(given.agents, RAMP_S)
            wait(RAMP_S + SETTLE_S + given.seconds)
            before = load.take()
            began_s = time.monotonic()
            old.stop()
            stopped_s = time.monotonic() - began_s
            new = Served(home, database, old.port, own)
            unanswered_s = time.monotonic() - began_s
            wait(after_s)
            after = load.take()
        finally:
            load.stop()
            gaps.stop()
            if new:
                new.stop()
    finally:
        old.stop()
    found = attempts_of(database)
    for when, seen in (("before", before), ("after", after)):
        print(f"{when}: " + ", ".join(f"{what} {number:,}" for what, number in sorted(seen.counts.items()) if number))
    assert before.beats_s and after.beats_s, "no agent had a job yet: give it more seconds"
    lost = sum(number for state, number in found.items() if state not in ENDED_WELL)
    wrong = {what: number for what, number in (before.counts + after.counts).items() if is_wrong(what)}
    refused = wrong.pop("beats refused", 0) + wrong.pop("leases lost", 0)
    p99 = in_ms(before.beats_s)[1], in_ms(after.beats_s)[1]
    print(
        f"{given.agents:,} agents of {given.release}, its server to today's: stopped in {stopped_s:.1f} s, "
        f"nobody answered for {unanswered_s:.1f} s; "
        f"{len(before.beats_s):,} heartbeats before and {len(after.beats_s):,} after it, p99 {p99[0]:.0f} and {p99[1]:.0f} ms; "
        f"{after.counts['beats without an answer']:,} without an answer, tried again\n"
        f"heartbeats refused {refused} (limit: 0), leases lost {lost} (limit: 0), longest time between two heartbeats of a lease "
        f"{gaps.longest_s:.1f} s (a lease: {LEASE_S:g} s)\n"
        f"else wrong: {', '.join(f'{what} {number}' for what, number in wrong.items()) or 'nothing'} (limit: nothing)\n"
        f"attempts: {', '.join(f'{state} {number:,}' for state, number in found.items())}"
    )
    return not refused and not lost and not wrong and gaps.longest_s < LEASE_S


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--agents", type=int, default=200)
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--release", default="v0.2.0")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="gangline-benchmark-", dir=MEMORY) as place, postgres() as database:
        folder, code = Path(place), Path(place) / "code"
        code.mkdir()
        if not code_of(given.release, code):
            sys.exit(f"this history lacks {given.release}")
        sys.exit(not upgrade(given, folder, code, database.make_empty_database()))


if __name__ == "__main__":
    main()
