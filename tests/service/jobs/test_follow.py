"""Who follows a job is told all of it once, in order, and costs nobody else anything."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from gangline.api.answers import streams
from gangline.api.answers.streams import Followers
from gangline.api.app import make_app
from gangline.api.lanes import USERS
from gangline.cli import main
from gangline.cli.jobs import follow as cli_follow
from gangline.compose.client import Client
from gangline.core.errors import NotFound, Unreachable
from gangline.core.server.limits import Limits
from gangline.core.views import EndView, EventView, JobView, ProgressView
from gangline.ports.server import LOG_CHUNK_BYTES_MAX, Beat, Hold, Log
from gangline.ports.store import Row, write
from gangline.service.jobs import query, renew, steer
from gangline.wire.stream import MessageParser, StreamMessage
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.served import Served, serving
from tests.service.test_lanes import holding_up

IN_TIME_S = 20


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "POLL_S", 0.02)


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> Limits:
    return getattr(request, "param", Limits())


@pytest.fixture
def app(service: Service, limits: Limits) -> FastAPI:
    return make_app(service.deployment, service.objects, limits)


@pytest.fixture
def served(app: FastAPI) -> Iterator[Served]:
    with serving(app) as served:
        yield served


class Follower:
    """One who follows, message by message."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        parser = MessageParser()
        self._messages = (message for chunk in answer.iter_bytes() for message in parser.feed(chunk))

    def next(self) -> tuple[str, Any]:
        message: StreamMessage = next(self._messages)
        return message.id or message.event, json.loads(message.data)

    def rest(self) -> list[str]:
        return [message.id or message.event for message in self._messages]


@pytest.fixture
def follow(served: Served) -> Iterator[Any]:
    with httpx.Client(base_url=served.url, timeout=IN_TIME_S) as http:
        opened: list[httpx.Response] = []

        def open_one(job: str, what: str = "events", last: str = "") -> Follower:
            headers = {"Authorization": f"Bearer {OPERATOR}"} | ({"Last-Event-ID": last} if last else {})
            request = http.build_request("GET", f"/v1/jobs/{job}/{what}/stream", headers=headers)
            answer = http.send(request, stream=True)
            opened.append(answer)
            return Follower(answer)

        yield open_one
        for answer in opened:
            answer.close()


def happen(service: Service, job: str, times: int) -> None:
    for number in range(times):
        (steer.resume if number % 2 else steer.pause)(service.deployment, job, service.now_ms)


def print_log(service: Service, node: str, hold: Hold, pieces: list[str]) -> None:
    first_byte = 0
    for text in pieces:
        renew.append_log(service.deployment, node, hold, Log(first_byte=first_byte, text=text), service.now_ms)
        first_byte += len(text.encode())


def test_events_come_in_order_as_they_happen_and_the_end_is_the_last(service: Service, follow: Any) -> None:
    job = service.submit()
    follower = follow(job)
    assert follower.answer.headers["content-type"].startswith("text/event-stream")
    assert follower.next()[0] == "1"
    assert follower.next() == (
        "progress",
        {"state": "queued", "phase": None, "step": None, "loss": None, "seconds_per_step": None},
    )
    happen(service, job, 1)
    number, event = follower.next()
    assert (number, event["number"], event["kind"]) == ("2", 2, "paused")
    assert follower.next()[1]["state"] == "paused"
    steer.cancel(service.deployment, job, service.now_ms)
    assert follower.next()[1]["kind"] == "canceled"
    assert follower.next()[1]["state"] == "canceled"
    assert follower.next() == ("end", {"state": "canceled", "because": "canceled by its owner"})
    assert follower.rest() == []


def test_an_event_that_another_version_recorded_is_told_as_it_is(service: Service, follow: Any) -> None:
    job = service.submit()
    service.store.apply(write("add_event", job=job, kind="of old", because="", now=1, attempt=None, node=None))
    assert [event["kind"] for event in service.ask("GET", f"/v1/jobs/{job}/events").json()] == ["submitted", "of old"]
    follower = follow(job)
    assert [follower.next()[1]["kind"] for _ in range(2)] == ["submitted", "of old"]


def test_who_has_heard_the_end_is_told_to_ask_no_more(service: Service, follow: Any) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    assert follow(job).rest() == ["1", "2", "progress", "end"]
    assert follow(job, last="2").rest() == ["progress", "end"]
    assert follow(job, "logs").rest() == ["end"]
    for what in ("events", "logs"):
        assert follow(job, what, last="end").answer.status_code == 204


def test_a_stream_goes_on_where_it_was_interrupted(service: Service, follow: Any) -> None:
    job = service.submit()
    happen(service, job, 5)
    assert [follow(job, last="3").next()[0], follow(job, last="5").next()[0]] == ["4", "6"]


def test_progress_follows_the_heartbeats(service: Service, follow: Any) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    follower = follow(job, last="2")
    assert follower.next()[1]["phase"] == "starting"
    renew.renew(service.deployment, node, hold, Beat(phase="training", step=7, loss=float("nan")), service.now_ms)
    told = {"state": "running", "phase": "training", "step": 7, "loss": None, "seconds_per_step": None}
    assert follower.next() == ("progress", told)


def test_the_log_of_all_attempts_comes_whole(service: Service, follow: Any) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    follower = follow(job, "logs")
    print_log(service, first, hold, ["one\n", "zwölf\n"])
    text = follower.next()[1]["text"]
    while not text.endswith("zwölf\n"):
        text += follower.next()[1]["text"]
    service.wait(60)
    service.tick()
    print_log(service, second, service.claim(second).hold, ["again\n"])
    number, last = follower.next()
    assert (text + last["text"], number) == ("one\nzwölf\nagain\n", "2.1")
    steer.cancel(service.deployment, job, service.now_ms)
    assert follower.rest() == ["end"]
    assert query.log_page(service.deployment, PROJECT, job, None).text == text + last["text"]


def test_a_log_tells_of_progress_where_that_is_asked_for(service: Service, served: Served) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    heard: list[ProgressView] = []
    assert list(Client(served.url, OPERATOR).logs.follow(job, progress=heard.append)) == []
    assert [progress.state for progress in heard] == ["canceled"]


def test_many_who_follow_one_job_cost_one_look(service: Service, app: FastAPI, follow: Any) -> None:
    job = service.submit()
    followers = [follow(job, last="1") for _ in range(10)]
    for follower in followers:
        follower.next()
    service.store.__class__ = type("Watched", (Watched, type(service.store)), {})
    store: Any = service.store
    store.looked = []
    for _ in range(4):
        happen(service, job, 2)
        for follower in followers:
            while follower.next()[0] == "progress":
                pass
    assert app.state.followers.count == 10
    assert store.looked and all(thread.startswith("following") for thread in store.looked), "nobody looked for himself"


class Watched:
    """The real store; it remembers which threads looked at a followed job."""

    looked: list[str]

    def load(self, name: str, /, **values: object) -> list[Row]:
        if name == "followed":
            self.looked.append(threading.current_thread().name)
        return super().load(name, **values)  # type: ignore[misc]


def test_a_stream_needs_none_of_the_threads_that_users_queries_hold(
    service: Service, served: Served, follow: Any
) -> None:
    job = service.submit()
    follower = follow(job, last="1")
    follower.next()
    with holding_up(service, "jobs_by_time") as store:
        askers = [threading.Thread(target=list_jobs, args=(served,)) for _ in range(USERS.threads)]
        for asker in askers:
            asker.start()
            assert store.waiting.acquire(timeout=IN_TIME_S)
        happen(service, job, 1)
        assert follower.next()[1]["kind"] == "paused"
    for asker in askers:
        asker.join()


def list_jobs(served: Served) -> None:
    assert list(Client(served.url, OPERATOR).jobs.list())


def test_a_slow_reader_misses_nothing_and_nothing_is_kept_for_him(service: Service, app: FastAPI, follow: Any) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    follower = follow(job, "logs")
    pieces = [f"{number:05d}".ljust(LOG_CHUNK_BYTES_MAX, ".") for number in range(64)]  # more than the sockets take
    print_log(service, node, hold, pieces)
    quick = follow(job, "logs", last=f"1.{62 * LOG_CHUNK_BYTES_MAX + 1}")
    quick.next()
    steer.cancel(service.deployment, job, service.now_ms)
    assert quick.rest() == ["end"]
    (tail,) = app.state.followers._tails.values()
    assert len(tail.latest.pieces) <= 1, "he is still being told, piece by piece"
    told = [follower.next() for _ in pieces]
    assert "".join(message["text"] for _, message in told) == "".join(pieces)
    assert follower.rest() == ["end"]


def test_who_goes_away_leaves_nothing_behind(service: Service, app: FastAPI, served: Served, follow: Any) -> None:
    job = service.submit()
    followers: Followers = app.state.followers
    for follower in [follow(job) for _ in range(5)]:
        follower.next()
        follower.answer.close()
    last = follow(job, last="1")
    last.next()
    turns = 0
    while followers.count > 1 and turns < 1000:
        turns += 1
        happen(service, job, 2)
        last.next()
    assert followers.count == 1 and len(followers._tails) == 1
    assert served.stop(IN_TIME_S)
    assert followers.count == 0 and not followers._tails


@pytest.mark.parametrize("limits", [Limits(followers_max=2)], indirect=True)
def test_more_than_so_many_are_told_to_come_later(service: Service, follow: Any) -> None:
    job = service.submit()
    assert [follow(job).answer.status_code for _ in range(3)] == [200, 200, 503]


@pytest.mark.parametrize("limits", [Limits(followers_per_project_max=2)], indirect=True)
def test_one_project_cannot_take_the_streams_of_others(service: Service, follow: Any) -> None:
    job = service.submit()
    answers = [follow(job).answer for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].headers["retry-after"] == "15"


def test_a_server_that_stops_does_not_wait_for_those_who_follow(service: Service, served: Served, follow: Any) -> None:
    followers = [follow(service.submit()) for _ in range(3)]
    assert served.stop(within_s=4), "less than what requests are given to end"
    assert all("end" not in follower.rest() for follower in followers)


@pytest.mark.parametrize("what", ["events", "logs"])
def test_another_projects_job_is_not_followed(service: Service, follow: Any, what: str) -> None:
    other = service.submit(project=service.add_project("other"))
    assert follow(other, what).answer.status_code == follow("none", what).answer.status_code == 404


@pytest.mark.parametrize("last", ["x", "-1", "1.2.3", "9" * 30])
def test_an_id_that_was_never_told_is_a_404(service: Service, follow: Any, last: str) -> None:
    job = service.submit()
    assert {follow(job, what, last=last).answer.status_code for what in ("events", "logs")} == {404}


def test_a_client_follows_across_a_restart_and_hears_everything_once(service: Service, app: FastAPI) -> None:
    job, away = service.submit(), list[str]()
    first = Served(app)
    client = Client(first.url, OPERATOR)
    told: list[object] = []
    following = client.events.follow(job, waiting=lambda error: away.append(error.message))
    told += [next(following), next(following)]
    assert first.stop()
    happen(service, job, 1)
    with serving(make_app(service.deployment, service.objects), first.port):
        while not (isinstance(told[-1], ProgressView) and told[-1].state == "paused"):
            told.append(next(following))
        steer.cancel(service.deployment, job, service.now_ms)
        told += list(following)
    events = [one for one in told if isinstance(one, EventView)]
    assert [(one.number, one.kind) for one in events] == [(1, "submitted"), (2, "paused"), (3, "canceled")]
    assert told[-1] == EndView(state="canceled", because="canceled by its owner")


def test_a_client_hears_at_once_that_there_is_no_server_or_no_job(service: Service, served: Served) -> None:
    with pytest.raises(NotFound):
        next(Client(served.url, OPERATOR).logs.follow("none"))
    served.stop()
    with pytest.raises(Unreachable):
        next(Client(served.url, OPERATOR).logs.follow("none"))


def test_a_client_is_given_the_log_until_the_job_ends(service: Service, served: Served) -> None:
    job, node = service.submit(), service.join()
    print_log(service, node, service.claim(node).hold, ["one\n", "two\n"])
    steer.cancel(service.deployment, job, service.now_ms)
    assert "".join(piece.text for piece in Client(served.url, OPERATOR).logs.follow(job)) == "one\ntwo\n"


def test_the_command_prints_the_log_as_it_comes_until_the_job_ends(service: Service, served: Served) -> None:
    job, node = service.submit(), service.join()
    print_log(service, node, service.claim(node).hold, ["one\n", "two\n"])
    there = ["--server", served.url, "--token", OPERATOR]
    so_far = CliRunner().invoke(main.app, ["logs", job, *there])
    steer.cancel(service.deployment, job, service.now_ms)
    followed = CliRunner().invoke(main.app, ["logs", job, "-f", *there])
    assert (so_far.exit_code, so_far.stdout) == (followed.exit_code, followed.stdout) == (0, "one\ntwo\n")


def test_a_follower_of_the_command_line_sees_every_look_and_the_end(service: Service, served: Served) -> None:
    job, node = service.submit(), service.join()
    hold, seen = service.claim(node).hold, list[str]()

    def look(found: JobView) -> None:
        if not seen:
            renew.renew(service.deployment, node, hold, Beat(phase="training", step=7), service.now_ms)
        elif found.summary.step == 7 and found.summary.state == "running":
            steer.cancel(service.deployment, job, service.now_ms)
        seen.append(found.summary.phase or found.summary.state)

    ended = cli_follow.follow_job(Client(served.url, OPERATOR), job, seen=look)
    assert (ended.summary.state, seen[0], seen[-1]) == ("canceled", "starting", "canceled") and "training" in seen


def test_a_message_that_was_cut_off_does_not_count_and_comments_are_nothing() -> None:
    lines = [
        "retry: 1000",
        "",
        ":",
        "",
        "event: log",
        "id: 1.2",
        "data: a",
        "data: b",
        "",
        "data:x",
        "",
        "id: 9",
        "data: cut",
    ]
    assert list(MessageParser().feed("\n".join(lines).encode())) == [
        StreamMessage("log", "a\nb", "1.2"),
        StreamMessage("message", "x", ""),
    ]


def test_a_lost_piece_of_a_log_is_passed_over_with_a_line_that_says_so(service: Service, served: Served) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    texts = ("begun\nhalf a", " line\n", "ended\n")
    for first_byte, text in zip((0, 12, 18), texts, strict=True):
        renew.append_log(service.deployment, node, hold, Log(first_byte=first_byte, text=text), service.now_ms)
    (lost,) = [row["key"] for row in service.store.load("log_chunks", job=job, fencing=0, first_byte=0)][1:2]
    service.objects.delete([lost])
    expected = "begun\nhalf a\n[6 bytes of this log are lost]\nended\n"
    found = service.ask("GET", f"/v1/jobs/{job}/logs").json()
    assert found["text"] == expected
    assert service.ask("GET", f"/v1/jobs/{job}/logs?after={found['next']}").json()["text"] == ""
    steer.cancel(service.deployment, job, service.now_ms)
    assert "".join(piece.text for piece in Client(served.url, OPERATOR).logs.follow(job)) == expected
