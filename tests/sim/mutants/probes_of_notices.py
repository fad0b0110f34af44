"""Races and rules about whom a fact reaches: endpoints, their notices, and what becomes of those."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from gangline.adapters.sealing import JweSealer
from gangline.core.errors import BadInput, InProgress, NotFound, Unreachable
from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.retry import NoticeOutcome
from gangline.ports.notices.notices import NoticeAnswer, NoticeRequest
from gangline.service.access.requests import KeyedRequest
from gangline.service.facts import number_facts
from gangline.service.jobs import steer
from gangline.service.notices import endpoints, log
from gangline.service.notices.send import NoticeSender
from gangline.service.retention import removal
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused

KEYS = ("a key of 32 characters, or longer", "another key of 32 characters, or longer")
URL = "https://hooks.example/"


class Answers:
    """The edge: it answers as it was asked to, in turn; the last answer stays."""

    def __init__(self, *outcomes: NoticeOutcome) -> None:
        self._left = list(outcomes)
        self.heard = list[str]()

    async def post(self, request: NoticeRequest) -> NoticeAnswer:
        self.heard.append(dict(request.headers)["webhook-id"])
        outcome = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return NoticeAnswer(outcome=outcome, because="answered")

    async def why_refused(self, url: str) -> str:
        return ""


def tried(state: str, *, tries: int = 0, fact: int = 0, **more: Any) -> dict[str, Any]:
    """The values of a try that is recorded."""
    any_due = {"due_from": 0, "due_until": 10**15, "tries": tries, "tried": tries + 1}
    return any_due | {"first": fact, "last": fact, "state": state, "due_ms": 0, "because": "", "now": 0} | more


class Notified:
    """Endpoints of the bench's service. `notices` are those of an endpoint: fact, state, tries."""

    def __init__(self, bench: Bench, *outcomes: NoticeOutcome) -> None:
        self.bench, self.answers = bench, Answers(*outcomes or ("delivered",))
        sealer = JweSealer([KEYS[0]])
        bench.deployment = replace(bench.deployment, sealer=sealer, poster=self.answers)
        self.sender = NoticeSender(bench.deployment, Random(0))

    def add(self, name: str, *kinds: NoticeKind, project: str = PROJECT) -> str:
        wish = endpoints.EndpointWish(channel="webhook", address=URL, name=name, kinds=kinds or ("submitted",))
        bench = self.bench
        return endpoints.make_endpoint(bench.deployment, project, wish, "key", bench.now_ms).endpoint.id

    def number(self) -> None:
        number_facts(self.bench.deployment, self.bench.now_ms)

    def send(self) -> None:
        for each in self.sender.turn(self.bench.now_ms):
            asyncio.run(self.sender.send(each))
        self.sender.settle(self.bench.now_ms)

    def notices(self, endpoint: str) -> Sequence[Any]:
        sql = "SELECT fact, state, tries FROM notice WHERE endpoint = ? ORDER BY fact"
        return [tuple(row) for row in self.bench.look(sql, endpoint)]

    def set(self, endpoint: str, **changes: Any) -> None:
        endpoints.set_endpoint(self.bench.deployment, PROJECT, endpoint, changes, self.bench.now_ms)

    def replay(self, endpoint: str, **since: int) -> int:
        wanted = {"after": 0, "since_ms": 0, "now_ms": self.bench.now_ms} | since
        return log.replay_facts(self.bench.deployment, PROJECT, endpoint, **wanted).replayed


@probe()
def each_endpoint_gets_the_facts_that_it_chose_of_its_own_project_and_gets_them_once(bench: Bench) -> None:
    found = Notified(bench)
    first, second = found.add("first", "submitted"), found.add("second", "failed")
    job = bench.submit()
    for seed in range(8, 10):
        bench.submit("other", seed=seed)
    found.number()
    assert found.notices(first) == [(1, "waiting", 0)] and found.notices(second) == []
    bench.wait(1)
    bench.submit(seed=1)
    found.number()
    assert [fact for fact, _, _ in found.notices(first)] == [1, 2]
    node = bench.join()
    hold = bench.take(node, job)
    bench.fail(node, hold)
    found.number()
    assert found.notices(second) == [], "a failed attempt that is tried again is no failed job"
    assert len(found.notices(first)) == 2


@probe()
def a_disabled_endpoint_gets_nothing_and_one_that_is_enabled_only_what_happens_from_then_on(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    found.set(endpoint, state="disabled")
    bench.submit(seed=1)
    found.number()
    assert found.notices(endpoint) == []
    bench.submit(seed=2)
    bench.wait(1)
    found.set(endpoint, state="active")
    bench.submit(seed=3)
    found.number()
    assert [fact for fact, _, _ in found.notices(endpoint)] == [3]


@probe()
def an_endpoint_that_works_is_not_enabled_again_and_one_that_is_disabled_keeps_its_reason(bench: Bench) -> None:
    found = Notified(bench, "gone")
    endpoint, working = found.add("a"), found.add("b", "failed")
    bench.submit(seed=1)
    found.number()
    found.send()
    found.set(endpoint, state="disabled")
    assert "receiver wants no more" in bench.look("SELECT because FROM endpoint WHERE id = ?", endpoint)[0]
    bench.wait(5)
    found.set(working, state="active")
    assert bench.look("SELECT active_ms FROM endpoint WHERE id = ?", working) == [bench.now_ms - 5000]


@probe()
def what_is_dropped_was_waiting(bench: Bench) -> None:
    found = Notified(bench, "delivered", "again")
    endpoint, other = found.add("a"), found.add("b")
    for seed in range(2):
        bench.submit(seed=seed)
        found.number()
        found.send()
    states = {state for _, state, _ in found.notices(endpoint)}
    found.set(endpoint, state="disabled")
    assert states == {"delivered", "waiting"}
    assert {state for _, state, _ in found.notices(endpoint)} == {"delivered", "dropped"}
    assert "dropped" not in {state for _, state, _ in found.notices(other)}


@probe()
def a_try_that_another_server_has_recorded_is_not_recorded_again(bench: Bench) -> None:
    found = Notified(bench, "again", "delivered")
    endpoint = found.add("a")
    bench.submit()
    found.number()
    others = NoticeSender(bench.deployment, Random(0))
    (here,), (there,) = found.sender.turn(bench.now_ms), others.turn(bench.now_ms)
    asyncio.run(found.sender.send(here))
    asyncio.run(others.send(there))
    found.sender.settle(bench.now_ms)
    others.settle(bench.now_ms)
    assert found.notices(endpoint) == [(1, "waiting", 1)]


@probe()
def what_was_delivered_stays_so_whatever_another_try_comes_to(bench: Bench) -> None:
    found = Notified(bench, "delivered", "refused")
    endpoint = found.add("a")
    bench.submit()
    found.number()
    (here,) = found.sender.turn(bench.now_ms)
    asyncio.run(found.sender.send(here))
    found.sender.settle(bench.now_ms)
    bench.store.change("notice_tried", endpoint=endpoint, **tried("failed", fact=1, tries=1))
    assert found.notices(endpoint) == [(1, "delivered", 1)]


@probe()
def a_try_is_recorded_for_the_notices_of_its_message_alone(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a"), found.add("b")
    for seed in range(5):
        bench.submit(seed=seed)
        found.number()
        bench.wait(1)
    due_ms = dict(enumerate(bench.look("SELECT due_ms FROM notice WHERE endpoint = ? ORDER BY fact", endpoint), 1))
    message = tried("delivered") | {"first": 2, "last": 4, "due_from": due_ms[2], "due_until": due_ms[4]}

    def recorded(third_ms: int = due_ms[3], third_tries: int = 0, **wanted: int) -> list[int]:
        """The facts of which the try is recorded; the third one is due at `third_ms`, after `third_tries`."""
        for fact, at_ms in (due_ms | {3: third_ms}).items():
            tries = third_tries if fact == 3 else 0
            bench.look("UPDATE notice SET state = 'waiting', tries = ?, due_ms = ? WHERE fact = ?", tries, at_ms, fact)
        bench.store.change("notice_tried", endpoint=endpoint, **(message | wanted))
        return [fact for fact, state, _ in found.notices(endpoint) if state == "delivered"]

    assert recorded() == [2, 3, 4] == recorded(due_from=0) == recorded(due_until=10**15)
    assert recorded(first=3) == [3, 4] and recorded(last=3) == [2, 3]
    assert recorded(third_ms=due_ms[1]) == [2, 4] == recorded(third_tries=1), "it failed as part of another message"
    assert recorded(third_ms=due_ms[5]) == [2, 4], "it was replayed meanwhile"
    assert {state for _, state, _ in found.notices(other)} == {"waiting"}


@probe()
def an_endpoint_is_held_for_the_longest_wait_unless_its_owner_has_just_changed_it(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a"), found.add("b")

    def held(until_ms: int, version: int = 1) -> int:
        bench.store.change("hold_endpoint", id=endpoint, version=version, hold_until_ms=until_ms)
        return bench.look("SELECT hold_until_ms FROM endpoint WHERE id = ?", endpoint)[0]

    assert (held(5), held(9), held(7)) == (5, 9, 9)
    found.set(endpoint, quiet="")
    assert (held(9), held(9, version=2)) == (0, 9)
    assert bench.look("SELECT hold_until_ms FROM endpoint WHERE id = ?", other) == [0]


@probe()
def an_endpoint_for_which_nothing_waits_does_not_fail(bench: Bench) -> None:
    found = Notified(bench, "again")
    endpoint, other = found.add("a"), found.add("b")
    bench.submit()
    found.number()
    found.send()

    def failing() -> list[bool]:
        return [since is not None for since in bench.look("SELECT failing_since_ms FROM endpoint ORDER BY name")]

    assert failing() == [True, True], "its message waits for the next try"
    bench.store.change("notice_tried", endpoint=endpoint, **tried("failed", fact=1, tries=1))
    bench.store.change("endpoint_idle", id=endpoint)
    assert failing() == [False, True]
    bench.store.change("endpoint_idle", id=other)
    assert failing() == [False, True]


@probe()
def of_too_many_that_wait_the_oldest_are_dropped_for_each_endpoint_by_itself(bench: Bench) -> None:
    found = Notified(bench)
    bench.deployment = replace(bench.deployment, notices=replace(bench.deployment.notices, backlog_max=2))
    first = found.add("first")
    for seed in range(2):
        bench.submit(seed=seed)
    found.number()
    found.send()
    second = found.add("second")
    bench.wait(1)
    for seed in range(2, 7):
        bench.submit(seed=seed)
    found.number()
    bench.store.change("hold_endpoint", id=first, version=1, hold_until_ms=bench.now_ms + 10**9)
    delivered = sum(state == "delivered" for _, state, _ in found.notices(first))
    log.bound_backlogs(bench.deployment, bench.now_ms)
    for endpoint in (first, second):
        states = [state for _, state, _ in found.notices(endpoint)]
        assert states[-3:] == ["dropped", "waiting", "waiting"]
        assert states.count("waiting") == 2
    assert sum(state == "delivered" for _, state, _ in found.notices(first)) == delivered > 0


@probe()
def of_too_many_that_wait_the_newest_stay_though_a_newer_one_was_delivered(bench: Bench) -> None:
    found = Notified(bench)
    bench.deployment = replace(bench.deployment, notices=replace(bench.deployment.notices, backlog_max=2))
    endpoint = found.add("a")
    for seed in range(4):
        bench.submit(seed=seed)
    found.number()
    bench.store.change("notice_tried", endpoint=endpoint, **tried("delivered", fact=4))
    log.bound_backlogs(bench.deployment, bench.now_ms)
    assert [state for _, state, _ in found.notices(endpoint)] == ["dropped", "waiting", "waiting", "delivered"]


@probe()
def a_replay_sends_what_the_endpoint_receives_once_more_and_nothing_else(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a", "submitted", "failed"), found.add("b", "canceled")
    job = bench.submit()
    bench.wait(1)
    steer.cancel(bench.deployment, bench.submit(seed=1), bench.now_ms)
    node = bench.join()
    bench.fail(node, bench.take(node, job))
    found.number()
    found.send()
    assert found.replay(endpoint, after=1) == 1 and found.replay(endpoint, since_ms=bench.now_ms) == 1
    assert found.replay(endpoint) == 2
    assert found.replay(other) == 1
    assert {tries for _, _, tries in found.notices(endpoint)} == {0}
    found.set(endpoint, state="disabled")
    row = bench.store.load("endpoint", project=PROJECT, which=endpoint)[0]
    assert refused(BadInput, lambda: found.replay(endpoint))
    wanted = {"endpoint": row["id"], "after": 0, "since_ms": 0, "now": bench.now_ms, "most": 10}
    assert bench.store.change("replay_facts", **wanted) == [], "it may be disabled in this moment"


@probe()
def a_message_that_the_log_no_longer_has_is_not_replayed(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    message = f"msg_{endpoint}_1"
    assert refused(NotFound, lambda: log.replay_message(bench.deployment, PROJECT, endpoint, message, bench.now_ms))


@probe()
def the_log_forgets_what_ended_long_ago_and_nothing_that_waits(bench: Bench) -> None:
    found = Notified(bench, "delivered", "again")
    endpoint = found.add("a")
    for seed in range(2):
        bench.submit(seed=seed)
        found.number()
        found.send()
    bench.wait(31 * 86_400)
    bench.submit(seed=3)
    found.number()
    log.shorten_logs(bench.deployment, bench.now_ms)
    assert {state for _, state, _ in found.notices(endpoint)} == {"waiting"}
    assert len(found.notices(endpoint)) == 2


@probe()
def what_ended_a_while_ago_is_in_the_log(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    bench.submit()
    found.number()
    found.send()
    bench.wait(86_400)
    log.shorten_logs(bench.deployment, bench.now_ms)
    assert found.notices(endpoint) == [(1, "delivered", 1)]


@probe()
def of_an_event_that_is_gone_nothing_waits_and_the_log_keeps_the_rest(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a"), found.add("b", project="other")
    for seed in range(3):
        bench.submit("other", seed=seed)
    for seed in range(3, 5):
        bench.submit(seed=seed)
        found.number()
    bench.store.change("notice_tried", endpoint=endpoint, **tried("delivered", fact=1, now=bench.now_ms))
    job = bench.submit(seed=5)
    found.number()
    bench.look("DELETE FROM event WHERE project = ? AND fact IN (1, 3)", PROJECT)
    log.shorten_logs(bench.deployment, bench.now_ms)
    assert [(fact, state) for fact, state, _ in found.notices(endpoint)] == [(1, "delivered"), (2, "waiting")], job
    assert len(found.notices(other)) == 3


@probe()
def a_deleted_job_takes_its_own_notices_with_it(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    job = bench.submit()
    bench.wait(1)
    bench.submit(seed=1)
    steer.cancel(bench.deployment, job, bench.now_ms)
    found.number()
    removal.remove(bench.deployment, job, bench.now_ms)
    assert len(found.notices(endpoint)) == 1


@probe()
def two_endpoints_of_a_project_have_two_names_also_if_they_are_added_at_once(bench: Bench) -> None:
    found = Notified(bench)
    bench.meanwhile("add_endpoint", lambda: found.add("same"))
    assert refused(BadInput, lambda: found.add("same"))
    assert bench.look("SELECT COUNT(*) FROM endpoint") == [1]
    assert bench.look("SELECT COUNT(DISTINCT endpoint) FROM endpoint_event") == [1]


@probe()
def who_changes_an_endpoint_that_somebody_else_has_just_changed_tries_again(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    bench.meanwhile("change_endpoint", lambda: found.set(endpoint, kinds=("failed",)))
    assert refused(Unreachable, lambda: found.set(endpoint, name="b", kinds=("submitted",)))
    assert bench.look("SELECT notice FROM endpoint_event WHERE endpoint = ? GROUP BY notice", endpoint) == ["failed"]


@probe()
def a_name_that_another_endpoint_takes_in_the_same_moment_is_given_once(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a"), found.add("b")
    bench.meanwhile("change_endpoint", lambda: found.set(other, name="c"))
    assert refused(Unreachable, lambda: found.set(endpoint, name="c"))
    assert bench.look("SELECT name FROM endpoint ORDER BY name") == ["a", "c"]


@probe()
def an_endpoint_keeps_a_name_that_another_project_has_too(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    found.add("a", project="other")
    found.add("b")
    found.set(endpoint, quiet="22:00-07:00 UTC")
    assert bench.look("SELECT quiet FROM endpoint WHERE id = ?", endpoint) == ["22:00-07:00 UTC"]


@probe()
def a_request_that_two_servers_answer_adds_one_endpoint_and_makes_one_secret(bench: Bench) -> None:
    found = Notified(bench)
    request = KeyedRequest(project=PROJECT, endpoint="POST endpoints", key="k", fingerprint="f")
    rotation = replace(request, endpoint="POST rotate")
    wish = endpoints.EndpointWish(channel="webhook", address=URL)

    def add() -> Any:
        return endpoints.make_endpoint(bench.deployment, PROJECT, wish, "key", bench.now_ms, request)

    def rotate() -> Any:
        return endpoints.renew_secret(bench.deployment, PROJECT, "webhook", 60, bench.now_ms, rotation)

    bench.meanwhile("add_request", add)
    assert refused(InProgress, add)
    assert bench.look("SELECT name FROM endpoint") == ["webhook"]
    bench.meanwhile("add_request", rotate)
    assert refused(InProgress, rotate)
    assert bench.look("SELECT secret FROM endpoint") == [2]
    assert found.answers.heard == []


@probe()
def a_secret_that_two_rotate_at_once_is_rotated_once(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")

    def rotate() -> Any:
        return endpoints.renew_secret(bench.deployment, PROJECT, endpoint, 60, bench.now_ms)

    bench.meanwhile("rotate_secret", rotate)
    assert refused(Unreachable, rotate)
    assert bench.look("SELECT secret FROM endpoint") == [2]


@probe()
def an_address_is_encrypted_again_only_if_it_is_still_the_same(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a")
    bench.store.change("reseal_endpoint", id=endpoint, sealed="another", before="what it was long ago")
    assert bench.look("SELECT sealed FROM endpoint") != ["another"]
