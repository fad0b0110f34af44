"""Routes of the page: they run in a lane as those of the API do, answer in HTML, and say what the API answers the same to.

A whole page that is refused is a page with the error; a part of one, that a script asked for, is a problem (RFC 9457) that the page shows
beside what is there, so that nothing typed is lost.
"""

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse

from gangline.api.answers.problems import of_expected, of_our
from gangline.api.lanes import PROVIDERS, REPORTS, USERS, Lane, LaneRoute
from gangline.api.who import deployment_of
from gangline.core.display import printable
from gangline.core.errors import Denied, Forbidden, GanglineError, NotFound
from gangline.web.frame.elsewhere import move_to_project
from gangline.web.frame.rendering import filled_template
from gangline.web.frame.visitor import THEME_COOKIE, THEMES, Visit, sign_in_address
from gangline.wire.problem import of_error

log = logging.getLogger("gangline.web")
HTML = "text/html"
LIKE = "x-like"
"""The name under which a route says which routes of the API it stands for."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:{buckets}; connect-src 'self'{buckets}; "
    "font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
    "Vary": "HX-Request",
}

WAYS_BACK: Mapping[str, tuple[str, str]] = {
    "fleet": ("/fleet", "the fleet"),
    "nodes": ("/fleet", "the fleet"),
    "experiments": ("/experiments", "the experiments"),
    "queue": ("/queue", "the queue"),
    "cost": ("/cost", "the costs"),
    "notices": ("/notices", "the notices"),
    "keys": ("/keys", "the keys"),
}
"""Where an error leads, and how that is called, by how the address begins for which it came. Others lead to the jobs."""


class PageRoute(LaneRoute):
    """A route whose answers, and whose errors, are HTML."""

    lane: ClassVar[Lane] = USERS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        is_to_change = any(not each.startswith("GET ") for each in (self.openapi_extra or {}).get(LIKE, ()))

        async def answer_html(request: Request) -> Response:
            if is_to_change and request.app.state.replay:
                refusal = Forbidden("this is a replay: nothing can be changed", hint="go back to the jobs")
                return guarded(request, refusal_answer(request, refusal))
            try:
                found = await answer(request)
            except (GanglineError, RequestValidationError) as error:
                found = await _elsewhere(request, error) or refusal_answer(request, error)
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                found = refusal_answer(request, GanglineError("the server failed; its log says why"))
            return guarded(request, found)

        return answer_html


class SlowPageRoute(PageRoute):
    """A route that may read very many rows: one request at a time, so that all others have their threads."""

    lane = REPORTS


class ProviderPageRoute(PageRoute):
    """A route that waits for a provider."""

    lane = PROVIDERS


def page_router(route_class: type[PageRoute] = PageRoute) -> APIRouter:
    return APIRouter(route_class=route_class, include_in_schema=False, default_response_class=HTMLResponse)


def like(*routes: str) -> dict[str, Any]:
    """Return the options of a route that asks what these routes of the API ask: whoever may not use all of them is refused.

    A test compares the answers of both to everybody.
    """
    return {"openapi_extra": {LIKE: list(routes)}}


def screen(look: Visit, name: str, /, **values: Any) -> HTMLResponse:
    """Return the page of a screen."""
    return HTMLResponse(filled_template(name, look=look, **values))


def part(name: str, /, **values: Any) -> HTMLResponse:
    """Return a part of a page."""
    return HTMLResponse(filled_template(name, **values))


def moved_to(address: str, text: str = "") -> Response:
    """Return the answer to a form of the page that sends the browser to another screen, which says this text for a while."""
    told = {"HX-Trigger": _event("told-there", {"text": text})} if text else {}
    return Response(status_code=204, headers={"HX-Redirect": address, **told})


def toast(text: str, *, bad: bool = False) -> Response:
    """Return the answer to something that was done: the page says so for a while. What changed comes with its stream.

    A `bad` one has not come about as it was wished, and stays until somebody closes it.
    """
    return _triggers("toast", {"text": text, "bad": bad})


def to_be_continued(text: str, address: str, fields: Mapping[str, str], *, form: str = "") -> Response:
    """Return the answer to something of which a part was done: the page says so, and posts these fields to do the next part, with those of
    the form that has this id."""
    return _triggers("unfinished", {"text": text, "address": address, "fields": dict(fields), "form": form})


def said_with(answer: Response, text: str) -> Response:
    """Return a part of a page with a message that the page says for a while."""
    answer.headers["HX-Trigger"] = _event("toast", {"text": text})
    return answer


def _triggers(name: str, detail: Mapping[str, Any]) -> Response:
    return Response(status_code=204, headers={"HX-Trigger": _event(name, detail)})


def _event(name: str, detail: Mapping[str, Any]) -> str:
    return json.dumps({name: detail})


def wants_part(request: Request) -> bool:
    """Return whether a script asks, for a part of the page that is open."""
    return "hx-request" in request.headers and request.headers.get("hx-request-type") != "full"


async def _elsewhere(request: Request, error: GanglineError | RequestValidationError) -> Response | None:
    """Return where an operator finds a screen that is not of the project that is looked at; None if that is not so."""
    if not isinstance(error, NotFound) or _wants_problem(request) or request.app.state.replay:
        return None
    try:
        found = await USERS.run(lambda: move_to_project(request))
    except GanglineError:  # such as a store that is unreachable
        return None
    return refusal_answer(request, found) if isinstance(found, NotFound) else found


def _wants_problem(request: Request) -> bool:
    """Return whether a program asks, or a script of the page: not a browser for its reader."""
    return "hx-request" in request.headers or HTML not in request.headers.get("accept", "")


def call_job(error: GanglineError, job: str, name: str) -> None:
    """Let an error about a job begin with the name by which the page's readers know the job, in place of its id."""
    if job and name and error.message.startswith(f"{job} "):
        error.message = f"{printable(name)}{error.message.removeprefix(job)}"


def refusal_answer(request: Request, error: GanglineError | RequestValidationError) -> Response:
    """Return what somebody is answered whom an error refuses: a page with it, or a problem where a program or a script asks."""
    if _wants_problem(request):
        if isinstance(error, GanglineError):
            call_job(error, request.path_params.get("job", ""), "this job")
        return of_expected(error)
    if isinstance(error, Denied):
        return RedirectResponse(sign_in_address(request), status_code=303)
    if isinstance(error, RequestValidationError):
        error = NotFound("the address of this page is not one that it understands", hint="check it")
    return error_page(request, error)


def error_page(request: Request, error: GanglineError) -> Response:
    found, theme, replay = of_error(error), request.cookies.get(THEME_COOKIE), request.app.state.replay
    answer = HTMLResponse(
        filled_template(
            "frame/error.html",
            problem=found,
            back=WAYS_BACK.get(request.url.path.split("/")[1], ("/", "the jobs")),
            theme=theme if theme in THEMES else "",
            replay=replay,
            now_ms=deployment_of(request).store.now_ms() if replay else 0,
        ),
        status_code=found.status,
    )
    for name in ("Retry-After", "Connection"):
        if name in (headers := of_our(error).headers):
            answer.headers[name] = headers[name]
    return answer


def error_where_no_route_is(request: Request) -> Response | None:
    """Return the page with the error for an address that has no screen, such as one cut short; None where a program asks, or a script."""
    if request.method not in ("GET", "HEAD") or _wants_problem(request):
        return None
    error = NotFound(f"there is no screen at {request.url.path}", hint="check the address")
    return guarded(request, error_page(request, error))


def guarded(request: Request, answer: Response) -> Response:
    """Return the answer with the headers that tell a browser what a page may load and who may frame it."""
    buckets = "".join(f" {origin}" for origin in getattr(request.app.state, "buckets", ()))
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    answer.headers["Content-Security-Policy"] = POLICY.format(buckets=buckets)
    return answer
