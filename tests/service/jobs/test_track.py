"""A tracker is told of a job once, up to what is committed, whatever ends and whoever goes on."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gangline.adapters.trackers.tensorboard import TensorBoard
from gangline.api.serve import _keep_telling
from gangline.compose.server import make_trackers
from gangline.compose.settings import read_server_settings
from gangline.core.errors import GanglineError, Unreachable, UserError
from gangline.core.runs.metrics import Measured
from gangline.ports.server import Done
from gangline.ports.store import Row, Store, Write
from gangline.ports.tracker import Ending, TrackedPicture, TrackedRun, Tracker
from gangline.service.jobs import steer
from gangline.service.jobs.finish import finish
from gangline.service.jobs.track import Tracking
from tests.book import Book
from tests.contract.test_tracker import RUN, Kind, approximately, png, tensorboard, wandb, wanted
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_metrics import lose, measure, save, seen
from tests.service.jobs.test_one_at_a_time import result

MORE_THAN_A_RETRY_S = 20


@pytest.fixture
def book(service: Service) -> Book:
    return following(service, Book())


def following(service: Service, tracker: Any) -> Any:
    service.deployment = replace(service.deployment, trackers=(tracker,))
    return tracker


def server(service: Service, tracker: Tracker | None = None) -> Tracking:
    """As one starts."""
    return Tracking(service.deployment, tracker or service.deployment.trackers[0], Random(0))


def look(service: Service, tracking: Tracking) -> None:
    tracking.look(service.now_ms)


def train(service: Service, name: str, first: int, saved: int, last: int) -> None:
    """An attempt that is lost after `last`."""
    node = service.join(name)
    hold = service.claim(node).hold
    measure(service, node, hold, first, saved)
    save(service, node, hold, saved)
    if last > saved:
        measure(service, node, hold, saved + 1, last)
    lose(service)


def succeed(service: Service, name: str, first: int) -> None:
    node = service.join(name)
    hold = service.claim(node).hold
    measure(service, node, hold, first, 100)
    assert finish(service.deployment, node, hold, result(service, node, hold), service.now_ms) == Done()


def story(service: Service, look: Callable[[], None]) -> None:
    """Interrupted twice, steps done again; somebody looks after each act."""
    for act in (
        lambda: train(service, "a", 1, 20, 30),
        lambda: train(service, "b", 21, 50, 60),
        lambda: succeed(service, "c", 51),
    ):
        act()
        look()


def test_only_what_is_committed_is_told_and_all_of_it_once_the_job_has_ended(service: Service, book: Book) -> None:
    job, tracking = service.submit(), server(service)
    told: list[int] = []
    story(service, lambda: (look(service, tracking), told.append(book.told[job][-1])))  # type: ignore[func-returns-value]
    assert told == [20, 50, 100]
    assert book.told[job] == list(range(1, 101))
    assert book.ended[job].state == "succeeded" and book.ended[job].summary["interruptions"] == 2
    assert book.ended[job].summary["cost_usd"] == pytest.approx(0.0094, abs=0.01)
    look(service, tracking)
    assert book.opened == 1 and [found.ended for found in seen(service, job).trackers] == [True]


@pytest.mark.parametrize("kind", [tensorboard, wandb])
def test_a_job_interrupted_twice_is_one_run_in_every_tracker_though_each_act_has_a_server_of_its_own(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path, TrackedRun], Kind]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "told"
    job = service.submit()
    found = kind(folder, replace(RUN, id=job))

    def another_server() -> None:
        tracking = server(service, following(service, found.make()))
        look(service, tracking)
        tracking.close()

    following(service, found.make())
    story(service, another_server)
    assert approximately(found.losses()) == wanted(*range(1, 101))


class Killed(BaseException):
    """The server is gone."""


@dataclass
class Fuse:
    """Burns down at the `left`th moment at which a server may die."""

    left: int

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@dataclass
class MortalStore:
    store: Store
    fuse: Fuse

    def now_ms(self) -> int:
        return self.store.now_ms()

    def load(self, name: str, /, **values: object) -> list[Row]:
        return self.store.load(name, **values)

    def change(self, name: str, /, **values: object) -> list[Row]:
        return self.store.change(name, **values)

    def apply(self, *writes: Write) -> bool:
        self.fuse.burn()
        done = self.store.apply(*writes)
        self.fuse.burn()
        return done


class MortalTensorBoard(TensorBoard):
    """Each write may break off: after some of its steps, and before it is known to have happened."""

    def __init__(self, folder: Path, fuse: Fuse) -> None:
        super().__init__(folder)
        self._fuse = fuse

    def write(self, run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        self._fuse.burn()
        half = len(points) // 2
        if half:
            super().write(run, points[:half], [])
            self._fuse.burn()
        super().write(run, points[half:], pictures)
        self._fuse.burn()

    def end(self, run: str, ending: Ending) -> None:
        super().end(run, ending)
        self._fuse.burn()


def play(service: Service, folder: Path, moment: int) -> bool:
    """The whole story with a server that dies at a moment, and one that goes on at once. Whether it died."""
    fuse, died = Fuse(moment), False
    job = service.submit()
    found = tensorboard(folder, replace(RUN, id=job))

    def start() -> Tracking:
        mortal = MortalTensorBoard(folder, fuse)
        deployment = replace(service.deployment, store=MortalStore(service.store, fuse), trackers=(mortal,))
        return Tracking(deployment, mortal, Random(0))

    following(service, TensorBoard(folder))
    tracking = start()

    def watch() -> None:
        nonlocal tracking, died
        try:
            look(service, tracking)
        except Killed:
            died, tracking = True, start()
            look(service, tracking)

    story(service, watch)
    assert approximately(found.losses()) == wanted(*range(1, 101))
    assert len(set(found.pictures())) == len(found.pictures())
    assert [each.ended for each in seen(service, job).trackers] == [True]
    return died


def test_a_server_that_dies_at_any_moment_doubles_no_step_and_leaves_none_out(service: Service, tmp_path: Path) -> None:
    moment = 1
    while play(service, tmp_path / str(moment), moment):
        moment += 1
    assert moment > 12, "it dies before and after each write, and each mark"


def test_a_tracker_that_is_away_harms_no_job_is_tried_again_and_why_is_said(
    service: Service, book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    job, tracking = service.submit(), server(service)
    train(service, "a", 1, 20, 30)
    book.away = Unreachable("nobody answers", hint="is it there?")
    for _ in range(4):
        look(service, tracking)
        service.wait(MORE_THAN_A_RETRY_S)
    (found,) = seen(service, job).trackers
    assert (found.tracker, found.step, found.because) == ("book", 0, "nobody answers (is it there?)")
    assert len(caplog.records) == 1, "it is said once"
    book.away = None
    look(service, tracking)
    assert book.told[job] == list(range(1, 21))
    assert [found.because for found in seen(service, job).trackers] == [""]


def test_a_run_that_a_tracker_does_not_take_holds_up_no_other(service: Service, book: Book) -> None:
    refused, taken = service.submit(priority=1), service.submit()
    train(service, "a", 1, 20, 20)
    steer.pause(service.deployment, refused, service.now_ms)
    train(service, "b", 1, 20, 20)
    open_run = book.open

    def open_other(run: TrackedRun, told: int) -> int:
        if run.id == refused:
            raise GanglineError("this run was deleted there")
        return open_run(run, told)

    book.open = open_other  # type: ignore[method-assign]
    look(service, server(service))
    assert list(book.told) == [taken] and book.told[taken][-1] == 20
    assert "deleted" in seen(service, refused).trackers[0].because


def test_of_two_servers_only_the_one_that_has_its_turn_tells(service: Service, book: Book) -> None:
    service.submit()
    train(service, "a", 1, 20, 20)
    other = Tracking(replace(service.deployment, server="another"), book, Random(0))
    look(service, other)
    assert not book.told
    look(service, server(service))
    assert book.told


def test_who_finds_the_mark_moved_asks_the_tracker_again(service: Service, book: Book) -> None:
    """Another server had its turn meanwhile."""
    book.holds = True
    job, first = service.submit(), server(service)
    train(service, "a", 1, 20, 20)
    look(service, first)
    train(service, "b", 21, 40, 40)
    look(service, server(service))
    train(service, "c", 41, 60, 60)
    look(service, first)
    assert book.told[job] == list(range(1, 61)) and book.opened == 3


def test_a_mark_that_another_server_moved_in_the_same_moment_stays(service: Service, book: Book) -> None:
    job, first, second = service.submit(), server(service), server(service)
    book.holds = True
    train(service, "a", 1, 20, 20)
    write, calls = book.write, list[int]()

    def write_slowly(run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        calls.append(len(points))
        if len(calls) == 1:
            look(service, second)
            return
        write(run, points, pictures)

    book.write = write_slowly  # type: ignore[method-assign]
    look(service, first)
    assert "another server" in seen(service, job).trackers[0].because
    service.wait(MORE_THAN_A_RETRY_S)
    train(service, "b", 21, 40, 40)
    look(service, first)
    assert book.told[job] == list(range(1, 41))


def test_samples_are_shown_once_each_with_their_step(service: Service, book: Book) -> None:
    job, tracking = service.submit(), server(service)
    train(service, "a", 1, 20, 20)
    with_pictures(service, job, 20)
    look(service, tracking)
    story_goes_on = [f"samples/step-000010/{number:02d}.png 10" for number in range(16)]
    assert book.shown == story_goes_on
    succeed(service, "b", 21)
    look(service, tracking)
    assert sorted(book.shown) == sorted(
        [*story_goes_on, *(f"samples/step-000010/{n:02d}.png 10" for n in range(16, 20))]
    )
    assert job in book.ended


def test_pictures_that_come_after_the_end_are_shown_too(service: Service, book: Book) -> None:
    job, tracking = service.submit(), server(service)
    train(service, "a", 1, 20, 20)
    succeed(service, "b", 21)
    look(service, tracking)
    with_pictures(service, job, 1)
    assert service.store.apply(Write("track_again", {"job": job}))
    look(service, tracking)
    assert book.shown == ["samples/step-000010/00.png 10"] and book.told[job] == list(range(1, 101))
    assert [each.ended for each in seen(service, job).trackers] == [True]


def with_pictures(service: Service, job: str, count: int) -> None:
    attempt = service.store.load("attempts", job=job)[0]["id"]
    for path in (*(f"samples/step-000010/{number:02d}.png" for number in range(count)), "samples/words.json"):
        key = f"projects/{PROJECT}/jobs/{job}/attempts/{attempt}/{path}"
        service.objects.write(key, png())
        facts = {
            "job": job,
            "path": path,
            "attempt": attempt,
            "key": key,
            "bytes": len(png()),
            "sha256": "0" * 64,
            "now": 1,
        }
        assert service.store.apply(Write("add_artifact", facts))


def test_a_tracker_is_not_told_of_photos_but_of_how_many_there_are(service: Service, book: Book) -> None:
    service.submit()
    train(service, "a", 1, 20, 20)
    runs: list[TrackedRun] = []
    open_run = book.open
    book.open = lambda run, told: (runs.append(run), open_run(run, told))[1]  # type: ignore[method-assign, func-returns-value]
    look(service, server(service))
    (run,) = runs
    assert run.settings["photos"] == 1 and run.settings["rank"] == 16
    assert run.settings["target_modules"] == ["to_k", "to_q", "to_v", "to_out.0"]
    assert run.project == PROJECT and run.tags[0] == "lora"


def test_a_server_tells_its_trackers_until_it_is_stopped(service: Service, book: Book) -> None:
    job = service.submit()
    train(service, "a", 1, 20, 20)
    told, stopping = threading.Event(), threading.Event()
    write, close = book.write, list[int]()

    def write_and_tell(*what: Any) -> None:
        write(*what)
        told.set()

    book.write = write_and_tell  # type: ignore[method-assign]
    book.close = lambda: close.append(1)  # type: ignore[method-assign]
    service.change_policy(tick_interval_s=0.01)
    telling = threading.Thread(target=_keep_telling, args=(service.deployment, book, stopping))
    telling.start()
    assert told.wait(30)
    stopping.set()
    telling.join(30)
    assert not telling.is_alive() and close and book.told[job][-1] == 20


def test_the_environment_says_which_trackers_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GANGLINE_TENSORBOARD", "GANGLINE_WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))

    def made() -> tuple[Tracker, ...]:
        return make_trackers(read_server_settings().settings.server, 0o022)

    assert made() == ()
    monkeypatch.setenv("GANGLINE_TENSORBOARD", str(tmp_path / "boards"))
    monkeypatch.setenv("GANGLINE_WANDB_PROJECT", "dogs")
    assert [tracker.name for tracker in made()] == ["wandb", "tensorboard"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("GANGLINE_TENSORBOARD", str(tmp_path / "file" / "boards"))
    with pytest.raises(UserError, match="cannot be created"):
        made()


@pytest.fixture(autouse=True)
def nothing_is_left(service: Service) -> Iterator[None]:
    yield
    for tracker in service.deployment.trackers:
        tracker.close()
