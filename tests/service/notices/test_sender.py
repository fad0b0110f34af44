"""What the sender does when the store, the object store or itself fails: nothing is lost, and no other endpoint waits."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from gangline.api.serve import _send_notices
from gangline.core.errors import Unreachable
from gangline.core.notices.message import NoticeMessage
from gangline.core.notices.retry import NoticeOutcome
from gangline.core.runs.contract import GRID
from gangline.ports.notices.notices import NoticeAnswer, NoticeRequest
from gangline.service.notices.send import NoticeSender
from tests.service.conftest import Before
from tests.service.notices.conftest import Notifying
from tests.service.notices.test_messages import PNG, finished_with

MINUTE_S, DAY_S = 60, 86_400


@dataclass
class Unsteady:
    """A store over the service's own; `happens` may raise an error before each load, by its name and values."""

    store: Any
    happens: Callable[[str, dict[str, Any]], object]

    def load(self, name: str, /, **values: object) -> Any:
        self.happens(name, values)
        return self.store.load(name, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass
class Edges:
    """The edges: they answer as they are asked to, in turn; the last answer stays."""

    answers: list[NoticeAnswer]
    ids: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)

    async def post(self, request: NoticeRequest) -> NoticeAnswer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def why_refused(self, url: str) -> str:
        return ""


@dataclass
class MailEdge:
    """The mail server of the edges."""

    edges: Edges
    interval_min_s: float = 0.0

    async def mail(self, to: str, message: NoticeMessage, message_id: str) -> NoticeAnswer:
        self.edges.ids.append(message_id)
        self.edges.titles.append(message.title)
        return await self.edges.post(NoticeRequest(url="", headers=(), body=b""))

    def why_refused(self, to: str) -> str:
        return ""


def answer(outcome: NoticeOutcome, retry_after_s: float | None = None, *, ours: bool = False) -> NoticeAnswer:
    return NoticeAnswer(outcome=outcome, because="answered", retry_after_s=retry_after_s, ours=ours)


def answering(notifying: Notifying, *answers: NoticeAnswer) -> Edges:
    service, edges = notifying.service, Edges(list(answers))
    service.deployment = replace(service.deployment, poster=edges, mailer=MailEdge(edges))
    service.app.state.deployment = service.deployment
    notifying.restart()
    return edges


def mailbox(notifying: Notifying, *kinds: str, **wanted: Any) -> str:
    return notifying.to("/", *kinds, name="me", channel="mail", address="someone@example.com", **wanted)


def submit(notifying: Notifying, *seeds: int) -> None:
    for seed in seeds:
        notifying.submit(seed=seed)
    notifying.service.tick()


# ------------------------------------------------------------------------------------------------- what fails on this side


def test_a_store_that_fails_in_the_middle_of_a_turn_strands_nothing(notifying: Notifying) -> None:
    service = notifying.service
    endpoints = [notifying.to(path, "submitted") for path in ("/a", "/b")]
    submit(notifying, 1)
    failing = iter([False, True])

    def happens(name: str, _: object) -> None:
        if name == "due_notices" and next(failing, False):
            raise Unreachable("the database does not answer")

    store = Unsteady(service.store, happens)
    notifying.sender = NoticeSender(replace(service.deployment, store=store), Random(0))
    notifying.send()
    submit(notifying, 2)
    notifying.send()
    for endpoint in endpoints:
        assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"] * 2
    assert len(notifying.site.heard) == 4


def test_a_message_that_cannot_be_made_waits_by_itself_and_says_so(
    notifying: Notifying, caplog: pytest.LogCaptureFixture
) -> None:
    service = notifying.service
    endpoint = notifying.to("/slack", "canceled", channel="slack", interval_s=0)
    job, other = notifying.submit(seed=1), notifying.submit(seed=2)
    broken = {job}

    def happens(_: str, values: dict[str, Any]) -> None:
        if broken & {str(value) for value in values.values()}:
            raise ValueError

    store = Unsteady(service.store, happens)
    notifying.sender = NoticeSender(replace(service.deployment, store=store), Random(0))
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    notifying.tell()
    [notice] = notifying.log(endpoint)
    assert (notice["state"], notice["tries"]) == ("waiting", 1) and "could not be made" in notice["because"]
    assert "no message can be made" in caplog.text
    assert notifying.ask("GET", f"/{endpoint}")["failing_since_ms"] is None, "it is not the receiver's fault"
    service.ask("POST", f"/v1/jobs/{other}/cancel").raise_for_status()
    for _ in range(2):
        notifying.wait(11 * MINUTE_S)
        notifying.tell()
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered", "waiting"]
    broken.clear()
    notifying.wait(DAY_S)
    notifying.send()
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"] * 2


def test_an_object_store_that_does_not_answer_delays_no_webhook(notifying: Notifying) -> None:
    service, ends = notifying.service, threading.Event()
    hook, chat = notifying.to("/hook", "succeeded"), notifying.to("/chat", "succeeded", channel="discord")
    finished_with(service, f"samples/{GRID}", PNG)
    service.tick()
    slow = Before(service.objects, "read", lambda: ends.wait(20))
    notifying.sender = sender = NoticeSender(replace(service.deployment, objects=slow), Random(0))

    async def work() -> None:
        sendings = {each.endpoint: asyncio.create_task(sender.send(each)) for each in sender.turn(service.now_ms)}
        await sendings[hook]
        assert sender.turn(service.now_ms) == []
        assert [each["state"] for each in notifying.log(hook)] == ["delivered"]
        ends.set()
        await sendings[chat]

    asyncio.run(work())
    notifying.send()
    assert [each["state"] for each in notifying.log(chat)] == ["delivered"]


def test_the_event_loop_never_waits_for_the_store(notifying: Notifying) -> None:
    service, stopping = notifying.service, threading.Event()
    notifying.to("/hook", "submitted")
    submit(notifying, 1)
    asked = set[str]()

    class Watched(Unsteady):
        def now_ms(self) -> int:
            asked.add(threading.current_thread().name)
            if notifying.site.heard:
                stopping.set()
            return self.store.now_ms()

    store = Watched(service.store, lambda *_: asked.add(threading.current_thread().name))
    asyncio.run(_send_notices(replace(service.deployment, store=store), stopping))
    assert len(notifying.site.heard) == 1
    assert asked and all(name.startswith("notices") for name in asked)


def test_what_this_server_was_too_busy_to_send_is_no_try(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    answering(notifying, *[answer("untried", ours=True)] * 20, answer("delivered"))
    submit(notifying, 1)
    for _ in range(20):
        notifying.send()
        [notice] = notifying.log(endpoint)
        assert (notice["state"], notice["tries"], notice["because"]) == ("waiting", 0, "answered")
        notifying.wait(7)
    assert notifying.ask("GET", f"/{endpoint}")["failing_since_ms"] is None
    notifying.send()
    [notice] = notifying.log(endpoint)
    assert (notice["state"], notice["tries"]) == ("delivered", 1)


# ------------------------------------------------------------------------------------------------------------------ digests


def test_a_digest_that_fails_is_sent_again_as_it_was_and_under_the_same_id(notifying: Notifying) -> None:
    edges = answering(notifying, *[answer("again")] * 2, answer("delivered"))
    endpoint = mailbox(notifying, "submitted")
    submit(notifying, 1, 2, 3)
    notifying.send()
    submit(notifying, 4, 5)
    for _ in range(5):
        notifying.wait(10 * MINUTE_S)
        notifying.send()
    assert edges.titles == ["3 jobs were queued"] * 3 + ["2 jobs were queued"]
    assert len(set(edges.ids[:3])) == 1 and edges.ids[3] != edges.ids[0]
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"] * 5


def test_a_digest_is_about_all_that_happened_however_much(notifying: Notifying) -> None:
    edges = answering(notifying, answer("delivered"))
    endpoint = mailbox(notifying, "submitted")
    submit(notifying, *range(205))
    notifying.send()
    assert edges.titles == ["205 jobs were queued"]
    assert notifying.ask("GET", f"/{endpoint}")["waiting"] == 0


def test_while_an_endpoint_for_people_fails_what_happens_is_a_few_messages_not_one_for_each_fact(
    notifying: Notifying,
) -> None:
    edges = answering(notifying, answer("again"))
    endpoint = mailbox(notifying, "submitted", interval_s=0)
    for seed in range(60):
        submit(notifying, seed)
        notifying.send()
        notifying.wait(MINUTE_S)
    assert len(set(edges.ids)) <= 10
    edges.answers = [answer("delivered")]
    edges.titles.clear()
    notifying.wait(DAY_S)
    notifying.send()
    assert len(edges.titles) <= 10
    assert {each["state"] for each in notifying.log(endpoint)} == {"delivered"}


def test_an_owner_who_ends_quiet_hours_while_a_turn_runs_is_not_held(notifying: Notifying) -> None:
    service = notifying.service
    service.store.time_ms += DAY_S * 1000 - service.now_ms % (DAY_S * 1000)
    notifying.wait(3600)
    endpoint = mailbox_of(notifying)
    submit(notifying, 1)
    changes = iter([{"quiet": ""}])

    def happens() -> None:
        for change in changes:
            notifying.ask("PATCH", f"/{endpoint}", json=change)

    store = Before(service.store, "apply", happens)
    assert NoticeSender(replace(service.deployment, store=store), Random(0)).turn(service.now_ms) == []
    notifying.send()
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"]


def mailbox_of(notifying: Notifying) -> str:
    answering(notifying, answer("delivered"))
    return mailbox(notifying, "submitted", quiet="00:00-07:00 UTC")


# ------------------------------------------------------------------------------------------- when an endpoint is disabled


def test_a_refused_mail_and_one_that_fails_days_later_disable_nothing(notifying: Notifying) -> None:
    answering(notifying, answer("refused"), answer("again"))
    endpoint = mailbox(notifying, "submitted")
    for seed in range(2):
        submit(notifying, seed)
        notifying.send()
        assert (notifying.ask("GET", f"/{endpoint}")["failing_since_ms"] is None) == (seed == 0)
        notifying.wait(4 * DAY_S)
    assert notifying.ask("GET", f"/{endpoint}")["state"] == "active"


def test_a_mail_server_that_fails_for_days_disables_nobodys_endpoint(notifying: Notifying) -> None:
    answering(notifying, answer("again", ours=True))
    endpoint = mailbox(notifying, "submitted")
    submit(notifying, 1)
    for _ in range(12):
        notifying.send()
        notifying.wait(1.3 * DAY_S)
    [notice] = notifying.log(endpoint)
    assert notice["state"] == "failed" and "at the last of 10 tries" in notice["because"]
    shown = notifying.ask("GET", f"/{endpoint}")
    assert (shown["state"], shown["failing_since_ms"]) == ("active", None)


@pytest.mark.parametrize(
    "answers",
    [
        [answer("again", 600), answer("again")],
        [answer("again"), answer("again", 600)],
        [answer("delivered"), answer("again", 600)],
        [answer("again", 600), answer("again", 1)],
    ],
    ids=["first", "last", "with a success", "shorter"],
)
def test_a_receiver_that_asked_once_to_wait_is_waited_for_whatever_its_other_answers_say(
    notifying: Notifying, answers: list[NoticeAnswer]
) -> None:
    notifying.to("/hook", "submitted")
    edges = answering(notifying, answer("delivered"))
    for seed in range(4):
        submit(notifying, seed)
        notifying.send()
    edges.answers = [*answers, answer("delivered")]
    submit(notifying, 10, 11)
    sendings = notifying.sender.turn(notifying.service.now_ms)
    assert len(sendings) == 2
    for each in sendings:
        asyncio.run(notifying.sender.send(each))
    submit(notifying, 12)
    assert notifying.sender.turn(notifying.service.now_ms) == []
    notifying.wait(590)
    assert notifying.sender.turn(notifying.service.now_ms) == []
    notifying.wait(11)
    assert notifying.sender.turn(notifying.service.now_ms)
