"""Read who sends a request: a key in its header, or the session of a browser in its cookie.

A browser sends its cookies by itself, with requests that other sites make it send too. So a request that changes something and has no
more than a cookie needs the session's CSRF token in a header, which no other site can know, or set ("synchronizer token", OWASP).
"""

import hmac
from hashlib import sha256

from starlette.datastructures import Headers

from gangline.core.errors import Forbidden
from gangline.service.access.access import SESSION_BEGINS

CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def cookie_name(host: str) -> str:
    """Return the name of the session's cookie. Browsers share cookies between the ports of a host, so it has the port."""
    _, _, port = host.rpartition(":")
    return f"gangline_{port}" if port.isdecimal() and len(port) < 6 else "gangline"


def token_of(headers: Headers) -> str:
    """Return the token of a request: that of its `Authorization`, else of its session; empty if it has neither."""
    authorization = headers.get("authorization")
    if authorization is None:
        return session_of(headers)
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def session_of(headers: Headers) -> str:
    """Return the secret of the session in the request's cookie; empty if it has none.

    Other programs of this host set cookies, too, and not all of them keep to RFC 6265: whatever they look like, ours is found.
    """
    ours = cookie_name(headers.get("host", ""))
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.partition("=")
        if name.strip() == ours and value.strip().startswith(SESSION_BEGINS):
            return value.strip()
    return ""


def csrf_token(session: str) -> str:
    """Return the CSRF token of a session. Whoever knows it cannot find the session's secret from it."""
    return hmac.new(session.encode(), b"csrf", sha256).hexdigest()


def refuse_forged(method: str, headers: Headers) -> None:
    """Raise `Forbidden` for a request that changes something, and that another site may have made a browser send."""
    if method in SAFE_METHODS or "authorization" in headers:
        return
    session = session_of(headers)
    if session and not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_token(session).encode()):
        raise Forbidden("this request does not come from an open page of this session", hint="load the page again")
