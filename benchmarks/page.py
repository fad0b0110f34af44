"""The page, beside its limits: `python benchmarks/page.py [first] [streams] [scripts] [--seconds S] [--sqlite | --postgres]`, all parts on
both engines without an argument.

first     the first view of the list of `JOBS` jobs: the server's time, with that of the test's client in it, and its bytes as they are sent
streams   `PAGES` open pages that follow a list: `AGENTS` of its jobs run, on agents that beat every `BEAT_S` seconds, and others are paused
          and resumed, 20 times a second. What the pages take of a core, as the difference to the same without them, and how long a
          heartbeat takes, with and without. Beside each stands how long a bare write to the disk takes meanwhile, of a process of its own:
          on a busy machine, a heartbeat waits as long for the disk and for a core
scripts   all scripts of the page together, as this server sends them to browsers (with gzip); beside it, uncompressed, and what
          TensorBoard's page loads at once

The server is `gangline server` with its store in a file, or over a PostgreSQL with fsync. Server, database, pages and agents are processes
of their own; they share this machine's cores. The exit status is 1 if a limit does not hold.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `http` is a module of Python's too
# isort: split

import argparse
import asyncio
import gzip
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from importlib.resources import files
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import httpx
from benchmarks.engines import services
from benchmarks.http import Agent, Server, make_fleet, running
from benchmarks.people import keep_happening
from tests.postgres import postgres
from tests.service.conftest import OPERATOR, Service
from tests.service.lists.many import write_many
from tests.service.lists.worked import work_on_all, write_nodes

from gangline.core.server.limits import Limits
from gangline.web.frame.assets import assets
from gangline.web.page import add_page

JOBS, NODES, ROUNDS = 10_000, 500, 40
AGENTS, OTHERS, PAGES, BEAT_S, BARE_PER_S = 1_000, 200, 500, 10.0, 20
VIEW_MS_MAX, VIEW_BYTES_MAX, CORE_MAX, BEAT_MS_MAX, SCRIPT_BYTES_MAX = 150.0, 100_000, 0.5, 100.0, 150_000
HTML = {"Accept": "text/html"}


def line(what: str, value: float, limit: float, unit: str, rest: str = "") -> bool:
    """Print a figure beside its limit. Return whether it holds."""
    print(
        f"{what:46} {value:10,.1f} {unit:9} limit {limit:10,.1f}  {'' if value < limit else 'TOO MUCH '}{rest}",
        flush=True,
    )
    return value < limit


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


# The first view


def first(engine: str, _: float) -> bool:
    with services() as found:
        return view({"sqlite": "SQLite", "postgres": "PostgreSQL"}[engine], found)


def view(engine: str, found: dict[str, Service]) -> bool:
    service = found[engine]
    owners = tuple(service.make_key("member", name=name)["key"]["id"] for name in ("ada", "grace"))
    write_many(service, JOBS, owners)
    work_on_all(service)
    write_nodes(service, NODES)
    add_page(service.app, service.deployment, Limits(), over_http=True)
    service.http.post("/sign-in", data={"key": OPERATOR}, headers={"HX-Request": "true"})
    taken_ms, answer = list[float](), service.http.get("/", headers=HTML)
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        answer = service.http.get("/", headers=HTML)
        taken_ms.append((time.perf_counter() - began_s) * 1000)
    assert answer.status_code == 200 and answer.text.count('class="job"') > 40, answer.status_code
    compressed = len(gzip.compress(answer.content))
    fast = line(
        f"first view of {JOBS:,} jobs, {engine}", median(taken_ms), VIEW_MS_MAX, "ms", f"p99 {p99(taken_ms):.0f} ms"
    )
    return line("  its bytes", len(answer.content), VIEW_BYTES_MAX, "bytes", f"{compressed:,} with gzip") and fast


# Streams


def streams(engine: str, seconds: float) -> bool:
    with postgres() if engine == "postgres" else nullcontext() as database, running(database) as server:
        server.submit(AGENTS)
        return asyncio.run(beat_beside_pages(server, engine, seconds))


async def beat_beside_pages(server: Server, engine: str, seconds: float) -> bool:
    agents = await make_fleet(server, AGENTS)
    for agent in agents:
        await agent.claim()
    others = await asyncio.to_thread(server.submit, OTHERS)
    shares, beats = list[float](), list[float]()
    for count in (0, PAGES):
        for begin in range(0, AGENTS, 50):  # leases may be old by now
            await asyncio.gather(*(agent.beat() for agent in agents[begin : begin + 50]))
        results: Any = multiprocessing.get_context("spawn").Queue()
        looking = multiprocessing.get_context("spawn").Process(
            target=look, args=(server.url, server.user, count, seconds + 3, results), daemon=True
        )
        looking.start()
        assert await asyncio.to_thread(results.get) == "all pages are open"
        cpu_s = server.cpu_s()
        writing = multiprocessing.get_context("spawn").Process(target=write_bare, args=(seconds, results), daemon=True)
        writing.start()
        taken_ms, _ = await asyncio.gather(keep_beating(agents, seconds), keep_happening(server, others, seconds))
        shares.append((server.cpu_s() - cpu_s) / seconds)
        beats.append(p99(taken_ms))
        ended = dict([await asyncio.to_thread(results.get), await asyncio.to_thread(results.get)])
        looking.join()
        bare_ms, each_kb = ended["bare"], ended["read"] / max(count, 1) / seconds / 1000
        print(
            f"  {count:4} pages, {engine}: the server takes {shares[-1]:.2f} of a core; {each_kb:.1f} kB/s each; heartbeat and bare write: "
            f"p50 {median(taken_ms):.1f} and {median(bare_ms):.1f} ms, p99 {beats[-1]:.1f} and {p99(bare_ms):.1f} ms",
            flush=True,
        )
    light = line(f"{PAGES} pages beside {AGENTS:,} agents, {engine}", shares[1] - shares[0], CORE_MAX, "cores")
    return line("  p99 of a heartbeat beside them", beats[1], BEAT_MS_MAX, "ms", f"{beats[0]:.1f} ms without") and light


async def keep_beating(agents: list[Agent], seconds: float) -> list[float]:
    """Return how late each answer was after the moment when it was to be asked, in milliseconds."""
    began_s, taken, moments = time.perf_counter() + 1, list[float](), random.Random(0)

    async def beat(agent: Agent, due_s: float) -> None:
        while due_s < began_s + seconds:
            await asyncio.sleep(due_s - time.perf_counter())
            await agent.beat()
            taken.append((time.perf_counter() - due_s) * 1000)
            due_s += BEAT_S

    await asyncio.gather(*(beat(agent, began_s + moments.random() * BEAT_S) for agent in agents))
    return taken


def look(url: str, key: str, count: int, seconds: float, results: Any) -> None:
    """Open pages and follow them. Put a word when all are open, and at the end how many bytes came after that."""
    read = 0
    cookie = httpx.post(f"{url}/sign-in", data={"key": key, "stay": "1"}).headers["set-cookie"].partition(";")[0]
    at = urlsplit(url)
    asked = f"GET /live/jobs HTTP/1.1\r\nHost: {at.netloc}\r\nCookie: {cookie}\r\nAccept: text/event-stream\r\n\r\n".encode()

    async def one(opened: asyncio.Event) -> None:
        nonlocal read
        reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=1 << 20)
        writer.write(asked)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readuntil(b"\n\n")
        opened.set()
        while piece := await reader.read(1 << 16):
            read += len(piece)

    async def everybody() -> int:
        opened = [asyncio.Event() for _ in range(count)]
        tasks = [asyncio.create_task(one(each)) for each in opened]
        for each in opened:
            await each.wait()
        await asyncio.sleep(2)  # the first round reads each screen once more
        before = read
        results.put("all pages are open")
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        return read - before

    results.put(("read", asyncio.run(everybody())))


def write_bare(seconds: float, results: Any) -> None:
    """Write 4 KB to the disk, `BARE_PER_S` times a second. Put how late each was after the moment when it was to begin, in milliseconds."""
    taken, began_s, pause = list[float](), time.perf_counter(), threading.Event()
    with tempfile.TemporaryFile(prefix="gangline-benchmark-", buffering=0) as file:
        for number in range(int(seconds * BARE_PER_S)):
            due_s = began_s + number / BARE_PER_S
            pause.wait(max(due_s - time.perf_counter(), 0))
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - due_s) * 1000)
    results.put(("bare", taken))


# Scripts


def scripts(_: str, __: float) -> bool:
    found = {path: each for path, each in assets().items() if path.endswith(".js")}
    own = sum(len(each.content) for path, each in found.items() if path != "htmx.js" and not path.startswith("vendor/"))
    whole = sum(len(each.content) for each in found.values())
    sent = sum(len(each.compressed) for each in found.values())
    held = line(
        "scripts of the page, as sent", sent, SCRIPT_BYTES_MAX, "bytes", f"{whole:,} uncompressed, {own:,} of them ours"
    )
    with ZipFile(Path(str(files("tensorboard") / "webfiles.zip"))) as archive:
        peer = [archive.read(name) for name in ("index.js", "chart_worker.js")]
    print(
        f"  of TensorBoard {version('tensorboard')}: {sum(map(len, peer)):,}; {sum(len(gzip.compress(each)) for each in peer):,} with gzip"
    )
    return held


PARTS: dict[str, Callable[[str, float], bool]] = {"first": first, "streams": streams, "scripts": scripts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long pages are open")
    parser.add_argument("--sqlite", action="store_true", help="only with the store in a file")
    parser.add_argument("--postgres", action="store_true", help="only over PostgreSQL")
    wish = parser.parse_args()
    engines = [
        each for each in ("sqlite", "postgres") if not getattr(wish, "postgres" if each == "sqlite" else "sqlite")
    ]
    held = [
        part(engine, wish.seconds)
        for name, part in PARTS.items()
        if not wish.parts or name in wish.parts
        for engine in (engines if part is not scripts else engines[:1])
    ]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
