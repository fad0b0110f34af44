"""A large fleet: `python benchmarks/fleet.py tick [--engine sqlite|postgresql] [--profile]`, or `agents [--agents N] [--seconds S]`.

tick    a tick over 10 pools, 10,000 nodes and 100,000 queued jobs, on SQLite and on PostgreSQL: in a steady state, and right after 1,000
        jobs came for which as many nodes are rented; with the time of each part of it
agents  how long a heartbeat takes, and whether a lease is missed, while 1,000 real agents claim, beat and upload for ten minutes

In every tick all that a tick does at its intervals is due, but for `first`, which also does what is done every ten minutes. Providers
answer at once and show every node. The queued jobs are of 50 projects, half of them with a budget, and of 200 workloads; a twentieth were
interrupted before, and half of these are banned from a machine. Nine pools are full; the tenth has small cards, for which nobody but the
new jobs asks. PostgreSQL has fsync, on a socket; it is vacuumed after all leases were renewed at once, before a tick.

The agents are in four processes (`benchmarks/fleet_agents.py` says what of them is real), first a quarter of them, then half, then all. The
server is one `gangline server` over PostgreSQL, with the default policy, that keeps files in its own folder, its default: agents upload to
URLs that it signs and serves. Server, database and agents share this machine's cores; `others` is what no process of this benchmark used.
The exit status is 1 if an attempt did not go on or succeed, or if p99 of a heartbeat of all agents is 100 ms or more.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `queue` is a module of Python's too
# isort: split

import argparse
import cProfile
import functools
import gc
import itertools
import pstats
import resource
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import Any

import psutil
import psycopg
from benchmarks.fleet_agents import STEP_S, STEPS, Load, Seen
from benchmarks.http import Server, running, wait
from benchmarks.queue import deployed, prepare
from psycopg.conninfo import conninfo_to_dict
from tests.postgres import Postgres, postgres
from tests.shop import ShopPool, Till

from gangline.adapters.store.postgres import PostgresStore
from gangline.adapters.store.sqlite import SqliteStore
from gangline.compose.client import Client
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.lora import LoraSpec
from gangline.ports.pool import Instance, Offer
from gangline.service import controller
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import AtOnce

NODES, QUEUED, NEW = 10_000, 100_000, 1_000
PROJECTS, WORKLOADS = 50, 200
ROUNDS = 7
CARDS = (
    ("RTX 3060 12GB", 12),
    ("RTX 4080", 16),
    ("RTX 3090", 24),
    ("RTX 4090", 24),
    ("RTX 5090", 32),
    ("L40S", 48),
    ("RTX A6000", 48),
    ("A100 80GB", 80),
    ("H100 SXM", 80),
    ("RTX 4060", 8),  # with room left
)
SLOTS = (1, 1, 1, 1, 1, 1, 4, 8, 8, 1)
KINDS_HERE = "," + ",".join(sorted(KINDS)) + ","

Row = Mapping[str, object]


class Tables:
    """A database that takes many rows at once, in one transaction."""

    def __init__(self, place: str) -> None:
        self._place = place

    def add(self, table: str, rows: Iterator[Row]) -> None:
        first = next(rows)
        columns, values = list(first), (tuple(row.values()) for row in itertools.chain([first], rows))
        if self._place.startswith("postgresql:"):
            copied = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
            with psycopg.connect(self._place) as to, to.cursor().copy(copied) as copy:  # type: ignore[arg-type]
                for row in values:
                    copy.write_row(row)
        else:
            marks = ", ".join("?" * len(columns))
            with closing(sqlite3.connect(self._place)) as to, to:
                to.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)

    def first(self, sql: str) -> dict[str, Any]:
        if self._place.startswith("postgresql:"):
            with psycopg.connect(self._place) as to:
                cursor: Any = to.execute(sql)  # type: ignore[arg-type]
                row = cursor.fetchone()
        else:
            with closing(sqlite3.connect(self._place)) as to:
                cursor = to.execute(sql)
                row = cursor.fetchone()
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    def run(self, *statements: str) -> None:
        if self._place.startswith("postgresql:"):
            with psycopg.connect(self._place, autocommit=True) as to:
                for statement in statements:
                    to.execute(statement)  # type: ignore[arg-type]
        else:
            with closing(sqlite3.connect(self._place, isolation_level=None)) as to:
                for statement in statements:
                    to.execute(statement)

    def has_all(self) -> None:
        """Do what PostgreSQL does by itself after a while."""
        if self._place.startswith("postgresql:"):
            self.run("VACUUM (ANALYZE)")


@dataclass
class Fleet:
    """The service with its fleet, and its providers by pool."""

    deployment: Deployment
    tables: Tables
    tills: dict[str, Till]
    template: dict[str, Any]
    jobs: Iterator[int]

    def stay(self, now_ms: int) -> None:
        """All nodes have just been heard of, and those without work have had none for a second."""
        lease_ms = now_ms + self.deployment.policy.lease_ms
        self.tables.run(
            f"UPDATE lease SET beat_ms = {now_ms}, stepped_ms = {now_ms}, expires_ms = {lease_ms}",
            f"UPDATE node SET seen_ms = {now_ms}, meter_ms = {now_ms - 1000} WHERE state <> 'gone'",
            f"UPDATE node SET since_ms = {now_ms - 60_000} WHERE state = 'starting'",
        )
        self.tables.has_all()

    def submit(self, jobs: int, now_ms: int, needs: Callable[[int], Row]) -> None:
        """Add queued jobs as if they had been submitted."""
        self.tables.add("job", (self._job(next(self.jobs), now_ms, needs) for _ in range(jobs)))

    def withdraw(self) -> None:
        """Take the last jobs and the nodes that were rented for them away."""
        last = f"pool = '{name_of(len(CARDS) - 1)}' AND state = 'starting'"
        self.tables.run(
            "DELETE FROM job WHERE name = 'new'",
            f"DELETE FROM credential WHERE rental IN (SELECT id FROM node WHERE {last})",
            f"DELETE FROM instance WHERE node IN (SELECT id FROM node WHERE {last})",
            f"DELETE FROM node WHERE {last}",
        )
        till = self.tills[name_of(len(CARDS) - 1)]
        till.instances = {key: each for key, each in till.instances.items() if not each.id.startswith("instance-")}

    def _job(self, number: int, now_ms: int, needs: Callable[[int], Row]) -> Row:
        at_ms = now_ms - 60_000 - number % 50_000
        own = {"id": f"job-{number:09}", "project": f"p{number % PROJECTS}", "request": None, "state": "queued"}
        times = {"submitted_ms": at_ms, "queued_ms": at_ms, "ready_ms": at_ms, "ended_ms": None, "listed": 1}
        return {**self.template, **own, **times, **needs(number)}


def name_of(pool: int) -> str:
    return f"cloud-{pool}"


def queued_needs(number: int) -> Row:
    """What the jobs ask for that have waited for long: any card of 12 GB or more, or one class; some were interrupted."""
    gpu, gb = CARDS[number // 7 % (len(CARDS) - 1)] if number % 4 == 0 else ("", (12, 16, 24, 40)[number // 3 % 4])
    return {
        "workload": f"workload-{number % WORKLOADS}",
        "gpu": gpu,
        "gpu_memory_gb": gb,
        "slots": (1, 1, 1, 2, 4)[number // 11 % 5] if not gpu else 1,
        "fencing": int(number % 20 == 0),
    }


def new_needs(number: int) -> Row:
    return {"name": "new", "workload": f"workload-{number % WORKLOADS}", "gpu": CARDS[-1][0], "gpu_memory_gb": 8}


@contextmanager
def made(place: str, store: SqliteStore | PostgresStore) -> Iterator[Fleet]:
    tills = {name_of(pool): Till(offers=[offer_of(pool)]) for pool in range(len(CARDS))}
    each = NODES // len(CARDS)
    pools = {
        name: RentedPool(
            PoolLimits(name=name, nodes_min=0, nodes_max=each + (2 * NEW if name == name_of(len(CARDS) - 1) else 0)),
            AtOnce(ShopPool(till)),
        )
        for name, till in tills.items()
    }
    deployment = replace(deployed(store), pools=pools)
    tables, now_ms = Tables(place), store.now_ms()
    job = prepare(deployment, PROJECTS)
    template = tables.first(f"SELECT * FROM job WHERE id = '{job}'")
    fleet = Fleet(deployment, tables, tills, template, itertools.count())
    tables.run("UPDATE project SET budget = 1000000000 WHERE CAST(SUBSTR(id, 2) AS BIGINT) % 2 = 0")
    fleet.submit(QUEUED, now_ms, queued_needs)
    add_nodes(fleet, now_ms)
    tables.has_all()
    yield fleet
    store.close()


def offer_of(pool: int) -> Offer:
    gpu, gb = CARDS[pool]
    price = 20_000 * gb * SLOTS[pool]
    return Offer(id=f"offer-{pool}", gpu=gpu, gpu_memory_gb=gb, slots=SLOTS[pool], price_micro_usd_per_hour=price)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the nodes by their numbers, and of what they do."""

    template: dict[str, Any]
    now_ms: int

    @property
    def began_ms(self) -> int:
        return self.now_ms - 3_600_000

    def at(self, number: int) -> dict[str, Any]:
        pool = number % len(CARDS)
        gpu, gb = CARDS[pool]
        return {"pool": name_of(pool), "machine": f"machine-{number}", "gpu": gpu, "gpu_memory_gb": gb}

    def node(self, number: int) -> Row:
        pool = number % len(CARDS)
        price = {"price_micro_usd_per_hour": offer_of(pool).price_micro_usd_per_hour, "price_known": 1}
        times = dict.fromkeys(("since_ms", "joined_ms", "seen_ms", "meter_ms"), self.began_ms)
        names = {"id": f"node-{number}", "rental": f"node-{number}", "name": f"n-{number}", "instance": f"i-{number}"}
        rest = {"numerics": f"numerics-{pool}", "capabilities": "{}", "kinds": KINDS_HERE, "because": "", "trust": 0}
        state = "draining" if number % 20 == 19 else "ready"
        own = {"number": number, "state": state, "slots": SLOTS[pool], "rented": 1, "missing": 0}
        return self.at(number) | price | times | names | rest | own | {"offer": f"offer-{pool}"}

    def running(self, number: int) -> Row:
        job = self.template | {"id": f"running-{number}", "state": "running", "request": None, "ended_ms": None}
        where = {"project": f"p{number % PROJECTS}", "workload": f"workload-{number % WORKLOADS}"}
        return job | where | {"fencing": 1, "listed": 1, "steps": 2000}

    def attempt(self, number: int) -> Row:
        names = {"id": f"attempt-{number}", "job": f"running-{number}", "node": f"node-{number}", "fencing": 1}
        rest = {
            "workload": f"workload-{number % WORKLOADS}",
            "kind": "",
            "committed_step": 0,
            "committed_ms": self.now_ms,
        }
        rest |= {"state": "live", "because": "", "slots": 1, "price_micro_usd_per_hour": 1000, "from_step": 0}
        return self.at(number) | names | rest | {"step": 0, "beat_ms": self.began_ms, "started_ms": self.began_ms}

    def lease(self, number: int) -> Row:
        names = {"attempt": f"attempt-{number}", "rank": 0, "node": f"node-{number}", "fencing": 1, "slots": 1}
        times = {
            "started_ms": self.began_ms,
            "expires_ms": self.now_ms,
            "beat_ms": self.now_ms,
            "stepped_ms": self.now_ms,
        }
        rest = {
            "phase": "training",
            "step": 500,
            "loss": 0.1,
            "seconds_per_step": self.pace(number),
            "training_ms": self.began_ms,
        }
        rest |= {"reserved": 0, "downloaded_bytes": 0, "stop": "", "stop_kind": "", "price_micro_usd_per_hour": 1000}
        return names | times | rest

    def pace(self, number: int) -> float:
        return (1 + number % 13 / 10_000) * (1 + number % len(CARDS))

    def measured(self, number: int) -> Row:
        return {
            "workload": f"workload-{number % WORKLOADS}",
            "gpu": CARDS[number % len(CARDS)][0],
            "machine": f"machine-{number}",
            "seconds_per_step": self.pace(number),
            "at_ms": self.began_ms,
        }

    def machine(self, number: int) -> Row:
        none = dict.fromkeys(("failures", "rest_until_ms", "quarantines", "quarantined_until_ms", "on_trial"), 0)
        return {
            "id": f"machine-{number}",
            "pool": self.at(number)["pool"],
            "known_ms": self.began_ms,
            "because": "",
        } | none

    def instance(self, number: int) -> Row:
        names = {"id": f"i-{number}", "node": f"node-{number}"}
        return names | {"billed_from_ms": self.began_ms, "billed_to_ms": None, "settled": 0}

    def ban(self, number: int) -> Row:
        return {
            "job": f"job-{number:09}",
            "machine": f"machine-{number // 40 % NODES}",
            "because": "",
            "at_ms": self.now_ms,
        }


def add_nodes(fleet: Fleet, now_ms: int) -> None:
    """Of twenty nodes one is idle; one of those that work drains."""
    rows, numbers = Rows(fleet.template, now_ms), range(NODES)
    working = [number for number in numbers if number % 20 != 18]
    for number in numbers:
        shown = Instance(id=f"i-{number}", name=f"node-{number}", billed_from_ms=rows.began_ms, billed_to_ms=None)
        fleet.tills[name_of(number % len(CARDS))].instances[shown.id] = shown
    add = fleet.tables.add
    add("machine", map(rows.machine, numbers))
    add("node", map(rows.node, numbers))
    add("instance", map(rows.instance, numbers))
    add("job", map(rows.running, working))
    add("attempt", map(rows.attempt, working))
    add("lease", map(rows.lease, working))
    add("pace", map(rows.measured, working))
    add("ban", map(rows.ban, range(0, QUEUED, 40)))


class Parts:
    """Measures the parts of a tick: the functions that the controller calls."""

    def __init__(self) -> None:
        self.taken_s: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def measured(self) -> Iterator[None]:
        own = {
            name: each
            for name, each in vars(controller).items()
            if callable(each) and not isinstance(each, type) and not name.startswith("_") and name != "Callable"
        }
        for name, part in own.items():
            setattr(controller, name, self._timed(name, part))
        try:
            yield
        finally:
            for name, part in own.items():
                setattr(controller, name, part)

    def _timed(self, name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(part)
        def timed(*arguments: Any, **named: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return part(*arguments, **named)
            finally:
                self.taken_s[name].append(time.perf_counter() - began_s)

        return timed

    def show(self) -> None:
        of = sorted(((median(taken), name) for name, taken in self.taken_s.items()), reverse=True)
        print("    " + ", ".join(f"{name} {taken_s * 1000:.0f}" for taken_s, name in of if taken_s >= 0.0005))


def measure_ticks(fleet: Fleet, *, profiles: bool) -> None:
    now_ms = fleet.deployment.store.now_ms()
    interval_ms = round(fleet.deployment.policy.watch_interval_s * 1000)

    def tick_often(what: str, ticker: Controller, count: int, before: Callable[[int], None]) -> None:
        nonlocal now_ms
        taken, parts = list[float](), Parts()
        profile = cProfile.Profile()
        with parts.measured():
            for _ in range(count):
                now_ms += interval_ms
                fleet.stay(now_ms)
                before(now_ms)
                gc.collect()
                if profiles:
                    profile.enable()
                began_s = time.perf_counter()
                ticker.tick(now_ms)
                taken.append(time.perf_counter() - began_s)
                profile.disable()
        print(f"{what:10} {count:>6} {median(taken) * 1000:>10.0f} {max(taken) * 1000:>9.0f}", flush=True)
        parts.show()
        if profiles:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)

    def come(now_ms: int) -> None:
        fleet.withdraw()
        fleet.stay(now_ms)
        fleet.submit(NEW, now_ms, new_needs)

    print(f"{'':10} {'ticks':>6} {'median ms':>10} {'max ms':>9}")
    ticker = Controller(fleet.deployment)
    tick_often("first", ticker, 1, lambda _: None)
    tick_often("steady", ticker, ROUNDS, lambda _: None)
    tick_often("1,000 came", ticker, ROUNDS, come)
    started = len(fleet.tills[name_of(len(CARDS) - 1)].started)
    assert started == NEW * ROUNDS, f"{started} nodes were rented"


def tick(engines: Sequence[str], *, profiles: bool) -> None:
    for engine in engines:
        print(f"\n{engine}: a tick over {len(CARDS)} pools, {NODES:,} nodes, {QUEUED:,} queued jobs; its parts in ms")
        if engine == "sqlite":
            with tempfile.TemporaryDirectory(prefix="gangline-benchmark-") as folder:
                place = str(Path(folder) / "gangline.db")
                with made(place, SqliteStore(Path(place))) as fleet:
                    measure_ticks(fleet, profiles=profiles)
        else:
            with postgres() as server:
                url = server.make_database()
                with made(url, PostgresStore(url)) as fleet:
                    measure_ticks(fleet, profiles=profiles)


PROCESSES = 4
MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are made by tempfile
"""The server's folder of files and the agents' are in memory: in a fleet they are on other disks than the database, or in a bucket."""
BATCH = 1000
RAMP_S, SETTLE_S = 15.0, 5.0
"""The agents of a stage come within `RAMP_S`, and are measured `SETTLE_S` later."""
BEAT_MS_MAX = 100
ENDED_WELL = ("live", "succeeded")


class Spent:
    """The seconds of CPU that server, database and everybody on this machine have spent."""

    def __init__(self, server: Server, database: Postgres) -> None:
        postmaster = psutil.Process(database.pid)
        self.at_s = time.monotonic()
        self.server_s = server.cpu_s()
        self.database_s = sum(postmaster.cpu_times()) - postmaster.cpu_times().iowait
        for backend in postmaster.children():
            self.database_s += backend.cpu_times().user + backend.cpu_times().system
        busy = psutil.cpu_times()
        self.all_s = busy.user + busy.nice + busy.system + busy.irq + busy.softirq + busy.steal


def submit(server: Server, folder: Path, jobs: int) -> None:
    client, photo = Client(server.url, server.user), folder / "photo.png"
    photo.write_bytes(b"a photo")
    files = client.files.upload([photo], folder)
    spec = LoraSpec(base=FilesBase(files=files), photos=files, prompt="sks dog", steps=STEPS, sample_result=False)
    for first in range(0, jobs, BATCH):
        lines = client.jobs.submit_batch([spec] * min(BATCH, jobs - first))
        assert all(line.job for line in lines), lines


def agents(count: int, seconds: float) -> bool:
    """Print what the agents saw in each stage. Return whether the last one met the targets."""
    stages = [(count // 4, min(60.0, seconds)), (count // 2, min(60.0, seconds)), (count, seconds)]
    waits_s = sum((RAMP_S + SETTLE_S + stage_s) * among for among, stage_s in stages)
    with (
        tempfile.TemporaryDirectory(prefix="gangline-benchmark-", dir=MEMORY) as folder,
        postgres() as database,
        running(database, within=MEMORY) as server,
    ):
        submit(server, Path(folder), round(waits_s / (STEPS * STEP_S[0])) + count)
        load, here = Load(server.url, server.join, Path(folder), PROCESSES), 0
        try:
            for among, stage_s in stages:
                load.add(among - here, RAMP_S)
                here = among
                wait(RAMP_S + SETTLE_S)
                load.take()
                before = Spent(server, database)
                wait(stage_s)
                seen = load.take()
                p99_ms = show_stage(among, seen, before, Spent(server, database))
            missed = show_attempts(database, server)
        finally:
            load.stop()
    return not missed and p99_ms < BEAT_MS_MAX


def show_stage(among: int, seen: Seen, before: Spent, after: Spent) -> float:
    """Print a stage; return p99 of a heartbeat in ms."""
    took_s = after.at_s - before.at_s
    median_ms, p99_ms, most_ms = in_ms(seen.beats_s)
    print(
        f"\n{among:,} agents, {took_s:.0f} s: a heartbeat takes {median_ms:.1f} ms, p99 {p99_ms:.1f}, at most {most_ms:.0f}; "
        f"{len(seen.beats_s) / took_s:.1f} a second"
    )
    late = in_ms(seen.late_s)
    print(f"  an agent was stepped {late[0]:.1f} ms after it was due, p99 {late[1]:.1f}, at most {late[2]:.0f}")
    print("  " + ", ".join(f"{what} {number:,}" for what, number in sorted(seen.counts.items()) if number))
    server_s, database_s = after.server_s - before.server_s, after.database_s - before.database_s
    others_s = max(0.0, after.all_s - before.all_s - server_s - database_s - seen.cpu_s)
    shares = {"server": server_s, "PostgreSQL": database_s, "agents": seen.cpu_s, "others": others_s}
    print(
        "  % of a core: " + ", ".join(f"{what} {spent_s / took_s * 100:.0f}" for what, spent_s in shares.items()),
        end="",
    )
    beats = len(seen.beats_s)
    print(
        f"; ms of CPU a heartbeat, all else included: server {server_s / beats * 1e3:.2f}, PostgreSQL {database_s / beats * 1e3:.2f}"
    )
    return p99_ms


def in_ms(taken_s: list[float]) -> tuple[float, float, float]:
    """Return the median, p99, and the most."""
    return median(taken_s) * 1000, quantiles(taken_s, n=100)[98] * 1000, max(taken_s) * 1000


def show_attempts(database: Postgres, server: Server) -> int:
    """Print how the attempts of the whole run ended; return how many were lost."""
    found = database.run(
        "SELECT state, COUNT(*) FROM attempt GROUP BY state ORDER BY state", conninfo_to_dict(server.database)["dbname"]
    )
    lost = sum(number for state, number in found if state not in ENDED_WELL)
    print("\nattempts: " + ", ".join(f"{state} {number:,}" for state, number in found) + f"; leases missed: {lost}")
    return lost


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("part", choices=["tick", "agents"])
    arguments.add_argument("--engine", choices=["sqlite", "postgresql"], help="only this store")
    arguments.add_argument("--profile", action="store_true", help="what the ticks' time goes to, too")
    arguments.add_argument("--agents", type=int, default=1000, help="so many in the last stage")
    arguments.add_argument("--seconds", type=float, default=600, help="how long the last stage takes")
    given = arguments.parse_args()
    if given.part == "agents":
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        sys.exit(not agents(given.agents, given.seconds))
    tick([given.engine] if given.engine else ["sqlite", "postgresql"], profiles=given.profile)
