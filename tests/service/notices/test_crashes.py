"""A server that is killed at any write, while it numbers, adds and sends facts: each fact reaches each endpoint, none twice its table,
and none another project's."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from gangline.core.notices.signing import parse_message_id
from gangline.ports.notices.notices import NoticeAnswer, NoticeRequest
from gangline.ports.store import Row, Write
from gangline.service.controller import Controller
from gangline.service.facts import number_facts
from gangline.service.jobs import steer
from gangline.service.notices.send import NoticeSender
from tests.service.conftest import PROJECT, Service
from tests.service.notices.conftest import Notifying

KILLS = 50
OTHER = "other"


class Killed(BaseException):
    """The process is gone: nothing of it catches this."""


@dataclass
class Mortal:
    """A store over the service's own, until its process is killed just before or just after its write number `dies_in`."""

    store: Any
    dies_in: int
    after: bool

    def now_ms(self) -> int:
        return self.store.now_ms()

    def load(self, name: str, /, **values: object) -> list[Row]:
        return self.store.load(name, **values)

    def apply(self, *writes: Write) -> bool:
        self.dies_in -= 1
        if self.dies_in == 0 and not self.after:
            raise Killed
        found = self.store.apply(*writes)
        if self.dies_in == 0:
            raise Killed
        return found

    def change(self, name: str, /, **values: object) -> list[Row]:
        return self.store.change(name, **values)


@dataclass
class Receivers:
    """The edge: who is sent what, by the id of the message. Some tries fail."""

    rng: Random
    fails: float = 0.3
    heard: list[str] = field(default_factory=list)

    async def post(self, request: NoticeRequest) -> NoticeAnswer:
        if self.rng.random() < self.fails:
            return NoticeAnswer(outcome="again", because="answered 500")
        self.heard.append(dict(request.headers)["webhook-id"])
        return NoticeAnswer(outcome="delivered", because="answered 204")

    async def why_refused(self, url: str) -> str:
        return ""


def life(service: Service, store: Mortal) -> None:
    """One process: it ticks and sends until nothing is due, or until it is killed."""
    deployment = replace(service.deployment, store=store)
    sender = NoticeSender(deployment, Random(1))

    async def work() -> None:
        for _ in range(20):
            number_facts(deployment, service.now_ms)
            for each in sender.turn(service.now_ms):
                await sender.send(each)

    asyncio.run(work())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_server_that_is_killed_at_any_write_tells_each_fact_once_or_more_and_invents_none(
    notifying: Notifying, after: bool
) -> None:
    service, rng = notifying.service, Random(7)
    service.add_project(OTHER)
    receivers = Receivers(rng)
    service.deployment = replace(service.deployment, poster=receivers)
    mine = {notifying.to(f"/{name}", "submitted", "canceled") for name in "abc"}
    others = {notifying.to("/d", "submitted", "canceled", project=OTHER)}
    for number in range(KILLS):
        job = notifying.submit(rng.choice((PROJECT, OTHER)), seed=number)
        if number % 3 == 0:
            steer.cancel(service.deployment, job, service.now_ms)
        with pytest.raises(Killed):
            life(service, Mortal(service.store, dies_in=rng.randint(1, 4), after=after))
            raise Killed  # it lived long enough to do all that was to do
        notifying.wait(rng.random())
    receivers.fails = 0
    for _ in range(12):
        life(service, Mortal(service.store, dies_in=10**9, after=after))
        notifying.wait(100_000)
    facts = service.look("SELECT project, fact, kind FROM event WHERE kind IN ('submitted', 'canceled')")
    wanted = {(endpoint, row["fact"]) for row in facts for endpoint in (mine if row["project"] == PROJECT else others)}
    told = [(row["endpoint"], row["fact"]) for row in service.look("SELECT endpoint, fact FROM notice")]
    assert len(told) == len(set(told)) and set(told) == wanted
    assert {parse_message_id(message) for message in receivers.heard} == wanted
    states = {row["state"] for row in service.look("SELECT DISTINCT state FROM notice")}
    assert states == {"delivered"}


def test_what_two_servers_send_at_once_is_recorded_once(notifying: Notifying) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted")
    notifying.submit()
    service.tick()
    first, second = (NoticeSender(service.deployment, Random(0)) for _ in range(2))
    sendings = [(sender, each) for sender in (first, second) for each in sender.turn(service.now_ms)]
    assert len(sendings) == 2
    for sender, each in sendings:
        asyncio.run(sender.send(each))
        sender.settle(service.now_ms)
    [notice] = notifying.log(endpoint)
    assert (notice["state"], notice["tries"]) == ("delivered", 1)
    assert len({heard.id for heard in notifying.site.heard}) == 1


def test_a_server_that_has_not_its_turn_sends_nothing(notifying: Notifying) -> None:
    notifying.to("/hook", "submitted")
    notifying.submit()
    Controller(notifying.service.deployment).tick(notifying.service.now_ms)
    notifying.service.execute("UPDATE service SET ticker = 'another'")
    assert notifying.sender.turn(notifying.service.now_ms) == []
    notifying.service.tick()
    notifying.service.execute(f"UPDATE service SET ticker = '{notifying.service.deployment.server}'")
    assert len(notifying.sender.turn(notifying.service.now_ms)) == 1


def test_a_store_that_does_not_answer_loses_no_result(notifying: Notifying) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted")
    notifying.submit()
    service.tick()
    store = Mortal(service.store, dies_in=1, after=False)
    sender = NoticeSender(replace(service.deployment, store=store), Random(0))
    for each in sender.turn(service.now_ms):
        asyncio.run(sender.send(each))
    with pytest.raises(Killed):
        sender.settle(service.now_ms)
    sender.settle(service.now_ms)
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"]
    assert len(notifying.site.heard) == 1


def test_one_endpoint_whose_messages_cannot_be_made_delays_no_other(
    notifying: Notifying, caplog: pytest.LogCaptureFixture
) -> None:
    service = notifying.service
    broken, good = notifying.to("/broken", "submitted"), notifying.to("/good", "submitted")
    unknown = notifying.to("/unknown", "submitted")
    service.execute(
        f"UPDATE endpoint SET sealed = 'x' WHERE id = '{broken}'",
        f"UPDATE endpoint SET channel = 'pigeon' WHERE id = '{unknown}'",
    )
    notifying.submit()
    notifying.tell()
    assert [heard.path for heard in notifying.site.heard] == ["/good"]
    assert [each["state"] for each in notifying.log(good)] == ["delivered"]
    assert [each["state"] for each in notifying.log(broken)] == ["waiting"]
    assert "lacks the key" in notifying.ask("GET", f"/{broken}")["because"]
    assert notifying.ask("DELETE", f"/{broken}") is None
    assert caplog.records == []
