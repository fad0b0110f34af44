"""The log of deliveries of an endpoint: read it, replay what it has, send a test message, and keep it short."""

from dataclasses import dataclass

from gangline.core.errors import BadInput, NotFound
from gangline.core.notices.kinds import notice_kind
from gangline.core.notices.signing import message_id, parse_message_id
from gangline.core.notices.views import NoticePage, NoticeView, ReplayView
from gangline.ports.store import Row, guard, write
from gangline.service.deployment import Deployment
from gangline.service.notices.channels import NoticeSent, render_test_notice
from gangline.service.notices.endpoints import find_endpoint, interval_min_s, open_target

PAGE_MAX = 100
REPLAYED_MAX = 10_000
FORGOTTEN_MAX = 2_000
"""The most notices that one transaction deletes: others do not wait for it for long."""
PARTS_MAX = 50
"""The most such transactions each time, so that the other periodic work does not wait for long."""
FAR = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTrial:
    """A test message for an endpoint, made at `now_ms`. A project may send one in `interval_s` seconds; 0: as it likes."""

    project: str
    endpoint: str
    now_ms: int
    interval_s: float
    outgoing: NoticeSent


def notice_page(deployment: Deployment, project: str, which: str, before: int | None) -> NoticePage:
    """Return the notices of an endpoint before the fact number `before`, newest first."""
    endpoint = find_endpoint(deployment, project, which)["id"]
    wanted = {"endpoint": endpoint, "project": project, "before": before or FAR, "most": PAGE_MAX + 1}
    rows = deployment.store.load("notices", **wanted)
    found = tuple(_view(endpoint, row) for row in rows[:PAGE_MAX])
    return NoticePage(notices=found, next=found[-1].fact if len(rows) > PAGE_MAX else None)


def replay_message(deployment: Deployment, project: str, which: str, message: str, now_ms: int) -> ReplayView:
    """Send a notice again, under the id that it has. Raise `NotFound` if the log does not have it."""
    row, parsed = _active(deployment, project, which), parse_message_id(message)
    if parsed is None or parsed[0] != row["id"]:
        raise NotFound(
            f"{row['name']} has no message {message}", hint=f"`gangline notify log {row['name']}` lists them"
        )
    if not deployment.store.apply(guard("replay_notice", endpoint=row["id"], fact=parsed[1], now=now_ms)):
        raise NotFound(f"the log of {row['name']} no longer has the message {message}", hint="name a newer one")
    return ReplayView(replayed=1, through=parsed[1], more=False)


def replay_facts(
    deployment: Deployment, project: str, which: str, *, after: int, since_ms: int, now_ms: int
) -> ReplayView:
    """Send all facts after a number and since a moment that the endpoint receives, in their order, whether they were sent before or
    not; `REPLAYED_MAX` at once, and as many as may wait for it, as the oldest ones beyond that would be dropped."""
    row = _active(deployment, project, which)
    most = min(REPLAYED_MAX, deployment.notices.backlog_max - row["waiting"])
    if most <= 0:
        return ReplayView(replayed=0, through=after, more=True)
    wanted = {"endpoint": row["id"], "after": after, "since_ms": since_ms, "now": now_ms}
    rows = deployment.store.change("replay_facts", **wanted, most=most)
    through = max((each["fact"] for each in rows), default=after)
    return ReplayView(replayed=len(rows), through=through, more=len(rows) == most)


def make_test(deployment: Deployment, project: str, which: str, now_ms: int) -> NoticeTrial:
    """Return a test message for an endpoint. Raise `BadInput` if this server lacks its keys."""
    row = find_endpoint(deployment, project, which)
    return NoticeTrial(
        project=project,
        endpoint=row["id"],
        now_ms=now_ms,
        interval_s=interval_min_s(deployment, row["channel"]),
        outgoing=render_test_notice(deployment, open_target(deployment, row, now_ms), now_ms),
    )


def bound_backlogs(deployment: Deployment, now_ms: int) -> None:
    """Drop the oldest notices of endpoints for which too many wait: the newest ones tell most, and the log keeps all."""
    most = deployment.notices.backlog_max
    for row in deployment.store.load("overfull_endpoints", most=most):
        because = f"more than {most:,} notices waited for this endpoint"
        deployment.store.apply(write("drop_oldest", endpoint=row["endpoint"], most=most, because=because, now=now_ms))


def shorten_logs(deployment: Deployment, now_ms: int) -> None:
    """Delete what the log has had for long, and what waits although its job was deleted."""
    before = now_ms - round(deployment.notices.log_days * 86_400_000)
    for _ in range(PARTS_MAX):
        if len(deployment.store.change("forget_notices", before=before, most=FORGOTTEN_MAX)) < FORGOTTEN_MAX:
            break
    deployment.store.apply(write("forget_orphans", most=FORGOTTEN_MAX))


def _active(deployment: Deployment, project: str, which: str) -> Row:
    row = find_endpoint(deployment, project, which)
    if row["state"] != "active":
        raise BadInput(f"{row['name']} is disabled: {row['because']}", hint=f"gangline notify enable {row['name']}")
    return row


def _view(endpoint: str, row: Row) -> NoticeView:
    return NoticeView(
        id=message_id(endpoint, row["fact"]),
        fact=row["fact"],
        at_ms=row["at_ms"],
        job=row["job"],
        notice=notice_kind(row["kind"], row["job_state"]),
        state=row["state"],
        tries=row["tries"],
        because=row["because"],
        tried_ms=row["tried_ms"],
        due_ms=row["due_ms"] if row["state"] == "waiting" else None,
    )
