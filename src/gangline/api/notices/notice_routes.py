"""Routes for endpoints, which receive the facts of their project: viewers read, members change and test them."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen, MinLen, Predicate
from fastapi import APIRouter, Query, Request, Response

from gangline.api.answers.repeats import Repeat, RepeatLater
from gangline.api.lanes import USERS, UserRoute, json_response
from gangline.api.notices.notice_tests import NoticeTests
from gangline.api.who import NUMBER_MAX, MemberLater, MemberOf, MemberOfLater, Now, ThisDeployment, ViewerOf
from gangline.core.display import Label, has_words
from gangline.core.errors import BadInput
from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.views import (
    EndpointState,
    EndpointView,
    NewEndpoint,
    NoticeChannel,
    NoticePage,
    NoticeTestView,
    ReplayView,
)
from gangline.core.parsing import Checked
from gangline.core.places.urls import URL_MAX
from gangline.core.policy import STRICT
from gangline.service.notices import endpoints, log
from gangline.service.notices.send import refuse_address, send_notice

router = APIRouter(prefix="/v1/notices", tags=["notices"], route_class=UserRoute)


def _why_no_name(text: str) -> str:
    return "has a slash, so no path can name it" if "/" in text else ""


EndpointLabel = Annotated[Label, MaxLen(100), Checked(_why_no_name)]
EndpointName = Annotated[EndpointLabel, MinLen(1), Predicate(has_words)]
Kinds = Annotated[tuple[NoticeKind, ...], MaxLen(100)]
SomeKinds = Annotated[Kinds, MinLen(1)]
IntervalS = Annotated[float, Ge(0), Le(86_400)]
OldS = Annotated[float, Ge(0), Le(30 * 86_400)]
Address = Annotated[str, MinLen(1), MaxLen(URL_MAX), Predicate(has_words)]
QuietText = Annotated[Label, MaxLen(100)]
MessageId = Annotated[Label, MaxLen(200)]
FactNumber = Annotated[int, Ge(0), Le(NUMBER_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEndpoint:
    """An endpoint to add. `address` is a URL, or an address of mail; it is encrypted, and no answer has it. Without a `name` it has that of
    its channel. It receives `kinds`; without any, of those that its channel has by default. People get one message in `interval_s`
    seconds at most, and none in the hours that `quiet` names, such as `22:00-07:00 Europe/Berlin`."""

    __pydantic_config__: ClassVar[Any] = STRICT
    channel: NoticeChannel = "webhook"
    address: Address = field(repr=False)
    name: EndpointLabel = ""
    kinds: Kinds = ()
    interval_s: IntervalS | None = None
    quiet: QuietText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """What to change of an endpoint; a field that is absent or null stays."""

    __pydantic_config__: ClassVar[Any] = STRICT
    name: EndpointName | None = None
    kinds: SomeKinds | None = None
    interval_s: IntervalS | None = None
    quiet: QuietText | None = None
    state: EndpointState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRotation:
    """Messages are signed with the old secret, too, for `old_s` seconds."""

    __pydantic_config__: ClassVar[Any] = STRICT
    old_s: OldS = endpoints.OLD_SECRET_S


ROTATION = WantedRotation()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReplay:
    """What to send again: one `message`, or all facts `after` a number, or since a moment, that the endpoint receives."""

    __pydantic_config__: ClassVar[Any] = STRICT
    message: MessageId | None = None
    after: FactNumber | None = None
    since_ms: FactNumber | None = None


@router.post("/endpoints", status_code=201, response_model=NewEndpoint)
async def add_endpoint(
    deployment: ThisDeployment, project: MemberOfLater, member: MemberLater, wanted: WantedEndpoint, repeat: RepeatLater
) -> Response:
    """Add an endpoint: it receives what happens from now on. Only this answer has the secret that verifies its webhooks, so a repeated
    request for a webhook is refused.

    422 if nothing may be sent to its address, as it is a private one.
    """
    owner, who, asked = await USERS.run(lambda: (project.get(), member.get().id, repeat.get()))
    wish = endpoints.EndpointWish(**{name: getattr(wanted, name) for name in WantedEndpoint.__slots__})
    request = asked.within(owner)

    def make() -> NewEndpoint:
        return endpoints.make_endpoint(deployment, owner, wish, who, deployment.store.now_ms(), request)

    with asked.alone(owner):
        await refuse_address(deployment, wanted.address)
        return json_response(await USERS.run(make), 201)


@router.get("/endpoints")
def list_endpoints(deployment: ThisDeployment, now: Now, project: ViewerOf) -> list[EndpointView]:
    """List the endpoints of the project, without their addresses."""
    return endpoints.endpoint_views(deployment, project, now)


@router.get("/endpoints/{endpoint}")
def show_endpoint(deployment: ThisDeployment, now: Now, project: ViewerOf, endpoint: str) -> EndpointView:
    """Show an endpoint, given its id or its name."""
    return endpoints.endpoint_view(deployment, project, endpoint, now)


@router.patch("/endpoints/{endpoint}")
def change_endpoint(
    deployment: ThisDeployment, now: Now, project: MemberOf, endpoint: str, change: EndpointChange
) -> EndpointView:
    """Change an endpoint. With the state `disabled`, what waits for it is dropped; with `active`, it receives what happens from then on."""
    given = {name: getattr(change, name) for name in EndpointChange.__slots__}
    changes = {name: value for name, value in given.items() if value is not None}
    return endpoints.set_endpoint(deployment, project, endpoint, changes, now)


@router.delete("/endpoints/{endpoint}", status_code=204)
def remove_endpoint(deployment: ThisDeployment, project: MemberOf, endpoint: str) -> None:
    """Delete an endpoint with its log: it receives nothing more. Repeating this changes nothing."""
    endpoints.drop_endpoint(deployment, project, endpoint)


@router.post("/endpoints/{endpoint}/rotate")
def rotate_secret(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    endpoint: str,
    repeat: Repeat,
    wanted: WantedRotation = ROTATION,
) -> NewEndpoint:
    """Make a new signing secret; only this answer has it, so a repeated request is refused. For a while messages are signed with the old
    one, too."""
    with repeat.alone(project):
        return endpoints.renew_secret(deployment, project, endpoint, wanted.old_s, now, repeat.within(project))


@router.post("/endpoints/{endpoint}/test", response_model=NoticeTestView)
async def test_endpoint(
    request: Request, deployment: ThisDeployment, project: MemberOfLater, endpoint: str
) -> Response:
    """Send a test message now, and show what came of it. It is sent to a disabled endpoint, too, and is in no log."""
    trial = await USERS.run(lambda: log.make_test(deployment, project.get(), endpoint, deployment.store.now_ms()))
    tests: NoticeTests = request.app.state.notice_tests
    with tests.one(trial.project, trial.endpoint, now_ms=trial.now_ms, interval_s=trial.interval_s):
        answer = await send_notice(deployment, trial.outgoing)
    return json_response(NoticeTestView(delivered=answer.outcome == "delivered", because=answer.because))


@router.get("/endpoints/{endpoint}/log")
def show_notice_log(
    deployment: ThisDeployment,
    project: ViewerOf,
    endpoint: str,
    before: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
) -> NoticePage:
    """List the notices of an endpoint, newest first, 100 at a time: those before the fact number `before`."""
    return log.notice_page(deployment, project, endpoint, before)


@router.post("/endpoints/{endpoint}/replay")
def replay_notices(
    deployment: ThisDeployment, now: Now, project: MemberOf, endpoint: str, wanted: WantedReplay
) -> ReplayView:
    """Send one message again, or all facts after a number or since a moment: 10,000 at most, and as many as may wait for the endpoint. A
    message that was sent before has the same id."""
    if wanted.message is not None:
        if wanted.after is not None or wanted.since_ms is not None:
            raise BadInput("one message and many contradict each other", hint="name a message, or a beginning")
        return log.replay_message(deployment, project, endpoint, wanted.message, now)
    if wanted.after is None and wanted.since_ms is None:
        raise BadInput("nothing to send again is named", hint="name a message, a fact number or a moment")
    return log.replay_facts(
        deployment, project, endpoint, after=wanted.after or 0, since_ms=wanted.since_ms or 0, now_ms=now
    )
