"""Sign in with a key. The answer has a cookie that no script reads and no other site's form sends."""

from urllib.parse import SplitResult, urlsplit

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from gangline.api.lanes import json_response
from gangline.api.sessions.cookie import cookie_name, csrf_token, session_of
from gangline.api.who import Now, ThisDeployment, Viewer
from gangline.core.errors import Denied, Forbidden
from gangline.service.access.access import recognize
from gangline.service.access.sessions import SESSION_S, choose_project, sign_in, sign_in_with_code, sign_out
from gangline.service.deployment import Deployment
from gangline.web.frame.forms import SentFields
from gangline.web.frame.rendering import filled_template
from gangline.web.frame.routes import moved_to, page_router
from gangline.web.frame.visitor import THEME_COOKIE, THEMES

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
router = page_router()


@router.get("/sign-in")
def show_sign_in(request: Request, deployment: ThisDeployment, now: Now, next: str = "/", code: str = "") -> Response:
    """Show the form; with a code, its button alone, as programs that preview links must not use it up.

    Needs no key; somebody who has signed in is sent to the page.
    """
    session, theme = session_of(request.headers), request.cookies.get(THEME_COOKIE)
    if session and _is_valid(deployment, session, now):
        return RedirectResponse(_local(next), status_code=303)
    return HTMLResponse(
        filled_template(
            "frame/sign_in.html",
            csrf=csrf_token(session) if session else "",
            next=_local(next),
            code=code,
            theme=theme if theme in THEMES else "",
            why_not=_why_not_here(request, deployment),
        )
    )


@router.post("/sign-in")
def start_session(request: Request, deployment: ThisDeployment, now: Now, sent: SentFields) -> Response:
    """Sign in with a key or a code. Needs no session; a form of another site is refused."""
    _refuse_other_sites(request)
    why_not = _why_not_here(request, deployment)
    if why_not:
        raise Forbidden(why_not, hint="use the server's https address")
    code = sent.text("code")
    session = sign_in_with_code(deployment, code, now) if code else sign_in(deployment, sent.text("key"), now)
    # A form that is open continues with the new session; the sign-in page goes to where its reader wanted to be.
    answer = json_response({"csrf": csrf_token(session)}) if sent.text("stay") else moved_to(_local(sent.text("next")))
    answer.set_cookie(
        cookie_name(request.headers.get("host", "")),
        session,
        max_age=SESSION_S,
        httponly=True,
        secure=_is_secure(request, deployment),
        samesite="lax",
    )
    return answer


@router.post("/sign-out")
def end_session(request: Request, deployment: ThisDeployment, _: Viewer) -> Response:
    sign_out(deployment, session_of(request.headers))
    answer = moved_to("/sign-in")
    answer.delete_cookie(cookie_name(request.headers.get("host", "")), httponly=True, samesite="lax")
    return answer


@router.post("/session/project")
def change_project(request: Request, deployment: ThisDeployment, viewer: Viewer, sent: SentFields) -> Response:
    """Look at another project. Operators alone may."""
    choose_project(deployment, session_of(request.headers), viewer, sent.text("project"))
    return moved_to(_local(sent.text("next")))


def _is_valid(deployment: Deployment, session: str, now_ms: int) -> bool:
    try:
        recognize(deployment, session, "viewer", now_ms)
    except Denied:
        return False
    return True


def _local(address: str) -> str:
    """Return the address if it is of this server, and else that of the first screen: no link leads through our sign-in elsewhere."""
    parts = _parts(address.replace("\\", "/"))
    here = parts is not None and not parts.netloc and not parts.scheme
    ours = here and address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if ours and address.isprintable() else "/"


def _parts(address: str) -> SplitResult | None:
    """Return the parts of an address that somebody sent; None if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return None


def _is_secure(request: Request, deployment: Deployment) -> bool:
    """Return whether the browser speaks https to this server, or to the proxy before it that the operator has named."""
    host = request.headers.get("host", "")
    named = urlsplit(deployment.url)
    return request.url.scheme == "https" or (named.scheme == "https" and host == named.netloc)


def _why_not_here(request: Request, deployment: Deployment) -> str:
    """Return why a key cannot be sent from where the page is open; empty if it can."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    if _is_secure(request, deployment) or host in LOOPBACK or request.app.state.page_over_http:
        return ""
    return "this page came over plain http, where others on the way could read your key"


def _refuse_other_sites(request: Request) -> None:
    """Raise `Forbidden` for a form of another site (Fetch Metadata; for browsers without it, the Origin)."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    parts = _parts(origin or "")
    same = (
        site in ("same-origin", "none")
        if site
        else origin is None or (parts is not None and parts.netloc == request.headers.get("host"))
    )
    if not same:
        raise Forbidden("this form is of another site", hint="open the page of this server, and sign in there")
