"""Serve an application below a path of its host, such as https://example.org/gangline/.

The application knows nothing of it: its addresses begin with `/`. A reverse proxy may remove the path from requests or leave it, and the
server is reached without it too, by who asks it directly. On the way out the path is put before what a browser follows: redirects,
cookies, and the addresses in the attributes of pages and their streams. JSON stays as it is: clients put the server's address before
what they find there.
"""

import re
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESS = re.compile(rb'(\s(?:href|src|action|hx-get|hx-post|hx-sse:connect)=")/(?!/)')
"""An attribute that leads to this server. What users write cannot look like one: its quotation marks are escaped."""
API = "/v1/"
OF_BROWSERS = ("text/html", "text/event-stream")
REDIRECTS = ("location", "hx-redirect")


def path_of_address(url: str) -> str:
    """Return the path of the server's address, such as `/gangline`; empty if it has none."""
    return urlsplit(url).path.rstrip("/")


class BelowPath:
    """An ASGI middleware. `path` begins with a slash and does not end with one."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        below = self._without(scope)
        await self._app(
            below, receive, AnswerBelowPath(self._path, is_page=not below["path"].startswith(API), send=send)
        )

    def _without(self, scope: Scope) -> Scope:
        """Return the scope as if the host were the server's alone. `root_path` says where it is, for the pages of the API's document."""
        path, raw = scope["path"], scope.get("raw_path") or b""
        if path == self._path or path.startswith(f"{self._path}/"):
            path, raw = path[len(self._path) :] or "/", raw.removeprefix(self._path.encode()) or b"/"
        return {**scope, "path": path, "raw_path": raw, "root_path": self._path}


class AnswerBelowPath:
    """The `send` of one answer. The head of a page waits for its body, whose length changes; that of a stream goes at once."""

    def __init__(self, path: str, *, is_page: bool, send: Send) -> None:
        self._path = path
        self._is_page = is_page
        self._send = send
        self._head: Message | None = None
        self._with_addresses = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            self._move(headers)
            if self._with_addresses and "content-length" in headers:
                self._head = message
                return
        if message["type"] == "http.response.body" and self._with_addresses:
            message = {**message, "body": ADDRESS.sub(rb"\1" + self._path.encode() + b"/", message.get("body", b""))}
        if self._head is not None:
            _correct_length(MutableHeaders(raw=self._head["headers"]), message)
            await self._send(self._head)
            self._head = None
        await self._send(message)

    def _move(self, headers: MutableHeaders) -> None:
        for name in REDIRECTS:
            if headers.get(name, "").startswith("/"):
                headers[name] = self._path + headers[name]
        moved = [cookie.replace("Path=/;", f"Path={self._path}/;") for cookie in headers.getlist("set-cookie")]
        if moved:
            del headers["set-cookie"]
            for cookie in moved:
                headers.append("set-cookie", cookie)
        self._with_addresses = self._is_page and headers.get("content-type", "").startswith(OF_BROWSERS)


def _correct_length(headers: MutableHeaders, first: Message) -> None:
    """Give a page that comes in one piece its length; one in several has none."""
    if first.get("more_body"):
        del headers["content-length"]
    else:
        headers["content-length"] = str(len(first["body"]))
