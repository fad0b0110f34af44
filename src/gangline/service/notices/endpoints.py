"""Add, change and remove endpoints. Their addresses are encrypted in the database; their signing secrets are in none.

A secret is derived from a key of the deployment, the endpoint and a number that rises when it is rotated. The endpoint remembers which key
that was: after the operator has changed the deployment's keys, secrets stay the same while the old key is still listed.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.notices.kinds import NOTICES, NoticeKind, events_of
from gangline.core.notices.pacing import INTERVAL_S, parse_quiet_hours
from gangline.core.notices.signing import secret_text
from gangline.core.notices.views import EndpointState, EndpointView, NewEndpoint, NoticeChannel
from gangline.ports.access.sealer import Sealer
from gangline.ports.store import Row, Write, guard, write
from gangline.service.access.requests import KeyedRequest, made_before, recording, refuse_answered
from gangline.service.deployment import Deployment
from gangline.service.notices.channels import NoticeTarget, channel_rules

log = logging.getLogger("gangline.notices")

OLD_SECRET_S = 24 * 3600.0
"""How long messages are signed with the previous secret, too, after a rotation, unless its owner says otherwise."""
UNREADABLE = "this server lacks the key with which its address was encrypted: remove it, and add it again"
UNSIGNED = "this server lacks the key from which its secret follows: rotate its secret"
OLD_KEY = "its secret follows from an older key of this server: rotate its secret before that key is removed"
OLD_KEY_HINT = "Keep that key in GANGLINE_SECRETS_KEY until their owners have rotated them (`gangline notify rotate`)."
NAMED_MAX = 20
"""The most endpoints that a warning names."""
DISABLED = "its owner disabled it"
LIST_HINT = "`gangline notify ls` lists them"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointWish:
    """An endpoint to add. Without `kinds` it receives those that its channel has by default; without `name` it has its channel's, and a
    number if that is taken."""

    channel: NoticeChannel
    address: str
    name: str = ""
    kinds: tuple[NoticeKind, ...] = ()
    interval_s: float | None = None
    quiet: str = ""


def make_endpoint(
    deployment: Deployment,
    project: str,
    wish: EndpointWish,
    made_by: str,
    now_ms: int,
    request: KeyedRequest | None = None,
) -> NewEndpoint:
    """Add an endpoint: it receives what happens from now on. A repeated request adds nothing. Raise `BadInput`."""
    before = made_before(deployment, request)
    if before and wish.channel == "webhook":
        raise _shown_before(f"added the endpoint {before}", f"rotate its secret (`gangline notify rotate {before}`)")
    if before:
        return _with_secret(deployment, find_endpoint(deployment, project, before), now_ms)
    rules, sealer = channel_rules(wish.channel), sealer_of(deployment)
    shown = rules.check(wish.address)
    most = deployment.notices.endpoints_max
    if wish.channel == "mail":
        _check_mail(deployment, wish.address)
    default_s = max(INTERVAL_S if rules.people else 0.0, interval_min_s(deployment, wish.channel))
    interval_s = default_s if wish.interval_s is None else wish.interval_s
    _check_interval(deployment, wish.channel, interval_s)
    taken = {row["name"] for row in deployment.store.load("endpoints", project=project)}
    if len(taken) >= most:
        raise BadInput(f"a project has at most {most} endpoints", hint="remove one: gangline notify rm NAME")
    id = deployment.new_id("ep")
    row = {
        "id": id,
        "project": project,
        "channel": wish.channel,
        "name": wish.name or _free_name(wish.channel, taken),
        "shown": shown,
        "sealed": sealer.seal(project, id, wish.address),
        "interval_ms": round(1000 * interval_s),
        "quiet": _quiet(wish.quiet),
        "secret_key": sealer.current,
        "now": now_ms,
        "made_by": made_by,
    }
    added = deployment.store.apply(
        *recording(request, id, now_ms),
        write("add_project", id=project),
        guard("add_endpoint", **row),
        *_choosing(id, wish.kinds or rules.defaults),
    )
    if not added:
        refuse_answered(deployment, request)
        raise _taken(row["name"])
    return _with_secret(deployment, find_endpoint(deployment, project, id), now_ms)


def endpoint_views(deployment: Deployment, project: str, now_ms: int) -> list[EndpointView]:
    return [_view(deployment, row, now_ms) for row in deployment.store.load("endpoints", project=project)]


def endpoint_view(deployment: Deployment, project: str, which: str, now_ms: int) -> EndpointView:
    return _view(deployment, find_endpoint(deployment, project, which), now_ms)


def find_endpoint(deployment: Deployment, project: str, which: str) -> Row:
    """Return the row of an endpoint, given its id or its name. Raise `NotFound`."""
    found = deployment.store.load("endpoint", project=project, which=which)
    if not found:
        raise NotFound(f"there is no endpoint {which}", hint=LIST_HINT)
    return min(found, key=lambda row: row["id"] != which)


def set_endpoint(
    deployment: Deployment, project: str, which: str, changes: dict[str, Any], now_ms: int
) -> EndpointView:
    """Change some of `name`, `kinds`, `interval_s`, `quiet` and `state`. One that is enabled receives what happens from then on; one
    that is disabled drops what waits. Raise `BadInput`, `NotFound`."""
    row = find_endpoint(deployment, project, which)
    id, name = row["id"], changes.get("name", row["name"])
    if any(
        other["name"] == name and other["id"] != id for other in deployment.store.load("endpoints", project=project)
    ):
        raise _taken(name)
    if "interval_s" in changes:
        _check_interval(deployment, row["channel"], changes["interval_s"])
    interval_ms = round(changes["interval_s"] * 1000) if "interval_s" in changes else row["interval_ms"]
    quiet = _quiet(changes.get("quiet", row["quiet"]))
    changed = {"name": name, "interval_ms": interval_ms, "quiet": quiet}
    writes = [guard("change_endpoint", id=id, project=project, version=row["version"], **changed)]
    if "kinds" in changes:
        writes += [write("forget_choices", endpoint=id), *_choosing(id, changes["kinds"])]
    if changes.get("state") == "active":
        writes.append(write("enable_endpoint", id=id, now=now_ms))
    if changes.get("state") == "disabled":
        writes += disabling(id, DISABLED, now_ms)
    if not deployment.store.apply(*writes):
        raise Unreachable(f"{name} is being changed by somebody else", hint="try again")
    return endpoint_view(deployment, project, id, now_ms)


def disabling(endpoint: str, because: str, now_ms: int) -> list[Write]:
    """Return the writes that disable an endpoint and drop what waits for it. The log keeps that, and it can be replayed."""
    dropped = f"the endpoint is disabled: {because}"
    return [
        write("disable_endpoint", id=endpoint, because=because),
        write("drop_waiting", endpoint=endpoint, because=dropped, now=now_ms),
    ]


def drop_endpoint(deployment: Deployment, project: str, which: str) -> None:
    """Delete an endpoint with its log. Repeating this changes nothing."""
    try:
        id = find_endpoint(deployment, project, which)["id"]
    except NotFound:
        return
    deployment.store.apply(
        write("forget_choices", endpoint=id),
        write("remove_notices_of_endpoint", endpoint=id),
        write("remove_endpoint", id=id),
    )


def renew_secret(
    deployment: Deployment, project: str, which: str, old_s: float, now_ms: int, request: KeyedRequest | None = None
) -> NewEndpoint:
    """Make a new signing secret, under the deployment's current key. For `old_s` seconds messages are signed with the old one, too. A
    repeated request makes none."""
    if made_before(deployment, request):
        raise _shown_before("made a secret", "rotate it once more")
    row = find_endpoint(deployment, project, which)
    if row["channel"] != "webhook":
        raise BadInput(f"{row['name']} has no signing secret: only webhooks are signed")
    until = {"old_until_ms": now_ms + round(old_s * 1000), "secret_key": sealer_of(deployment).current}
    made = f"{row['id']} {row['secret'] + 1}"
    rotating = guard("rotate_secret", id=row["id"], secret=row["secret"], **until)
    if not deployment.store.apply(*recording(request, made, now_ms), rotating):
        refuse_answered(deployment, request)
        raise Unreachable(f"the secret of {row['name']} is being rotated by somebody else", hint="try again")
    return _with_secret(deployment, find_endpoint(deployment, project, row["id"]), now_ms)


def open_target(deployment: Deployment, row: Row, now_ms: int) -> NoticeTarget:
    """Return an endpoint with what it takes to send to it. Raise `BadInput` if this server lacks a key."""
    sealer = sealer_of(deployment)
    address = sealer.open(row["project"], row["id"], row["sealed"])
    if address is None:
        raise BadInput(UNREADABLE)
    keys = _keys(sealer, row, now_ms) if row["channel"] == "webhook" else ()
    return NoticeTarget(
        id=row["id"],
        project=row["project"],
        name=row["name"],
        channel=row["channel"],
        address=address,
        keys=keys,
    )


def reseal_endpoints(deployment: Deployment) -> None:
    """Encrypt again, under the newest key, what can be decrypted with an older one. Signing secrets stay as they are, so the log says which
    webhooks have one of an older key: without that key they would get nothing."""
    sealer = sealer_of(deployment)
    rows = deployment.store.load("endpoints", project=None)
    old = [f"{row['project']}/{row['name']}" for row in rows if _has_old_key(sealer, row)]
    if old:
        named = ", ".join(old[:NAMED_MAX]) + f" and {len(old) - NAMED_MAX} more" * (len(old) > NAMED_MAX)
        log.warning("the signing secrets of these webhooks follow from an older key: %s. %s", named, OLD_KEY_HINT)
    for row in rows:
        address = None if sealer.is_current(row["sealed"]) else sealer.open(row["project"], row["id"], row["sealed"])
        if address is not None:
            sealed = sealer.seal(row["project"], row["id"], address)
            deployment.store.apply(write("reseal_endpoint", id=row["id"], sealed=sealed, before=row["sealed"]))


def sealer_of(deployment: Deployment) -> Sealer:
    if deployment.sealer is None:
        raise BadInput("this server has no endpoints", hint="it was started without a key for their addresses")
    return deployment.sealer


def _keys(sealer: Sealer, row: Row, now_ms: int) -> tuple[bytes, ...]:
    """Return the keys that sign, the current one first. Raise `BadInput` if this server cannot derive that."""
    current = _derive(sealer, row["secret_key"], row["id"], row["secret"])
    if current is None:
        raise BadInput(UNSIGNED)
    old = None
    if row["old_secret"] and now_ms < row["old_until_ms"]:
        old = _derive(sealer, row["old_secret_key"], row["id"], row["old_secret"])
    return (current,) if old is None else (current, old)


def _has_old_key(sealer: Sealer, row: Row) -> bool:
    return row["channel"] == "webhook" and row["secret_key"] != sealer.current


def _derive(sealer: Sealer, key: str, endpoint: str, version: int) -> bytes | None:
    return sealer.derive(key, "webhook", endpoint, str(version))


def _with_secret(deployment: Deployment, row: Row, now_ms: int) -> NewEndpoint:
    keys = open_target(deployment, row, now_ms).keys
    return NewEndpoint(endpoint=_view(deployment, row, now_ms), secret=secret_text(keys[0]) if keys else "")


def _choosing(endpoint: str, kinds: Iterable[NoticeKind]) -> list[Write]:
    return [
        write("choose_event", endpoint=endpoint, notice=notice, kind=kind, state=state)
        for notice in dict.fromkeys(kinds)
        for kind, state in events_of([notice])
    ]


def _shown_before(what: str, instead: str) -> BadInput:
    return BadInput(
        f"this request has {what} already, and the secret was in that answer alone",
        hint=f"if the answer was lost, {instead}, with another Idempotency-Key",
    )


def _check_mail(deployment: Deployment, address: str) -> None:
    """Raise `BadInput` if this server sends no mail to an address."""
    if deployment.mailer is None:
        raise BadInput(
            "this server sends no mail", hint="ask the operator to name a mail server: [mail] of its settings"
        )
    why = deployment.mailer.why_refused(address)
    if why:
        raise BadInput(why, hint="give an address of such a domain, or ask the operator (`domains` in [mail])")


def interval_min_s(deployment: Deployment, channel: str) -> float:
    """Return in how many seconds an endpoint of a channel gets one message at most, whatever its owner asks for."""
    return deployment.mailer.interval_min_s if channel == "mail" and deployment.mailer else 0.0


def _check_interval(deployment: Deployment, channel: str, interval_s: float) -> None:
    least_s = interval_min_s(deployment, channel)
    if interval_s < least_s:
        raise BadInput(
            f"this server sends an endpoint at most one mail in {least_s:g} s", hint="choose a longer interval"
        )


def _quiet(text: str) -> str:
    """Return quiet hours as they are stored. Raise `BadInput`."""
    return str(parse_quiet_hours(text) or "")


def _free_name(channel: str, taken: set[str]) -> str:
    names = chain([channel], (f"{channel}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _taken(name: str) -> BadInput:
    return BadInput(f"this project has an endpoint {name} already", hint="choose another name")


def _view(deployment: Deployment, row: Row, now_ms: int) -> EndpointView:
    chosen = {each["notice"] for each in deployment.store.load("choices", endpoint=row["id"])}
    state: EndpointState = row["state"]
    return EndpointView(
        id=row["id"],
        name=row["name"],
        channel=row["channel"],
        to=row["shown"],
        kinds=tuple(kind for kind in NOTICES if kind in chosen),
        state=state,
        because=row["because"] or _lacks(deployment, row, now_ms),
        interval_s=row["interval_ms"] / 1000,
        quiet=row["quiet"],
        waiting=row["waiting"],
        failing_since_ms=row["failing_since_ms"],
        delivered_ms=row["delivered_ms"],
        old_until_ms=row["old_until_ms"] if row["old_secret"] and now_ms < row["old_until_ms"] else None,
        made_ms=row["made_ms"],
        made_by=row["made_by"],
    )


def _lacks(deployment: Deployment, row: Row, now_ms: int) -> str:
    try:
        open_target(deployment, row, now_ms)
    except BadInput as error:
        return error.message
    return OLD_KEY if _has_old_key(sealer_of(deployment), row) else ""
