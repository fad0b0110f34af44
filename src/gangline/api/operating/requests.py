"""Measure each request, and log it if the server's settings say so: the outermost middleware of the application."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.api.operating.exposition import ProcessMetrics

log = logging.getLogger("gangline.access")
NO_ROUTE = "none"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
FAILED = 500
CLOSED = 499
"""The status of a request whose client left before the answer began, as nginx logs it."""


class MeasuredRequests:
    """An ASGI middleware. It takes the template of the route, never the path: a label has few values, and a log no ids or signatures."""

    def __init__(self, app: ASGIApp, metrics: ProcessMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, status, answered_s = time.perf_counter(), CLOSED, None

        async def sending(message: Message) -> None:
            nonlocal status, answered_s
            if message["type"] == "http.response.start":
                status, answered_s = message["status"], time.perf_counter() - began_s
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            status = status if answered_s is not None else FAILED  # the answer is made further out
            raise
        finally:
            took_s = time.perf_counter() - began_s
            method, route = _method(scope), route_of(scope)
            self._metrics.note_request(method, route, status, took_s if answered_s is None else answered_s)
            if log.isEnabledFor(logging.INFO):
                _log(method, route, status, took_s)


def route_of(scope: Scope) -> str:
    """Return the template of the route that answered, `none` if there was none."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else "other"


def _log(method: str, route: str, status: int, took_s: float) -> None:
    ms = round(took_s * 1000, 1)
    about = {"method": method, "route": route, "status": status, "duration_ms": ms}
    log.info("%s %s %d in %.1f ms", method, route, status, ms, extra={"fields": about})
