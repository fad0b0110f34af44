"""The service over HTTP: `python benchmarks/http.py [beats] [fleet] [claims] [rest] [hostile] [--sqlite]`, all of them without an
argument.

beats   heartbeats a second through one server process, as many as it takes, beside a bare Starlette route under the same uvicorn
fleet   how long a heartbeat takes where 1,000 agents beat once a second and 500 users follow jobs to which things happen
claims  16, 64, 256 and 1,000 nodes that ask for work at one moment: all get another job, the last one after so long
rest    memory and CPU of a server that has nothing to do, over a minute
hostile the worst heartbeat of one node, and how much the server's memory grows, while others send what a server must refuse

The server is `gangline server` over a PostgreSQL with fsync on a socket, or with its store in a file. Server, database, agents
and followers are processes of their own; they share this machine's cores. Each figure is the median of some rounds, with the
lowest and the highest.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `http` is a module of Python's too
# isort: split

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from tests.postgres import Postgres, postgres

from gangline.compose.client import Client
from gangline.compose.settings import SETTINGS_FILE
from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.server.limits import Limits
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.ports.server import Beat, Join, Log

AGENTS, FOLLOWERS, AT_ONCE = 1000, 500, 32
ROUNDS, ROUND_S, REST_S = 5, 10.0, 60.0
EVENTS_PER_S = 10
TICK = os.sysconf("SC_CLK_TCK")


class Connection(asyncio.Protocol):
    """A keep-alive connection of HTTP/1.1: one request after the other."""

    def __init__(self) -> None:
        self._received = bytearray()

    @classmethod
    async def open(cls, url: str) -> "Connection":
        at = urlsplit(url)
        return (await asyncio.get_running_loop().create_connection(cls, at.hostname, at.port))[1]

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if blank and len(body) == int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0):
            self._received = bytearray()
            assert self._answer, "it was asked"
            self._answer.set_result((int(head[9:12]), bytes(body)))

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self._transport.close()


def request(method: str, path: str, token: str, body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body if isinstance(body, dict) else asdict(body)).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: gangline\r\nAuthorization: Bearer {token}\r\nAccept: */*\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


class Server:
    """`gangline server` in a process and a folder of its own, with jobs to give away."""

    def __init__(self, home: Path, database: str) -> None:
        command = [
            sys.executable,
            "-m",
            "gangline.cli.main",
            "server",
            "-o",
            "json",
            "--port",
            "0",
            "--home",
            str(home),
        ]
        self._home = home
        self.database = database
        environment = os.environ | {"GANGLINE_DATABASE_URL": database}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None, "it is a pipe"
        access = json.loads(self._process.stdout.readline())
        self.url, self.user, self.join = access["url"], access["operator_key"], access["join_token"]

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) / 1024

    def submit(self, jobs: int) -> list[str]:
        client = Client(self.url, self.user)
        photo = self._home / "photo.png"
        photo.write_bytes(b"a photo")
        files: tuple[File, ...] = client.files.upload([photo], self._home)
        body = {"spec": to_json(LoraSpec(base=FilesBase(files=files), photos=files, prompt="sks dog", steps=100_000))}
        asked = [request("POST", "/v1/jobs", self.user, body) for _ in range(jobs)]
        return [json.loads(answer)["summary"]["id"] for _, answer in asyncio.run(ask_all(self.url, asked, at_once=8))]


class Agent:
    """A node that has joined, on a connection of its own."""

    def __init__(self, url: str, connection: Connection, token: str) -> None:
        self.url, self.connection, self.token = url, connection, token
        self.step = self.logged = self.asked = 0

    @classmethod
    async def joined(cls, server: Server, number: int) -> "Agent":
        connection = await Connection.open(server.url)
        name = f"{os.getpid()}-{time.time_ns()}-{number}"
        status, answer = await connection.ask(request("POST", "/v1/nodes", server.join, Join(machine=name, name=name)))
        assert status == 201, answer
        return cls(server.url, connection, json.loads(answer)["token"])

    async def claim(self) -> str:
        """A node that is told that others were faster asks again."""
        status, answer = 200, b""
        while status == 200:
            status, answer = await self.connection.ask(request("POST", "/v1/claims", self.token))
            self.asked += 1
        assert status == 201, answer
        assignment = json.loads(answer)
        self._hold = f"?rank=0&fencing={assignment['hold']['fencing']}"
        self._attempt = f"/v1/attempts/{assignment['hold']['attempt']}"
        self.job: str = assignment["job"]
        return self.job

    async def beat(self) -> None:
        self.step += 1
        beat = Beat(phase="training", step=self.step, training_s=float(self.step), loss=0.1, seconds_per_step=1.0)
        path = f"{self._attempt}/heartbeats{self._hold}"
        status, answer = await self.connection.ask(request("POST", path, self.token, beat))
        assert status == 200, answer

    async def log(self) -> None:
        """On a connection of its own: the other is for heartbeats."""
        body = Log(first_byte=1000 * self.logged, text="x" * 999 + "\n")
        self.logged += 1
        path = f"{self._attempt}/logs{self._hold}"
        ((status, answer),) = await ask_all(self.url, [request("POST", path, self.token, body)], at_once=1)
        assert status == 200, answer


async def ask_all(url: str, requests: list[bytes], *, at_once: int) -> list[tuple[int, bytes]]:
    connections = [await Connection.open(url) for _ in range(at_once)]
    answers: list[tuple[int, bytes]] = []

    async def work(connection: Connection) -> None:
        while requests:
            answers.append(await connection.ask(requests.pop()))
        connection.close()

    await asyncio.gather(*map(work, connections))
    return answers


async def make_fleet(server: Server, nodes: int) -> list[Agent]:
    return [await Agent.joined(server, number) for number in range(nodes)]


@contextmanager
def running(database: Postgres | None, *, within: Path | None = None, settings: str = "") -> Iterator[Server]:
    """`settings` is the text of its file of settings."""
    with tempfile.TemporaryDirectory(prefix="gangline-benchmark-", dir=within) as folder:
        (Path(folder) / SETTINGS_FILE).write_text(settings)
        server = Server(Path(folder), database.make_database() if database else "")
        try:
            yield server
        finally:
            server.stop()


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def show(what: str, values: list[float], unit: str, rest: str = "") -> None:
    print(f"{what:44} {median(values):9.4g} {min(values):9.4g} {max(values):9.4g}  {unit:8} {rest}", flush=True)


def head(part: str) -> None:
    print(f"\n{part:44} {'median':>9} {'lowest':>9} {'highest':>9}")


def beats(database: Postgres | None) -> None:
    head("beats")

    async def measure(server: Server) -> None:
        agents = await make_fleet(server, AT_ONCE)
        for agent in agents:
            await agent.claim()
        await as_fast_as_possible("heartbeats", [agent.beat for agent in agents], server.cpu_s)

    with running(database) as server:
        server.submit(AT_ONCE)
        asyncio.run(measure(server))
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bare = multiprocessing.get_context("spawn").Process(target=serve_bare, args=(listening,), daemon=True)
    bare.start()

    async def measure_bare() -> None:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        body = request("POST", "/attempts/x/heartbeats?rank=0&fencing=1", "x", Beat(phase="training", step=1))
        connections = [await Connection.open(url) for _ in range(AT_ONCE)]

        def asking(connection: Connection) -> Callable[[], Coroutine[Any, Any, None]]:
            async def ask() -> None:
                await connection.ask(body)

            return ask

        await as_fast_as_possible("a bare route, as the bound", [asking(connection) for connection in connections])

    asyncio.run(measure_bare())
    bare.terminate()


async def as_fast_as_possible(
    what: str, acts: list[Callable[[], Coroutine[Any, Any, None]]], cpu_s: Callable[[], float] = lambda: 0.0
) -> None:
    async def again_and_again(act: Callable[[], Coroutine[Any, Any, None]], until_s: float) -> int:
        count = 0
        while time.perf_counter() < until_s:
            await act()
            count += 1
        return count

    rates, costs, own = list[float](), list[float](), list[float]()
    await asyncio.gather(*(again_and_again(act, time.perf_counter() + 1) for act in acts))
    for _ in range(ROUNDS):
        before_s, mine_s, began_s = cpu_s(), time.process_time(), time.perf_counter()
        count = sum(await asyncio.gather(*(again_and_again(act, began_s + ROUND_S / 2) for act in acts)))
        rates.append(count / (time.perf_counter() - began_s))
        costs.append((cpu_s() - before_s) / count * 1e6)
        own.append((time.process_time() - mine_s) / count * 1e6)
    show(
        what, rates, "/s", f"{AT_ONCE} connections; us of CPU each: server {median(costs):.0f}, load {median(own):.0f}"
    )


def serve_bare(listening: socket.socket) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def echo(asked: Request) -> Response:
        await asked.json()
        return JSONResponse({"stop": ""})

    app = Starlette(routes=[Route("/attempts/{attempt}/heartbeats", echo, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


def fleet(database: Postgres | None) -> None:
    head("fleet")
    with running(database) as server:
        server.submit(AGENTS)
        asyncio.run(measure_fleet(server))


async def measure_fleet(server: Server) -> None:
    agents = await make_fleet(server, AGENTS)
    jobs = [await agent.claim() for agent in agents]
    logged, steered = agents[: FOLLOWERS // 2], await asyncio.to_thread(server.submit, FOLLOWERS // 2)
    paths = [f"/v1/jobs/{agent.job}/logs/stream" for agent in logged] + [
        f"/v1/jobs/{job}/events/stream" for job in steered
    ]
    assert len(set(jobs)) == AGENTS, "everybody has a job of its own"
    for name, followed in (("alone", []), (f"beside {FOLLOWERS} followers", paths)):
        told = multiprocessing.Value("q", 0)
        following = multiprocessing.get_context("fork").Process(
            target=follow, args=(server.url, server.user, followed, told)
        )
        following.start()
        await asyncio.sleep(5)
        typical, late, costs, messages = list[float](), list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            before, cpu_s, began_s = told.value, server.cpu_s(), time.perf_counter()
            taken = await beat_for_a_round(server, agents, logged, steered)
            costs.append((server.cpu_s() - cpu_s) / (time.perf_counter() - began_s) * 100)
            messages.append((told.value - before) / (time.perf_counter() - began_s))
            typical.append(median(taken) * 1000)
            late.append(quantiles(taken, n=100)[98] * 1000)
        following.terminate()
        show(f"a heartbeat of {AGENTS} agents, {name}: median", typical, "ms")
        show(
            f"{'p99':>44}",
            late,
            "ms",
            f"the server uses {median(costs):.0f} % of a core; {median(messages):.0f} messages/s",
        )


async def beat_for_a_round(server: Server, agents: list[Agent], logged: list[Agent], steered: list[str]) -> list[float]:
    """Each agent once a second, from its own moment on. How late the answer was after the moment when it was to be asked."""
    taken: list[float] = []
    began_s = time.perf_counter() + 1  # when all of them are ready

    async def keep_beating(agent: Agent, first_s: float) -> None:
        for beat in range(int(ROUND_S)):
            due_s = began_s + first_s + beat
            await asyncio.sleep(due_s - time.perf_counter())
            await agent.beat()
            taken.append(time.perf_counter() - due_s)

    async def keep_happening() -> None:
        """An event, `EVENTS_PER_S` times a second."""
        connection = await Connection.open(server.url)
        for count in range(int(ROUND_S * EVENTS_PER_S)):
            await asyncio.sleep(began_s + count / EVENTS_PER_S - time.perf_counter())
            job, verb = steered[count // 2 % len(steered)], "resume" if count % 2 else "pause"
            await connection.ask(request("POST", f"/v1/jobs/{job}/{verb}", server.user))
        connection.close()

    async def log_once(agent: Agent, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await agent.log()

    moments = random.Random(0)
    await asyncio.gather(
        keep_happening(),
        *(keep_beating(agent, moments.random()) for agent in agents),
        *(log_once(agent, moments.random() * ROUND_S) for agent in logged),
    )
    return taken


def follow(url: str, token: str, paths: list[str], told: Any) -> None:
    """All of `paths` until this process is ended; `told` counts the messages."""

    async def one(path: str) -> None:
        at = urlsplit(url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(request("GET", path, token))
        while line := await reader.readline():
            told.value += line.startswith(b"data:")

    async def everyone() -> None:
        await asyncio.gather(*map(one, paths))

    asyncio.run(everyone())


def claims(database: Postgres | None) -> None:
    head("claims")

    async def measure(server: Server, nodes: int) -> tuple[float, int]:
        agents = await make_fleet(server, nodes)
        began_s = time.perf_counter()
        jobs = await asyncio.gather(*(agent.claim() for agent in agents))
        taken_s = time.perf_counter() - began_s
        assert len(set(jobs)) == nodes, "everybody gets another job"
        for agent in agents:
            agent.connection.close()
        return taken_s, sum(agent.asked for agent in agents) - nodes

    for nodes in (16, 64, 256, 1000):
        with running(database) as server:
            server.submit(3 * nodes)
            found = [asyncio.run(measure(server, nodes)) for _ in range(3)]
        again = sum(again for _, again in found)
        what = f"{nodes} nodes ask at one moment: the last answer"
        show(what, [taken_s for taken_s, _ in found], "s", f"{again} of {3 * nodes} had to ask again")


def rest(database: Postgres | None) -> None:
    head("rest")
    with running(database) as server:
        Client(server.url, server.user).projects.current()
        wait(5)
        loads, before_s = list[float](), server.cpu_s()
        for _ in range(ROUNDS):
            wait(REST_S / ROUNDS)
            loads.append((server.cpu_s() - before_s) / (REST_S / ROUNDS) * 100)
            before_s = server.cpu_s()
        show("CPU of a server at rest", loads, "% of a core")
        show("memory", [server.memory_mb()], "MB")


HALF_OPEN, LARGE, AT_LIMIT, MALICIOUS, UNKNOWN_FIELDS = 200, 20, 20, 5, 100_000
LARGE_BYTES, PIECE_BYTES = 100_000_000, 1 << 20
BEAT_MS_MAX, GROWTH_MB_MAX = 500, 100


def hostile(database: Postgres | None) -> None:
    """All at once, again and again for a round; the limits are the defaults of `core/server/limits.py`."""
    head("hostile")
    limits = Limits()
    print(
        f"limits: JSON {limits.json_bytes_max:,} bytes, headers {limits.headers_s:g} s, body {limits.body_s:g} s, "
        f"{limits.key_rate_per_s:g}/s a key, {limits.address_rate_per_s:g}/s an address"
    )
    worst, typical, growths, answered = list[float](), list[float](), list[float](), Counter[str]()
    for _ in range(ROUNDS):
        with running(database) as server:
            server.submit(1)
            taken, growth, told = asyncio.run(beat_beside_attackers(server))
        worst.append(max(taken) * 1000)
        typical.append(median(taken) * 1000)
        growths.append(growth)
        answered += told
    show("a heartbeat beside attackers: median", typical, "ms")
    show(f"{'worst':>44}", worst, "ms", f"at most {BEAT_MS_MAX}")
    show("memory that the server takes beside that", growths, "MB", f"at most {GROWTH_MB_MAX}")
    print("answers: " + ", ".join(f"{what} {count}" for what, count in sorted(answered.items())))


async def beat_beside_attackers(server: Server) -> tuple[list[float], float, Counter[str]]:
    (agent,) = await make_fleet(server, 1)
    await agent.claim()
    members = [Client(server.url, server.user).keys.add(f"m{number}", "member").secret for number in range(AT_LIMIT)]
    for _ in range(50):
        await agent.beat()
    before_mb, peak_mb, taken = server.memory_mb(), 0.0, list[float]()
    spawning = multiprocessing.get_context("spawn")
    results: Any = spawning.Queue()
    attackers = spawning.Process(target=attack, args=(server.url, members, results), daemon=True)
    attackers.start()
    assert results.get() == "begun", "the attackers are ready"
    until_s = time.perf_counter() + ROUND_S
    while (began_s := time.perf_counter()) < until_s:
        await agent.beat()
        taken.append(time.perf_counter() - began_s)
        peak_mb = max(peak_mb, server.memory_mb())
        await asyncio.sleep(0.02)
    told = await asyncio.to_thread(results.get)
    attackers.join()
    return taken, peak_mb - before_mb, told


def attack(url: str, members: list[str], results: Any) -> None:
    """Send what a server must refuse for `ROUND_S` seconds; `results` gets "begun", and then how often there was which answer."""
    limit = Limits().json_bytes_max
    filler = b'{"spec":{"a":[' + b"[]," * ((limit - 30) // 3) + b"[]]}}"
    fields = ",".join(f'"f{number}":1' for number in range(UNKNOWN_FIELDS))
    malicious = f'{{"spec":{{{fields}}}}}'.encode()[: 2 * limit]
    fitting = ",".join(f'"f{number}":1' for number in range(limit // 11))
    malicious_at_limit = f'{{"spec":{{{fitting}}}}}'.encode()
    told: Counter[str] = Counter()

    async def send(what: str, token: str, body: bytes, announced: int) -> None:
        at = urlsplit(url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        key = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n{key}Content-Type: application/json\r\nContent-Length: {announced}\r\n\r\n"
        with suppress(ConnectionError):
            writer.write(head.encode())
            for start in range(0, announced, PIECE_BYTES):
                writer.write(body[start : start + PIECE_BYTES] or bytes(PIECE_BYTES))
                await writer.drain()
        status = b""
        with suppress(ConnectionError):
            status = (await reader.readline())[9:12]
        told[f"{what}: {status.decode() or 'cut off'}"] += 1
        writer.close()

    async def again_and_again(until_s: float, *sending: Any) -> None:
        while time.perf_counter() < until_s:
            await send(*sending)
            await asyncio.sleep(0.1)

    async def half_open(until_s: float) -> None:
        at = urlsplit(url)
        while time.perf_counter() < until_s:
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n")
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(max(0, until_s - time.perf_counter())):
                    told[f"half open: {(await reader.readline())[9:12].decode() or 'cut off'}"] += 1
            writer.close()

    async def everything() -> None:
        results.put("begun")
        until_s = time.perf_counter() + ROUND_S
        await asyncio.gather(
            *(half_open(until_s) for _ in range(HALF_OPEN)),
            *(again_and_again(until_s, "100 MB, no key", "", b"", LARGE_BYTES) for _ in range(LARGE)),
            *(again_and_again(until_s, "at the limit", key, filler, len(filler)) for key in members),
            *(
                again_and_again(until_s, "100,000 fields", members[0], malicious, len(malicious))
                for _ in range(MALICIOUS)
            ),
            *(
                again_and_again(until_s, "fields at the limit", members[1], malicious_at_limit, len(malicious_at_limit))
                for _ in range(MALICIOUS)
            ),
        )

    asyncio.run(everything())
    results.put(told)


PARTS = {"beats": beats, "fleet": fleet, "claims": claims, "rest": rest, "hostile": hostile}

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    arguments.add_argument("--sqlite", action="store_true", help="the store in a file, instead of PostgreSQL")
    given = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    gc.freeze()
    with nullcontext() if given.sqlite else postgres() as database:
        for part in given.parts:
            PARTS[part](database)
