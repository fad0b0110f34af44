"""Send what waits for endpoints: load what is due, decide what may start, send it at the same time, and record what came of it.

What is being sent is known in memory alone. A server that is killed leaves it waiting, and the next one sends it again: a notice arrives
once or more often, always with the same id.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from gangline.core.display import as_words
from gangline.core.errors import BadInput, Unreachable
from gangline.core.notices.kinds import notice_kind
from gangline.core.notices.pacing import Pacing, go_ms, parse_quiet_hours
from gangline.core.notices.retry import (
    NoticeOutcome,
    TriedNotice,
    after_try,
    asked_ms,
    endpoint_after_try,
    message_key,
    people_hold_ms,
)
from gangline.core.notices.sharing import ENDPOINT_IN_FLIGHT_MAX, limit_after, may_start
from gangline.ports.notices.notices import NoticeAnswer
from gangline.ports.store import Row, Write, write
from gangline.service.deployment import Deployment
from gangline.service.notices.channels import (
    NoticeEvent,
    NoticeMail,
    NoticeSent,
    NoticeTarget,
    channel_rules,
    render_notice,
)
from gangline.service.notices.endpoints import disabling, open_target
from gangline.service.notices.messages import send_after_ms
from gangline.service.outage import has_turn

log = logging.getLogger("gangline.notices")

WRITES_MAX = 200
"""The most tries that one transaction records."""
WEIGHT: dict[NoticeOutcome, int] = {"gone": 3, "delivered": 2, "again": 1}
"""Of several answers of an endpoint that are recorded together, the one of most weight counts for it: one success says that it works."""
PICTURES_MS = 5_000
"""The time between two checks whether the pictures of a result are there."""
HOLD_MS = 60_000
"""How long an endpoint waits whose address or secret cannot be read."""
UNMADE = NoticeAnswer(
    outcome="again", because="the message could not be made, and the log of this server says why", ours=True
)
"""What is recorded of a message that could not be rendered. Others of its endpoint do not wait for it."""
RENDERERS = 4
RENDER_S = 30.0
"""Threads that render messages for people, and the time limit of each message: a slow object store delays no webhook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A message that is being sent. Its notices were tried `tries` times before, and were due from `due_from` until `due_until`."""

    target: NoticeTarget
    events: tuple[NoticeEvent, ...]
    tries: int
    due_from: int
    due_until: int
    people: bool
    began_ms: int

    @property
    def endpoint(self) -> str:
        return self.target.id

    @property
    def facts(self) -> set[int]:
        return {event.fact for event in self.events}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """What came of a message, and what becomes of its notices."""

    sending: Sending
    answer: NoticeAnswer
    tried: TriedNotice


class NoticeSender:
    """`turn` is called by one thread at a time, `send` in an event loop. What a sender remembers only saves work: how many requests an
    endpoint may have, and what is on its way."""

    def __init__(self, deployment: Deployment, rng: Random) -> None:
        self._deployment = deployment
        self._rng = rng
        self._renderers = ThreadPoolExecutor(RENDERERS, thread_name_prefix="notices-rendering")
        self._limits: dict[str, int] = {}
        self._on_the_way: dict[str, set[int]] = {}
        self._messages = Counter[str]()
        self._ended: deque[tuple[Sending, NoticeAnswer]] = deque()
        self._last = ""

    def turn(self, now_ms: int) -> list[Sending]:
        """Record what has ended, and return what is to be sent now; nothing unless it is this server's turn."""
        self.settle(now_ms)
        starting: list[Sending] = []
        if has_turn(self._deployment, now_ms):
            try:
                for each in self._starting(now_ms):  # what is counted as on its way is sent, whatever comes after it
                    starting.append(each)
            except Exception:
                if not starting:
                    raise
                log.warning("some notices are sent later", exc_info=True)
        return starting

    async def send(self, sending: Sending) -> None:
        self._ended.append((sending, await self._send(sending)))

    async def _send(self, sending: Sending) -> NoticeAnswer:
        try:
            outgoing = await self._rendered(sending)
        except Exception:
            log.exception("no message can be made for the endpoint %s; it will be tried again", sending.endpoint)
            return UNMADE
        return await send_notice(self._deployment, outgoing)

    async def _rendered(self, sending: Sending) -> NoticeSent:
        """Render a message. One for people takes several rows, and perhaps a picture."""
        wanted = (self._deployment, sending.target, sending.events, sending.began_ms)
        if not sending.people:
            return render_notice(*wanted)
        async with asyncio.timeout(RENDER_S):
            return await asyncio.get_running_loop().run_in_executor(self._renderers, render_notice, *wanted)

    def settle(self, now_ms: int) -> None:
        """Record what came of the tries that have ended. If the store does not answer, it is recorded at the next turn."""
        while self._ended:
            ended = [self._ended.popleft() for _ in range(min(WRITES_MAX, len(self._ended)))]
            try:
                self._deployment.store.apply(*self._recording(ended, now_ms))
            except BaseException:
                self._ended.extendleft(reversed(ended))
                raise
            for sending, answer in ended:
                self._messages[sending.endpoint] -= 1
                self._on_the_way[sending.endpoint] -= sending.facts
                if answer.outcome != "untried":
                    limit = self._limits.get(sending.endpoint, 1)
                    self._limits[sending.endpoint] = limit_after(limit, delivered=answer.outcome == "delivered")

    def _recording(self, ended: Sequence[tuple[Sending, NoticeAnswer]], now_ms: int) -> Iterator[Write]:
        """Yield writes in the order of endpoints and their facts, which every transaction uses."""
        of_endpoint = dict[str, list[_Ended]]()
        for sending, answer in sorted(ended, key=lambda each: (each[0].endpoint, each[0].events[0].fact)):
            tried = after_try(
                answer.outcome,
                as_words(answer.because),
                tries=sending.tries + 1,
                retry_after_s=answer.retry_after_s,
                now_ms=now_ms,
                rng=self._rng,
            )
            found = _Ended(sending=sending, answer=answer, tried=tried)
            of_endpoint.setdefault(sending.endpoint, []).append(found)
            yield _recording_notices(found, now_ms)
        for endpoint, found in of_endpoint.items():
            yield from self._recording_endpoint(endpoint, found, now_ms)

    def _recording_endpoint(self, endpoint: str, ended: Sequence[_Ended], now_ms: int) -> Iterator[Write]:
        found = self._deployment.store.load("failing_endpoint", id=endpoint)
        if not found:
            return  # it was disabled or removed meanwhile
        since_ms = found[0]["failing_since_ms"]
        theirs = [each for each in ended if not each.answer.ours and each.answer.outcome != "untried"]
        if theirs:
            heaviest = max(theirs, key=lambda each: WEIGHT.get(each.answer.outcome, 0))
            tried = endpoint_after_try(
                heaviest.answer.outcome,
                as_words(heaviest.answer.because),
                was_last=any(each.answer.outcome == "again" and each.tried.state == "failed" for each in theirs),
                failing_since_ms=since_ms,
                now_ms=now_ms,
            )
            since_ms = tried.failing_since_ms
            if heaviest.answer.outcome == "delivered":
                yield write("endpoint_delivered", id=endpoint, now=now_ms)
            else:
                yield write("endpoint_failed", id=endpoint, failing_since_ms=since_ms)
            if tried.disabled:
                log.warning("the endpoint %s is disabled: %s", endpoint, tried.disabled)
                yield from disabling(endpoint, tried.disabled, now_ms)
                return
        if since_ms is not None:
            yield write("endpoint_idle", id=endpoint)
        hold_ms = max(_hold_ms(each, since_ms, now_ms) for each in ended)
        if hold_ms:
            yield _holding(endpoint, found[0]["version"], now_ms + hold_ms)

    def _starting(self, now_ms: int) -> Iterator[Sending]:
        """Yield one message of each endpoint in turn, as long as one may start. The endpoint after the last one of before is the first."""
        due = self._deployment.store.load("due_endpoints", now=now_ms)
        ordered = [row for row in due if row["id"] > self._last] + [row for row in due if row["id"] <= self._last]
        waiting = {row["id"]: self._messages_of(row, now_ms) for row in ordered if self._may_start(row["id"])}
        while waiting:
            for endpoint in list(waiting):
                sending = next(waiting[endpoint], None) if self._may_start(endpoint) else None
                if sending is None:
                    del waiting[endpoint]
                    continue
                self._last = endpoint
                self._messages[endpoint] += 1
                self._on_the_way.setdefault(endpoint, set()).update(sending.facts)
                yield sending

    def _may_start(self, endpoint: str) -> bool:
        return may_start(
            in_flight=self._messages[endpoint],
            limit=self._limits.get(endpoint, 1),
            free=self._deployment.notices.at_once_max - self._messages.total(),
        )

    def _messages_of(self, row: Row, now_ms: int) -> Iterator[Sending]:
        """Yield the messages that are due for an endpoint. Where none can be made, it waits, and its view says why."""
        try:
            rules, target = channel_rules(row["channel"]), open_target(self._deployment, row, now_ms)
            if rules.people:
                yield from self._for_people(row, target, now_ms)
            else:
                on_the_way = self._on_the_way.get(row["id"], set())
                for due in self._due(row, len(on_the_way) + ENDPOINT_IN_FLIGHT_MAX, now_ms):
                    if due["fact"] not in on_the_way:
                        yield _sending(target, [due], now_ms, people=False)
        except BadInput:  # a key is missing here
            self._hold(row, now_ms + HOLD_MS)
        except Unreachable:
            raise  # the store: it is not this endpoint's fault
        except Exception:
            log.exception("nothing can be sent to the endpoint %s; it will be tried again", row["id"])
            self._hold(row, now_ms + HOLD_MS)

    def _for_people(self, row: Row, target: NoticeTarget, now_ms: int) -> Iterator[Sending]:
        """Yield one message about all that is due, unless it is not yet its time."""
        if self._messages[row["id"]]:
            return  # when the next one may go is known when this one has arrived
        pacing = Pacing(interval_s=row["interval_ms"] / 1000, quiet=parse_quiet_hours(row["quiet"]))
        until_ms = go_ms(pacing, last_ms=row["delivered_ms"], now_ms=now_ms)
        if until_ms <= now_ms and (due := self._due(row, self._deployment.notices.backlog_max, now_ms)):
            oldest = min(due, key=lambda each: each["fact"])
            first = message_key(oldest["tries"], oldest["due_ms"])
            sending = _sending(
                target,
                [each for each in due if message_key(each["tries"], each["due_ms"]) == first],
                now_ms,
                people=True,
            )
            until_ms = min(send_after_ms(self._deployment, sending.events, now_ms), now_ms + PICTURES_MS)
            if until_ms <= now_ms:
                yield sending
        if until_ms > now_ms:
            self._hold(row, until_ms)

    def _due(self, row: Row, most: int, now_ms: int) -> list[Row]:
        wanted = {"endpoint": row["id"], "project": row["project"], "now": now_ms, "most": most}
        return self._deployment.store.load("due_notices", **wanted)

    def _hold(self, row: Row, until_ms: int) -> None:
        self._deployment.store.apply(_holding(row["id"], row["version"], until_ms))


def _sending(target: NoticeTarget, due: Sequence[Row], now_ms: int, *, people: bool) -> Sending:
    return Sending(
        target=target,
        events=tuple(_event(each) for each in sorted(due, key=lambda each: each["fact"])),
        tries=due[0]["tries"],
        due_from=min(each["due_ms"] for each in due),
        due_until=max(each["due_ms"] for each in due),
        people=people,
        began_ms=now_ms,
    )


def _recording_notices(ended: _Ended, now_ms: int) -> Write:
    sending, tried = ended.sending, ended.tried
    return write(
        "notice_tried",
        endpoint=sending.endpoint,
        first=sending.events[0].fact,
        last=sending.events[-1].fact,
        due_from=sending.due_from,
        due_until=sending.due_until,
        tries=sending.tries,
        tried=tried.tries,
        state=tried.state,
        due_ms=tried.due_ms,
        because=tried.because,
        now=now_ms,
    )


def _hold_ms(ended: _Ended, failing_since_ms: int | None, now_ms: int) -> int:
    """Return how long nothing is sent to an endpoint after a try: as long as its receiver asks, and while people would get a message for
    each fact."""
    failed = ended.answer.outcome == "again" and ended.answer is not UNMADE
    paced_ms = (
        people_hold_ms(failing_since_ms=failing_since_ms, now_ms=now_ms) if ended.sending.people and failed else 0
    )
    return max(asked_ms(ended.answer.retry_after_s), paced_ms)


def _holding(endpoint: str, version: int, until_ms: int) -> Write:
    return write("hold_endpoint", id=endpoint, version=version, hold_until_ms=until_ms)


async def refuse_address(deployment: Deployment, address: str) -> None:
    """Raise `BadInput` if this server may not send to the host of a URL. That is checked again at each try: a name may move."""
    why = await deployment.poster.why_refused(address) if deployment.poster and "://" in address else ""
    if why:
        raise BadInput(why, hint="give a public https:// URL")


async def send_notice(deployment: Deployment, outgoing: NoticeSent) -> NoticeAnswer:
    """Send one message by the edge that carries it. It raises nothing."""
    try:
        if isinstance(outgoing, NoticeMail):
            if deployment.mailer is not None:
                return await deployment.mailer.mail(outgoing.to, outgoing.message, outgoing.id)
        elif deployment.poster is not None:
            return await deployment.poster.post(outgoing)
    except Exception:  # an edge raises nothing; if it does, only this message waits
        log.exception("a notice could not be sent; it will be tried again")
        return NoticeAnswer(
            outcome="again", because="an error occurred in this server, and its log says why", ours=True
        )
    return NoticeAnswer(outcome="again", because="this server sends no notices of this kind", ours=True)


def _event(row: Row) -> NoticeEvent:
    notice = notice_kind(row["kind"], row["state"])
    assert notice is not None, f"no notice is of the event {row['kind']}"
    columns = ("fact", "at_ms", "job", "name", "job_kind", "state", "attempt", "node", "because")
    return NoticeEvent(notice=notice, event=row["kind"], **{column: row[column] for column in columns})
