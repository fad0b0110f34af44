"""A server is killed again and again: whoever follows the facts, or is notified of them, has each, and none is invented."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box, quick_settings
from gangline.compose.client import Client
from gangline.core.errors import Unreachable
from gangline.core.files import File
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from tests.service.notices.receivers import Site, receiving

IN_TIME_S = 90.0
KINDS = ("submitted", "paused", "resumed", "canceled")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    made = Box(tmp_path / "box", lease_s=5, heartbeat_interval_s=1)
    made._settings = quick_settings(5, 1) + '[notices]\nnetworks = ["127.0.0.0/8"]\n'
    with made:
        yield made


class Owner:
    """Pauses and resumes jobs without a break, and repeats what a dead server did not answer."""

    def __init__(self, box: Box, jobs: list[str]) -> None:
        self._client = Client(box.url, box.client._http.token)
        self._jobs = jobs
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._act)

    def __enter__(self) -> "Owner":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._client.close()

    def _act(self) -> None:
        number = 0
        while not self._ends.wait(0.01):
            act = self._client.jobs.resume if number // len(self._jobs) % 2 else self._client.jobs.pause
            try:
                act(self._jobs[number % len(self._jobs)])
                number += 1
            except Unreachable:
                self._ends.wait(0.1)


class Follower:
    """Follows the stream, across every death of the server."""

    def __init__(self, box: Box) -> None:
        self._client = Client(box.url, box.client._http.token)
        self.numbers: list[int] = []
        self.seen = threading.Condition()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for fact in self._client.facts.follow():
            with self.seen:
                self.numbers.append(fact.number)
                self.seen.notify_all()

    def has(self, number: int) -> bool:
        with self.seen:
            return self.seen.wait_for(lambda: number in self.numbers, IN_TIME_S)


def facts_of(box: Box) -> dict[int, tuple[str, str, str]]:
    """Every event of the database, by the number of its fact."""
    with closing(sqlite3.connect(f"file:{box.home / 'server' / 'gangline.sqlite'}?mode=ro", uri=True)) as rows:
        return {
            number: (job, kind, state)
            for number, job, kind, state in rows.execute("SELECT fact, job, kind, state FROM event")
        }


def told(site: Site, path: str) -> dict[int, tuple[str, str, str]]:
    found = [each.json["data"] for each in site.at(path)]
    return {data["fact"]: (data["job"], data["event"], data["state"]) for data in found}


def killed_again_and_again(box: Box, tmp_path: Path, times: int) -> None:
    rng = random.Random(times)
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"a photo")
    with receiving() as site:
        secret = box.client.endpoints.add(f"{site.url}/all", name="all of it", kinds=KINDS).secret
        box.client.endpoints.add(f"{site.url}/pauses", name="pauses", kinds=("paused",))
        box.client.endpoints.add(f"{site.url}/late", name="fails at first", kinds=("canceled",))
        site.answers["/late"] = lambda: 204 if len(site.at("/late")) > 1 else 500
        files: tuple[File, ...] = box.client.files.upload([photo], tmp_path)
        spec = LoraSpec(base=FilesBase(files=files), photos=files, prompt="sks dog", steps=10)
        jobs = [box.client.jobs.submit(spec).summary.id for _ in range(5)]
        follower = Follower(box)
        with Owner(box, jobs):
            for _ in range(times):
                threading.Event().wait(rng.uniform(0, 0.7))
                box.kill_server()
                box.start_server()
        box.client.jobs.cancel(jobs[0])
        last = max(number for number in wait_until_numbered(box))
        assert follower.has(last)
        assert follower.numbers == list(range(1, last + 1)), "each once, in their order"
        facts = facts_of(box)
        assert sorted(facts) == list(range(1, last + 1)), "no event is without a number, and none has two"
        wait_until(lambda: told(site, "/all").keys() == facts.keys())
        assert told(site, "/all") == facts
        pauses = {number: fact for number, fact in facts.items() if fact[1] == "paused"}
        wait_until(lambda: told(site, "/pauses").keys() == pauses.keys())
        assert told(site, "/pauses") == pauses
        canceled = {number: fact for number, fact in facts.items() if fact[1] == "canceled"}
        wait_until(lambda: len(site.at("/late")) > 1)
        assert told(site, "/late") == canceled
        for each in site.at("/all"):
            each.verify(secret)
        ids = {(each.path, each.id): each.json["data"]["fact"] for each in site.heard}
        assert len(ids) == len({(path, fact) for (path, _), fact in ids.items()}), "a message has one id at every try"


def wait_until_numbered(box: Box) -> dict[int, tuple[str, str, str]]:
    wait_until(lambda: None not in facts_of(box))
    return facts_of(box)


def wait_until(holds) -> None:
    for _ in range(int(IN_TIME_S / 0.05)):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("in vain")


def test_what_happens_is_told_whenever_the_server_dies(box: Box, tmp_path: Path) -> None:
    killed_again_and_again(box, tmp_path, 5)


@pytest.mark.nightly
def test_what_happens_is_told_though_the_server_dies_fifty_times(box: Box, tmp_path: Path) -> None:
    killed_again_and_again(box, tmp_path, 50)
