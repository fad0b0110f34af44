"""Endpoints of notices: add, change, test, and see what came of each message."""

from typing import Annotated, Any, get_args

from fastapi import Query, Request, Response

from gangline.api.lanes import USERS
from gangline.api.notices.notice_routes import EndpointChange, WantedEndpoint, WantedReplay
from gangline.api.notices.notice_tests import NoticeTests
from gangline.api.who import NUMBER_MAX, MemberLater, MemberOf, MemberOfLater, Now, ThisDeployment, ViewerOf
from gangline.core.errors import BadInput
from gangline.core.notices.kinds import NOTICES
from gangline.core.notices.pacing import INTERVAL_S
from gangline.core.notices.views import NewEndpoint, NoticeChannel
from gangline.core.parsing import parse_as
from gangline.core.words import counted
from gangline.service.deployment import Deployment
from gangline.service.notices import endpoints, log
from gangline.service.notices.send import refuse_address, send_notice
from gangline.web.frame.forms import SentFields, SentForm
from gangline.web.frame.routes import like, page_router, part, said_with, screen, toast
from gangline.web.frame.visitor import Looking, LookingLater, Visit

router = page_router()
CHANNELS = get_args(NoticeChannel)
KINDS = {kind: meaning.says for kind, meaning in NOTICES.items()}


@router.get("/notices", **like("GET /v1/notices/endpoints"))
def show_endpoints(deployment: ThisDeployment, project: ViewerOf, look: Looking) -> Response:
    """Show the endpoints of the project, without their addresses."""
    return screen(
        look, "notices/screen.html", **_found(deployment, project, look), channels=CHANNELS, interval_s=INTERVAL_S
    )


@router.post("/notices", **like("POST /v1/notices/endpoints"))
async def add_endpoint_on_page(
    deployment: ThisDeployment, project: MemberOfLater, member: MemberLater, look: LookingLater, sent: SentFields
) -> Response:
    """Add an endpoint, and show the secret of a webhook once."""
    owner, who, seen = await USERS.run(lambda: (project.get(), member.get().id, look.get()))
    given = {name: sent.text(name) for name in ("channel", "address", "name", "quiet") if sent.text(name)}
    wanted = parse_as(WantedEndpoint, given | _chosen(sent) | _interval(sent))
    wish = endpoints.EndpointWish(**{name: getattr(wanted, name) for name in WantedEndpoint.__slots__})
    await refuse_address(deployment, wanted.address)

    def make() -> Response:
        made = endpoints.make_endpoint(deployment, owner, wish, who, deployment.store.now_ms(), None)
        found = made.endpoint
        text = (
            f"{found.name} is added: it hears of {counted(len(found.kinds), 'kind')} of news. Send it a test message."
        )
        return said_with(_part(deployment, owner, seen, made), text)

    return await USERS.run(make)


@router.post("/notices/{endpoint}/change", **like("PATCH /v1/notices/endpoints/{endpoint}"))
def change_endpoint_on_page(
    deployment: ThisDeployment, now: Now, project: MemberOf, look: Looking, sent: SentFields, endpoint: str
) -> Response:
    """Change the kinds, the quiet hours and the interval of an endpoint, or whether it receives anything."""
    given: dict[str, Any] = {name: sent.text(name) for name in ("state", "quiet") if sent.has(name)}
    wanted = parse_as(EndpointChange, given | _chosen(sent) | _interval(sent))
    changes = {name: getattr(wanted, name) for name in EndpointChange.__slots__ if getattr(wanted, name) is not None}
    endpoints.set_endpoint(deployment, project, endpoint, changes, now)
    return _part(deployment, project, look)


@router.post("/notices/{endpoint}/remove", **like("DELETE /v1/notices/endpoints/{endpoint}"))
def remove_endpoint_on_page(deployment: ThisDeployment, project: MemberOf, look: Looking, endpoint: str) -> Response:
    endpoints.drop_endpoint(deployment, project, endpoint)
    return said_with(_part(deployment, project, look), "The endpoint is removed.")


@router.post("/notices/{endpoint}/rotate", **like("POST /v1/notices/endpoints/{endpoint}/rotate"))
def rotate_secret_on_page(
    deployment: ThisDeployment, now: Now, project: MemberOf, look: Looking, endpoint: str
) -> Response:
    """Make a new secret of a webhook, and show it once. Messages are signed with the old one, too, for a day."""
    made = endpoints.renew_secret(deployment, project, endpoint, endpoints.OLD_SECRET_S, now)
    return _part(deployment, project, look, made)


@router.post("/notices/{endpoint}/test", **like("POST /v1/notices/endpoints/{endpoint}/test"))
async def test_endpoint_on_page(
    request: Request, deployment: ThisDeployment, project: MemberOfLater, endpoint: str
) -> Response:
    """Send a test message now, and say what came of it."""
    trial = await USERS.run(lambda: log.make_test(deployment, project.get(), endpoint, deployment.store.now_ms()))
    tests: NoticeTests = request.app.state.notice_tests
    with tests.one(trial.project, trial.endpoint, now_ms=trial.now_ms, interval_s=trial.interval_s):
        answer = await send_notice(deployment, trial.outgoing)
    if answer.outcome == "delivered":
        return toast("The test message arrived.")
    return toast(f"The test message did not arrive: {answer.because}", bad=True)


@router.get("/notices/{endpoint}/log", **like("GET /v1/notices/endpoints/{endpoint}/log"))
def show_log_on_page(
    deployment: ThisDeployment,
    project: ViewerOf,
    look: Looking,
    endpoint: str,
    before: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
) -> Response:
    """Show what was sent to an endpoint, newest first."""
    found = endpoints.endpoint_view(deployment, project, endpoint, look.now_ms)
    page = log.notice_page(deployment, project, endpoint, before)
    return screen(look, "notices/log.html", endpoint=found, page=page, kinds=KINDS, first=before is None)


@router.post("/notices/{endpoint}/again", **like("POST /v1/notices/endpoints/{endpoint}/replay"))
def send_again(deployment: ThisDeployment, now: Now, project: MemberOf, sent: SentFields, endpoint: str) -> Response:
    """Send one message again, or all facts after a number."""
    if sent.has("message"):
        log.replay_message(deployment, project, endpoint, sent.text("message"), now)
        return toast("It is sent again.")
    after = parse_as(WantedReplay, {"after": sent.text("after")}, options=True).after
    found = log.replay_facts(deployment, project, endpoint, after=after, since_ms=0, now_ms=now)
    more = "; there are more: send them again when these have arrived" if found.more else ""
    return toast(f"{counted(found.replayed, 'notice')} sent again{more}")


def _chosen(sent: SentForm) -> dict[str, Any]:
    """Return the kinds that are chosen: without any, they stay, or are the channel's. Raise `BadInput` if the form `states` that they are
    none."""
    kinds = sent.texts("kind")
    if not kinds and sent.text("states") == "kinds":
        raise BadInput("an endpoint hears of one kind of news at least", hint="choose one, or disable the endpoint")
    return {"kinds": kinds} if kinds else {}


def _interval(sent: SentForm) -> dict[str, Any]:
    minutes = sent.number("minutes")
    return {} if minutes is None else {"interval_s": minutes * 60}


def _found(deployment: Deployment, project: str, look: Visit) -> dict[str, Any]:
    found = endpoints.endpoint_views(deployment, project, look.now_ms)
    return {"endpoints": found, "made": None, "kinds": KINDS}


def _part(deployment: Deployment, project: str, look: Visit, made: NewEndpoint | None = None) -> Response:
    return part("notices/endpoints.html", look=look, **_found(deployment, project, look) | {"made": made})
