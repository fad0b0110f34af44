"""Endpoints and notices as the API shows them."""

from dataclasses import dataclass, field
from typing import Literal

from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.retry import NoticeState

NoticeChannel = Literal["webhook", "mail", "slack", "discord", "ntfy"]
EndpointState = Literal["active", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """An endpoint, without its address and its secret: `to` is what everybody of the project may see of the address. It receives `kinds`,
    and `because` says why it is disabled, what it lacks, or that its secret must be rotated soon. `waiting` notices are not delivered yet;
    it fails since `failing_since_ms`, and the last success was at `delivered_ms`. Messages are signed with the previous secret, too, until
    `old_until_ms`. People get one message in `interval_s` seconds at most, and none in the hours that `quiet` names."""

    id: str
    name: str
    channel: NoticeChannel
    to: str
    kinds: tuple[NoticeKind, ...]
    state: EndpointState
    because: str
    interval_s: float
    quiet: str
    waiting: int
    failing_since_ms: int | None
    delivered_ms: int | None
    old_until_ms: int | None
    made_ms: int
    made_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """An endpoint that was just added, or whose secret was just rotated. `secret` verifies webhooks; it is shown only once, is stored
    nowhere, and is empty for other channels."""

    endpoint: EndpointView
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeView:
    """A notice in the log of deliveries: the fact number `fact`, of the kind `notice`, for one endpoint. `because` says what came of the
    last of `tries`, at `tried_ms`; while it is `waiting`, the next try is at `due_ms`. `id` is the same at each try. `job` is empty for
    a `cost_threshold`, which is of no job."""

    id: str
    fact: int
    at_ms: int
    job: str
    notice: NoticeKind | None
    state: NoticeState
    tries: int
    because: str
    tried_ms: int | None
    due_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticePage:
    """A page of the log, newest first. `next` is the cursor of the following page; None on the last one."""

    notices: tuple[NoticeView, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """How many notices are sent again. If there may be `more`, ask again after the fact number `through`: at once, or, if none
    was `replayed` as too many wait for the endpoint already, when some have been delivered."""

    replayed: int
    through: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTestView:
    """What came of a test message."""

    delivered: bool
    because: str
