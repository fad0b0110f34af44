"""What people and their programs read: `python benchmarks/people.py [notices] [followers] [--minutes M] [--sqlite | --postgres]`, both
parts on both engines without an argument.

notices    `FACTS_PER_S` facts a second to ten good, ten slow, five failing and five dead endpoints: how long after a fact the good ones
           have its notice, whether each has each at least once, and whether an endpoint of another project has any of them; its peer is
           the same without the slow, failing and dead ones, for a fifth of the time
followers  a heartbeat of `AGENTS` agents beside 500 followers of the one stream of facts, and beside none; and how late a fact is with
           a follower

The server is `gangline server` with its store in a file, or over a PostgreSQL with fsync. Server, database, receivers, followers and
agents are processes of their own; they share this machine's cores. `benchmarks/lists.py` measures pages of jobs.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `http` is a module of Python's too
# isort: split

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections import defaultdict
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from benchmarks.http import Agent, Connection, Server, make_fleet, request, running, wait
from tests.postgres import Postgres, postgres

from gangline.compose.client import Client

FACTS_PER_S = 20
JOBS = 200
"""The queued jobs that are paused and resumed in turn: each time is a fact."""
AGENTS, FOLLOWERS, TIMED = 100, 500, 5
"""`TIMED` of the followers read each message; the others count bytes, as this machine's cores are few."""
FOLLOW_S = 60.0
BEAT_MS_MAX, NOTICE_S_MAX = 100.0, 2.0
SLOW_S = 3.0
"""How long a slow endpoint takes to answer; a failing one answers 500 at once, and a dead one takes the connection and says nothing."""


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


async def keep_happening(server: Server, jobs: list[str], seconds: float) -> int:
    """Pause and resume jobs, `FACTS_PER_S` times a second; return how many facts that made."""
    connection, began_s, count = await Connection.open(server.url), time.perf_counter(), int(seconds * FACTS_PER_S)
    for number in range(count):
        await asyncio.sleep(began_s + number / FACTS_PER_S - time.perf_counter())
        verb = "resume" if number // len(jobs) % 2 else "pause"
        status, answer = await connection.ask(
            request("POST", f"/v1/jobs/{jobs[number % len(jobs)]}/{verb}", server.user)
        )
        assert status == 200, answer
    connection.close()
    return count


# Followers


def followers(database: Postgres | None, _: float) -> None:
    with running(database) as server:
        server.submit(AGENTS)
        asyncio.run(_beat_beside_followers(server))


async def _beat_beside_followers(server: Server) -> None:
    agents = await make_fleet(server, AGENTS)
    for agent in agents:
        await agent.claim()
    jobs = await asyncio.to_thread(server.submit, JOBS)
    client = Client(server.url, server.user)
    for count in (0, FOLLOWERS):
        await asyncio.sleep(2)  # all that has happened has its number
        newest = next(iter(client.facts.list(last=1))).number
        results: Any = multiprocessing.get_context("spawn").Queue()
        following = multiprocessing.get_context("spawn").Process(
            target=follow, args=(server.url, server.user, newest, count, FOLLOW_S + 3, results), daemon=True
        )
        following.start()
        assert await asyncio.to_thread(results.get) == "all of them follow"
        cpu_s = server.cpu_s()
        taken, made = await asyncio.gather(_keep_beating(agents), keep_happening(server, jobs, FOLLOW_S))
        load = (server.cpu_s() - cpu_s) / FOLLOW_S * 100
        late_s, messages = await asyncio.to_thread(results.get)
        following.join()
        beats = [each * 1000 for each in taken]
        print(
            f"{count:4} followers  heartbeat p50 {median(beats):6.1f} ms  p99 {p99(beats):6.1f} ms  worst {max(beats):6.1f} ms"
            f"  (p99 at most {BEAT_MS_MAX:g})  {made} facts, the server uses {load:.0f} % of a core",
            flush=True,
        )
        if count:
            print(
                f"{'':15} a fact is with a follower after p50 {median(late_s):.2f} s, p99 {p99(late_s):.2f} s; "
                f"{messages} messages to the others, {messages / (count - TIMED) / made:.3f} of the facts each"
            )


async def _keep_beating(agents: list[Agent]) -> list[float]:
    """Beat once a second each, from its own moment on. Return how late each answer was after the moment when it was to be asked."""
    began_s, taken, moments = time.perf_counter() + 1, list[float](), random.Random(0)

    async def beat(agent: Agent, first_s: float) -> None:
        for number in range(int(FOLLOW_S)):
            due_s = began_s + first_s + number
            await asyncio.sleep(due_s - time.perf_counter())
            await agent.beat()
            taken.append(time.perf_counter() - due_s)

    await asyncio.gather(*(beat(agent, moments.random()) for agent in agents))
    return taken


def follow(url: str, token: str, newest: int, count: int, seconds: float, results: Any) -> None:
    """Follow what comes after the fact `newest` with `count` connections. Put a word when all have begun, and at the end how late messages
    were, and their number."""
    late_s, messages = list[float](), 0

    async def one(timed: bool, begun: asyncio.Event) -> None:
        nonlocal messages
        at = urlsplit(url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(request("GET", f"/v1/facts/stream?after={newest}", token))
        await reader.readuntil(b"retry: 1000\n\n")
        begun.set()
        while True:
            if not timed:
                piece = await reader.read(1 << 16)
                messages += piece.count(b"\nid: ")
                continue
            line = await reader.readline()
            if line.startswith(b"data:"):
                late_s.append(time.time() - json.loads(line[5:])["at_ms"] / 1000)

    async def everybody() -> None:
        begun = [asyncio.Event() for _ in range(count)]
        tasks = [asyncio.create_task(one(number < TIMED, begun[number])) for number in range(count)]
        for each in begun:
            await each.wait()
        results.put("all of them follow")
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()

    asyncio.run(everybody())
    results.put((late_s, messages))


# Notices


@dataclass
class Arrived:
    """What came to one endpoint: how long after its fact each message came first, and how often anything came."""

    late_s: dict[int, float] = field(default_factory=dict)
    count: int = 0


def notices(database: Postgres | None, minutes: float) -> None:
    for crowd, part in (({"good": 10}, 0.2), ({"good": 10, "slow": 10, "failing": 5, "dead": 5}, 1.0)):
        with running(database, settings='[notices]\nnetworks = ["127.0.0.0/8"]\n') as server:
            _tell(server, crowd, minutes * part)


def _tell(server: Server, crowd: dict[str, int], minutes: float) -> None:
    client = Client(server.url, server.user)
    client.projects.add("other")
    jobs = server.submit(JOBS)
    results: Any = multiprocessing.get_context("spawn").Queue()
    ends = multiprocessing.get_context("spawn").Event()
    receiving = multiprocessing.get_context("spawn").Process(target=receive, args=(ends, results), daemon=True)
    receiving.start()
    url, endpoints = results.get(), [f"{kind}/{number}" for kind, count in crowd.items() for number in range(count)]
    for each in endpoints:
        client.endpoints.add(f"{url}/{each}", name=each.replace("/", "-"), kinds=("paused", "resumed"))
    Client(server.url, server.user, "other").endpoints.add(f"{url}/other/0", kinds=("paused", "resumed"))
    cpu_s, began_s = server.cpu_s(), time.perf_counter()
    made = asyncio.run(keep_happening(server, jobs, minutes * 60))
    load = (server.cpu_s() - cpu_s) / (time.perf_counter() - began_s) * 100
    wait(10)
    newest = next(iter(client.facts.list(last=1))).number
    ends.set()
    arrived: dict[str, Arrived] = results.get()
    receiving.join()
    wanted = set(range(newest - made + 1, newest + 1))
    good = [arrived[each] for each in endpoints if each.startswith("good/")]
    late_s = [each for one in good for each in one.late_s.values()]
    lacking = sum(len(wanted - one.late_s.keys()) for one in good)
    invented = (
        sum(len(one.late_s.keys() - wanted) for one in arrived.values()) + arrived.get("other/0", Arrived()).count
    )
    who, twice = (
        " + ".join(f"{count} {kind}" for kind, count in crowd.items()),
        sum(one.count for one in good) - len(late_s),
    )
    print(f"{who}: {made} facts in {minutes:g} min, the server uses {load:.0f} % of a core")
    print(
        f"  good: p50 {median(late_s):.2f} s  p99 {p99(late_s):.2f} s  worst {max(late_s):.2f} s  (p99 at most {NOTICE_S_MAX:g} s)"
    )
    print(
        f"  {lacking} of {len(good) * made} are missing, {twice} came twice, {invented} elsewhere or of nothing",
        flush=True,
    )
    for kind in crowd.keys() - {"good"}:
        tries = sum(one.count for each, one in arrived.items() if each.startswith(kind))
        print(f"  {kind}: {tries} tries", flush=True)


def receive(ends: Any, results: Any) -> None:
    """Receive webhooks until `ends` is set: put the address first, and then what arrived, by path."""
    arrived: defaultdict[str, Arrived] = defaultdict(Arrived)
    answering = set[Any]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())  # the loop itself holds tasks weakly
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                path = head.split(" ")[1].lstrip("/")
                body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
                told, kind = json.loads(body), path.partition("/")[0]
                at_s = datetime.fromisoformat(told["timestamp"]).timestamp()
                arrived[path].count += 1
                arrived[path].late_s.setdefault(told["data"]["fact"], time.time() - at_s)
                await asyncio.sleep({"slow": SLOW_S, "dead": 3600.0}.get(kind, 0.0))
                status = "500 Internal Server Error" if kind == "failing" else "204 No Content"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()
        answering.discard(asyncio.current_task())

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        results.put(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        while not ends.is_set():
            await asyncio.sleep(0.1)
        for task in [*answering]:
            task.cancel()

    asyncio.run(serve())
    results.put(dict(arrived))


PARTS = {"notices": notices, "followers": followers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long facts are made for notices")
    parser.add_argument("--sqlite", action="store_true", help="only with the store in a file")
    parser.add_argument("--postgres", action="store_true", help="only over PostgreSQL")
    wish = parser.parse_args()
    for engine in ("sqlite", "postgres"):
        if getattr(wish, "postgres" if engine == "sqlite" else "sqlite"):
            continue
        with postgres() if engine == "postgres" else nullcontext() as database:
            for part in wish.parts or PARTS:
                print(f"\n{part}, {engine}", flush=True)
                PARTS[part](database, wish.minutes)


if __name__ == "__main__":
    main()
