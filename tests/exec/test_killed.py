"""SIGKILL of the command, of `gangline exec`, of both, at a random moment; and a store that is away for ten minutes. Nightly."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from threading import Event

import pytest

from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.posix import descendants
from tests.exec.chain import state_after
from tests.exec.conftest import Line, Running
from tests.processes import words_of
from tests.proxy import Fault, Proxy

STEPS, EVERY = 120, 5
KILLS = 4


def programs_of(running: Running) -> list[int]:
    found = descendants(running.process.pid)
    return [pid for pid in found if "chain.py" in words_of(pid) and "keeper" not in words_of(pid)]


def kill(running: Running, whom: str) -> None:
    programs = programs_of(running)
    if whom in ("exec", "both"):
        running.signal(signal.SIGKILL)
    if whom in ("command", "both"):
        for pid in programs:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def steps_of(place: S3Objects) -> int:
    """That of the newest checkpoint that was committed."""
    keys = [
        key for key in place.list("runs") if "/checkpoints/" in key and key.endswith(".json") and key.count("/") == 3
    ]
    return json.loads(place.read(max(keys)))["manifest"]["step"] if keys else 0


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(13))
def test_however_it_is_killed_it_ends_as_if_nothing_had_been(line: Line, place: S3Objects, seed: int) -> None:
    """Thirteen runs with four kills each; by turns on the same node, with what the kill left there, and on a new one."""
    rng, node, safe = Random(seed), "node-0", 0
    chain = (STEPS, "--every", EVERY, "--step-s", 0.02, "--keep", rng.choice((0, 1, 2)))
    for number in range(KILLS):
        running = line.start(node, chain=chain)
        if number % 2 == 0:
            running.until("is safe", times=rng.randint(1, 2))
        else:
            running.until("gangline: run ")
        Event().wait(rng.uniform(0, 1.0))
        kill(running, rng.choice(("command", "exec", "both")))
        code, _ = running.end()
        assert code in (0, 137, -9)
        assert steps_of(place) >= safe
        safe = steps_of(place)
        if (
            code == 0
        ):  # on a slow machine it may have come to its end before it was killed: the same line has nothing to do then
            break
        node = rng.choice((node, f"node-{number + 1}"))
    last = line.start(node, chain=chain)
    code, told = last.end()
    assert code == 0, last.text
    if "already" not in told["because"]:
        assert line.result(node) == state_after(STEPS)
    output = next(key for key in sorted(place.list("runs"), reverse=True) if key.endswith("output/result.txt"))
    assert place.read(output).decode() == state_after(STEPS)
    assert not any("cannot resume" in running.text for running in line.started)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_store_that_is_away_for_ten_minutes_costs_nothing(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects
) -> None:
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        line = make_line(replace(bucket, endpoint=proxy.url, prefix=place._wire.bucket.prefix))
        running = line.start("a", chain=(660, "--every", 10, "--step-s", 1.0))
        running.until("is safe")
        proxy.faults.extend([Fault(kind="answer")] * 1_000_000)
        running.until("step 630")
        assert "the command continues, and its checkpoints are uploaded later" in running.text
        proxy.faults.clear()
        code, told = running.end()
    assert (code, told["step"], line.result("a")) == (0, 660, state_after(660))
    assert steps_of(place) == 660
