"""Streams of open screens: one reader for all, nothing missed and nothing twice, and an end for those who may not look any more."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import uvloop

from gangline.core.errors import NotFound, TooMany, Unreachable
from gangline.core.server.limits import Limits
from gangline.service.deployment import Deployment
from gangline.web.frame.rendering import digest_of_html
from gangline.web.live import hub as hub_module
from gangline.web.live import left as left_module
from gangline.web.live.feed import Changes
from gangline.web.live.hub import KEPT_BYTES, LiveHub
from tests.service.conftest import PROJECT, Service

NEVER_S = 10**6
"""These tests look for changes themselves."""


@dataclass
class Board:
    """A screen that shows what a test has written on it."""

    project: str | None = PROJECT
    written: str = "first"
    read: str = ""
    reads: int = 0
    wholes: int = 0
    fails: Exception | None = None

    def is_about(self, changes: Changes) -> bool:
        return changes.listed

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        self.reads += 1
        if self.fails is not None:
            raise self.fails
        changed, self.read = self.written != self.read, self.written
        return self.written if changed else ""

    def whole(self) -> str:
        self.wholes += 1
        return f"whole {self.read}"


@dataclass
class Reader:
    """A browser at the other end of a stream. It reads on while `reads` is set."""

    messages: list[dict[str, str]] = field(default_factory=list)
    ended: bool = False
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def follow(self, response: Any) -> None:
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, self._receive, self._send)
        async with self._news:
            self.ended = True
            self._news.notify_all()

    async def until(self, holds: Callable[[], object]) -> None:
        async with self._news:
            await self._news.wait_for(holds)

    async def has(self, *data: str) -> None:
        """Wait until these are the last messages."""
        await self.until(lambda: self.data[-len(data) :] == list(data))

    @property
    def data(self) -> list[str]:
        return [each["data"] for each in self.messages if "event" not in each]

    @property
    def events(self) -> list[str]:
        return [each["event"] for each in self.messages if each.get("event", "alive") != "alive"]

    @property
    def last_id(self) -> str:
        return next(each["id"] for each in reversed(self.messages) if "id" in each)

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> dict[str, str]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        async with self._news:
            for each in message.get("body", b"").decode().split("\n\n"):
                if each:
                    self.messages.append(dict(line.split(": ", 1) for line in each.split("\n")))
            self._news.notify_all()


@dataclass
class Place:
    """A hub, and those who follow its screens."""

    hub: LiveHub
    tasks: AsyncExitStack
    key: str

    async def open(
        self,
        board: Board,
        *,
        name: str = "board",
        key: str = "",
        owner: str = "somebody's key",
        last: str = "",
        shown: str = "",
    ) -> Reader:
        response = await self.hub.follow(name, lambda: board, key=key or self.key, owner=owner, last=last, shown=shown)
        reader = Reader()
        reader.reads.set()
        task = asyncio.create_task(reader.follow(response))
        self.tasks.push_async_callback(lambda: _ended(reader, task))
        await reader.until(lambda: reader.messages)
        return reader


async def _ended(reader: Reader, task: asyncio.Task[None]) -> None:
    reader.reads.set()
    reader.leave()
    await task


@asynccontextmanager
async def a_place(service: Service, **limits: int):
    async with AsyncExitStack() as tasks:
        hub = LiveHub(service.deployment, replace(Limits(), **limits), round_s=NEVER_S)
        yield Place(hub, tasks, service.make_key("viewer")["key"]["id"])
        hub.close()


Act = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, service: Service) -> Iterator[Callable[..., None]]:
    """Run a test's story in a hub's event loop."""

    def run(story: Act, **limits: int) -> None:
        async def whole() -> None:
            async with asyncio.timeout(10), a_place(service, **limits) as place:
                await story(place)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(whole())

    return run


@pytest.fixture
def database(tmp_path) -> str:
    """What the hub asks the store is the same on every engine."""
    return str(tmp_path / "db.sqlite")


def test_all_who_open_a_screen_at_once_have_it_read_and_made_once(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        readers = await asyncio.gather(*(place.open(board) for _ in range(30)))
        assert (board.reads, board.wholes) == (1, 1) and {each.data[0] for each in readers} == {"whole first"}
        board.written = "second"
        await place.hub.round()
        for each in readers:
            await each.has("whole first", "second")
        assert board.reads == 2 and len({each.last_id for each in readers}) == 1
        assert (await place.open(board)).data == (await place.open(board)).data == [
            "whole second"
        ] and board.wholes == 2

    play(story)


def test_a_page_is_not_sent_again_what_it_was_loaded_with(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        same, other = (
            await place.open(board, shown=digest_of_html("whole first")),
            await place.open(board, shown=digest_of_html("old")),
        )
        assert same.data == [] and other.data == ["whole first"]
        again = await place.open(board, last=same.last_id)
        board.written = "second"
        await place.hub.round()
        await same.has("second")
        await again.has("second")
        assert again.data == ["second"]

    play(story)


def test_what_changes_between_the_first_read_and_the_first_round_is_sent(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        reader = await place.open(board)
        board.written = "second"  # no fact says so, as the project is not watched yet
        await place.hub.round()
        await reader.has("second")
        reads = board.reads
        await place.hub.round()
        assert board.reads == reads  # from then on facts say what is read again

    play(story)


def test_a_screen_is_read_again_when_a_fact_concerns_it_and_after_a_while(
    play: Callable[..., None], service: Service
) -> None:
    async def story(place: Place) -> None:
        board = Board()
        reader = await place.open(board)
        await place.hub.round()
        board.written = "by a fact"
        service.submit()
        service.tick()
        await place.hub.round()
        await reader.has("by a fact")
        board.written = "by time alone"
        await place.hub.round()
        assert reader.data[-1] == "by a fact"
        service.wait(31)
        await place.hub.round()
        await reader.has("by time alone")

    play(story)


def test_who_comes_back_gets_what_was_missed_and_nothing_twice(play: Callable[..., None], service: Service) -> None:
    async def story(place: Place) -> None:
        board = Board(project=None)
        stays, leaves = await place.open(board), await place.open(board)
        await change(place, service, board, "second")
        await leaves.has("second")
        leaves.leave()
        await change(place, service, board, "third")
        await change(place, service, board, "fourth\r\nin two lines")
        back = await place.open(board, last=leaves.last_id)
        await back.until(lambda: len(back.messages) == 3)
        assert back.data == ["third", "in two lines"]  # the parser of this test keeps the last line alone
        again = await place.open(board, last=back.last_id)
        await change(place, service, board, "fifth")
        await again.has("fifth")
        assert again.data == ["fifth"] and stays.data[-1] == "fifth"

    play(story)


@pytest.mark.parametrize("last", ["of-another-server.7", "nonsense", "x." + "9" * 40, "."])
def test_who_knows_another_screen_or_server_loads_the_page_again(play: Callable[..., None], last: str) -> None:
    async def story(place: Place) -> None:
        reader = await place.open(Board(), last=last)
        assert reader.events == ["stale"]
        again = await place.open(Board(), last=reader.last_id)
        assert again.events == []

    play(story)


def test_a_slow_reader_holds_no_memory_and_no_others_up(play: Callable[..., None], service: Service) -> None:
    async def story(place: Place) -> None:
        board = Board(project=None)
        fast, slow = await place.open(board), await place.open(board)
        slow.reads.clear()
        for number in range(30):
            await change(place, service, board, f"{number:06d}" * 20_000)
            await fast.until(lambda number=number: fast.data[-1].startswith(f"{number:06d}"))
        (screen,) = place.hub._screens.values()
        assert screen._bytes <= KEPT_BYTES
        slow.reads.set()
        await slow.until(lambda: "stale" in slow.events)
        await change(place, service, board, "small again")
        await slow.has("small again")

    play(story)


def test_a_key_that_is_revoked_ends_its_streams_and_no_others(play: Callable[..., None], service: Service) -> None:
    mine, other = service.make_key("viewer")["key"]["id"], service.make_key("viewer")["key"]["id"]

    async def story(place: Place) -> None:
        board = Board()
        lost, stays = await place.open(board, key=mine), await place.open(board, key=other)
        await place.hub.round()
        assert service.ask("DELETE", f"/v1/keys/{mine}").is_success
        service.wait(16)
        await place.hub.round()
        await lost.until(lambda: lost.ended)
        assert lost.events == ["signed-out"] and not stays.ended and place.hub.followers == 1

    play(story)


def test_a_screen_that_is_deleted_says_so_and_ends(play: Callable[..., None], service: Service) -> None:
    async def story(place: Place) -> None:
        board = Board(project=None)
        reader = await place.open(board)
        board.fails = NotFound("there is no such job")
        service.wait(3)
        await place.hub.round()
        await reader.until(lambda: reader.ended)
        assert reader.events == ["gone"]
        with pytest.raises(NotFound):
            await place.open(board)

    play(story)


@pytest.mark.parametrize("error", [Unreachable("the database restarts"), ValueError("a mistake of ours")])
def test_a_screen_that_cannot_be_read_is_read_by_the_next_round_and_others_are_not_held_up(
    play: Callable[..., None], service: Service, error: Exception
) -> None:
    async def story(place: Place) -> None:
        broken, board = Board(project=None), Board(project=None)
        first, second = await place.open(broken, name="broken"), await place.open(board)
        broken.fails, broken.written, board.written = error, "mended", "as always"
        service.wait(3)
        await place.hub.round()
        await second.has("as always")
        broken.fails = None
        service.wait(3)
        await place.hub.round()
        await first.has("mended")

    play(story)


def test_a_server_that_stops_ends_all_streams_at_once_and_opens_none(
    play: Callable[..., None], service: Service
) -> None:
    async def story(place: Place) -> None:
        board = Board(project=None)
        readers = [await place.open(board) for _ in range(60)]
        board.written = "second"
        service.wait(3)
        reading = asyncio.create_task(place.hub.round())
        place.hub.close()
        for each in readers:
            await each.until(lambda each=each: each.ended)
        await reading
        with pytest.raises(Unreachable, match="stopping"):
            await place.open(board)

    play(story)


@pytest.mark.parametrize("limits", [{"followers_max": 5}, {"followers_per_project_max": 5}])
def test_no_more_follow_than_may_even_if_all_come_at_once(play: Callable[..., None], limits: dict[str, int]) -> None:
    async def story(place: Place) -> None:
        found = await asyncio.gather(*(place.open(Board()) for _ in range(9)), return_exceptions=True)
        assert sum(isinstance(each, TooMany) for each in found) == 4 and place.hub.followers == 5

    play(story, **limits)


def test_there_are_not_more_different_screens_than_the_server_looks_up(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "SCREENS_MAX", 2)

    async def story(place: Place) -> None:
        for name in ("first", "second"):
            await place.open(Board(), name=name)
        with pytest.raises(TooMany):
            await place.open(Board(), name="third")
        await place.open(Board(), name="first")

    play(story)


def test_one_key_opens_a_part_of_the_different_screens_alone(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "SCREENS_PER_KEY_MAX", 2)

    async def story(place: Place) -> None:
        def come(name: str, session: str) -> Coroutine[Any, Any, Reader]:
            return place.open(Board(), name=name, key=session, owner="many sessions")

        found = await asyncio.gather(*(come(str(each), f"session {each}") for each in range(9)), return_exceptions=True)
        readers = [each for each in found if isinstance(each, Reader)]
        assert len(readers) == 2 and sum(isinstance(each, TooMany) for each in found) == 7
        assert len(place.hub._screens) == 2, "what is refused is not read either"
        again = await come("0", "session 0")
        other = await place.open(Board(), name="of another key")
        assert again.data == other.data == ["whole first"]
        again.leave()
        await again.until(lambda: again.ended)
        with pytest.raises(TooMany, match="this key"):
            await come("new", "session 10")
        readers[1].leave()
        await readers[1].until(lambda: readers[1].ended)
        with pytest.raises(NotFound):
            await place.open(Board(fails=NotFound("none")), name="none", owner="many sessions")
        await come("new", "session 10")

    play(story)


def test_who_leaves_while_a_screen_is_read_takes_it_from_nobody(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        leaves = asyncio.create_task(place.open(board))
        stays = asyncio.create_task(place.open(board))
        await asyncio.sleep(0)
        leaves.cancel()
        reader = await stays
        assert reader.data == ["whole first"] and board.reads == 1 and place.hub.followers == 1

    play(story)


def test_who_comes_back_where_nobody_stayed_gets_what_was_missed(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        reader = await place.open(board)
        await left(reader)
        assert place.hub.followers == 0 and not place.hub._screens  # nothing is read meanwhile
        board.written = "second"
        back = await place.open(Board(), last=reader.last_id)
        await back.has("second")
        await left(back)
        board.written = "third"
        assert (await place.open(Board())).data == ["whole third"]
        again = await place.open(Board(), last=back.last_id)
        await again.has("third")
        assert back.data == ["second"] and not back.events + again.events

    play(story)


async def left(reader: Reader) -> None:
    reader.leave()
    await reader.until(lambda: reader.ended)


def test_a_screen_that_nobody_comes_back_to_is_forgotten(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_module, "LEFT_MAX", 2)

    async def story(place: Place) -> None:
        readers = [await place.open(Board(), name=name) for name in ("first", "second", "third")]
        for each in readers:
            await left(each)
        assert len(place.hub._left) == 2
        first = await place.open(Board(), name="first", last=readers[0].last_id)
        third = await place.open(Board(), name="third", last=readers[2].last_id)
        assert (first.events, third.events) == (["stale"], [])
        monkeypatch.setattr(left_module, "LEFT_S", 0)
        for each in (first, third):
            await left(each)
        while len(place.hub._left) > 1:  # the second, which has its time
            await asyncio.sleep(0)

    play(story)


def test_a_screen_that_was_deleted_while_nobody_looked_is_refused(play: Callable[..., None]) -> None:
    async def story(place: Place) -> None:
        board = Board()
        reader = await place.open(board)
        await left(reader)
        board.fails = NotFound("there is no such job")
        with pytest.raises(NotFound):
            await place.open(board, last=reader.last_id)

    play(story)


async def change(place: Place, service: Service, board: Board, text: str) -> None:
    board.written = text
    service.wait(3)
    await place.hub.round()
