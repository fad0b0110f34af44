"""What is sent to an endpoint: each channel has one entry in `CHANNELS`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.core.command.webhook import payload
from gangline.core.errors import BadInput
from gangline.core.notices.chat import discord_request, slack_request
from gangline.core.notices.kinds import FOR_PEOPLE, FOR_WEBHOOKS, NoticeKind, webhook_type
from gangline.core.notices.message import NoticeMessage, NoticeRequest
from gangline.core.notices.ntfy import ntfy_request
from gangline.core.notices.signing import message_id, signature
from gangline.core.notices.texts import check_message
from gangline.core.notices.views import NoticeChannel
from gangline.core.places.urls import check_url
from gangline.core.server.mail import why_no_mail_address
from gangline.service.deployment import Deployment
from gangline.service.notices.messages import load_message


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeEvent:
    """A fact as an endpoint receives it: the event number `fact` of a project, of the notice's kind `notice`."""

    fact: int
    notice: NoticeKind
    at_ms: int
    job: str
    name: str
    job_kind: str
    event: str
    state: str
    attempt: str | None
    node: str | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTarget:
    """An endpoint with its decrypted address. `keys` sign its webhooks: the current one, and the one before while both are valid."""

    id: str
    project: str
    name: str
    channel: NoticeChannel
    address: str = field(repr=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeMail:
    to: str
    message: NoticeMessage
    id: str


NoticeSent = NoticeRequest | NoticeMail


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRules:
    """`check` returns what of an address may be shown, and raises `BadInput` if it is none. `make` renders one message for one event, or
    for many in their order if it is for `people`; such messages are paced. `test` renders a message that says that messages arrive.
    Endpoints have the kinds `defaults` if their owner chooses none."""

    check: Callable[[str], str]
    make: Callable[[Deployment, NoticeTarget, Sequence[NoticeEvent], int], NoticeSent]
    test: Callable[[Deployment, NoticeTarget, int], NoticeSent]
    defaults: tuple[NoticeKind, ...]
    people: bool = False


def channel_rules(channel: str) -> ChannelRules:
    """Raise `BadInput` for a channel that this server does not know, as it may be older than the one that added the endpoint."""
    if channel not in CHANNELS:
        raise BadInput(f"this server sends nothing by {channel}", hint=f"choose one of {', '.join(CHANNELS)}")
    return CHANNELS[channel]


def render_notice(
    deployment: Deployment, target: NoticeTarget, events: Sequence[NoticeEvent], now_ms: int
) -> NoticeSent:
    """Render a message about some events."""
    return _of_its_project(target, channel_rules(target.channel).make(deployment, target, events, now_ms))


def render_test_notice(deployment: Deployment, target: NoticeTarget, now_ms: int) -> NoticeSent:
    """Render a message that says that messages arrive."""
    return _of_its_project(target, channel_rules(target.channel).test(deployment, target, now_ms))


def _of_its_project(target: NoticeTarget, made: NoticeSent) -> NoticeSent:
    return replace(made, project=target.project) if isinstance(made, NoticeRequest) else made


def make_webhook(_: Deployment, target: NoticeTarget, events: Sequence[NoticeEvent], now_ms: int) -> NoticeRequest:
    """Render one event. Its bytes are the same at each try, so they have nothing of a job that may change."""
    [event] = events
    data = (
        _of_costs(target, event)
        if event.notice == "cost_threshold"
        else {
            "project": target.project,
            "fact": event.fact,
            "job": event.job,
            "name": event.name,
            "kind": event.job_kind,
            "event": event.event,
            "state": event.state,
            "attempt": event.attempt,
            "node": event.node,
            "because": event.because,
        }
    )
    return _signed(target, message_id(target.id, event.fact), webhook_type(event.notice), event.at_ms, data, now_ms)


def _of_costs(target: NoticeTarget, event: NoticeEvent) -> Mapping[str, Any]:
    """Return what a webhook says of a threshold, which is of no job."""
    known = {"fact": event.fact, "event": event.event, "costs_of": event.name, "because": event.because}
    return {"project": target.project} | known


def test_webhook(deployment: Deployment, target: NoticeTarget, now_ms: int) -> NoticeRequest:
    """Render a message of a type of its own, so that no receiver takes it for a fact."""
    data = {"project": target.project, "endpoint": target.name}
    return _signed(target, deployment.new_id("msg"), "endpoint.test", now_ms, data, now_ms)


def _signed(
    target: NoticeTarget, message: str, kind: str, at_ms: int, data: Mapping[str, Any], now_ms: int
) -> NoticeRequest:
    body = payload(kind, at_ms, data).encode()
    headers = (
        ("content-type", "application/json"),
        ("webhook-id", message),
        ("webhook-timestamp", str(now_ms // 1000)),
        ("webhook-signature", signature(target.keys, message, now_ms // 1000, body)),
    )
    return NoticeRequest(url=target.address, headers=headers, body=body)


def _check_url(address: str) -> str:
    url = check_url(address)
    return f"{url.scheme}://{url.authority}"


def _for_people(
    check: Callable[[str], str], write: Callable[[NoticeTarget, NoticeMessage, str], NoticeSent]
) -> ChannelRules:
    """Return the rules of a channel whose messages people read: several facts are one message."""

    def make(deployment: Deployment, target: NoticeTarget, events: Sequence[NoticeEvent], now_ms: int) -> NoticeSent:
        id = f"{message_id(target.id, events[0].fact)}-{events[-1].fact}"
        return write(target, load_message(deployment, target.project, events, now_ms), id)

    def test(deployment: Deployment, target: NoticeTarget, _: int) -> NoticeSent:
        return write(target, check_message(target.project, target.name), deployment.new_id("msg"))

    return ChannelRules(check=check, make=make, test=test, defaults=FOR_PEOPLE, people=True)


def _check_mail(address: str) -> str:
    why = why_no_mail_address(address)
    if why:
        raise BadInput(f"mail cannot be sent to this address: {why}", hint="give one mailbox: someone@example.org")
    return f"…@{address.rpartition('@')[2]}"


CHANNELS: dict[str, ChannelRules] = {
    "webhook": ChannelRules(check=_check_url, make=make_webhook, test=test_webhook, defaults=FOR_WEBHOOKS),
    "mail": _for_people(_check_mail, lambda to, message, id: NoticeMail(to=to.address, message=message, id=id)),
    "slack": _for_people(_check_url, lambda to, message, _: slack_request(to.address, message)),
    "discord": _for_people(_check_url, lambda to, message, _: discord_request(to.address, message)),
    "ntfy": _for_people(_check_url, lambda to, message, _: ntfy_request(to.address, message)),
}
