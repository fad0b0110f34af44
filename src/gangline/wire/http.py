"""Send HTTP requests: typed bodies out, typed answers in, problems raised as errors."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from gangline.core.access import as_secret, is_project_name
from gangline.core.errors import GanglineError, NotFound, Unreachable
from gangline.tls import trusted
from gangline.wire import protocol, transport
from gangline.wire.problem import is_from_gangline, to_error

T = TypeVar("T")
TIMEOUT = httpx.Timeout(20, connect=5)
TOO_MANY = 429
# a server that submits thousands of jobs answers only when it has done so
LINES_TIMEOUT = httpx.Timeout(600, connect=5)
# a server that asks a provider waits for it, twice at most: who gave up earlier would not learn what was made
PROVIDER_TIMEOUT = httpx.Timeout(1260, connect=5)
LIMITS = httpx.Limits(
    keepalive_expiry=60
)  # longer than between two heartbeats, shorter than a server keeps a connection


def path_of(*parts: str) -> str:
    """Return the path of a route. Each part becomes one segment, whatever people typed: `..` leads nowhere else.

    Raise `NotFound` for an empty part, and for one with a slash, which no id or name has: a server would read it as another path.
    """
    wrong = next((part for part in parts if "/" in part or not part), None)
    if wrong == "":
        raise NotFound("an empty text is no name", hint="give the name or the id")
    if wrong is not None:
        raise NotFound(f"there is no {wrong}", hint="ids and names have no slash")
    return "/".join(("/v1", *(quote(part, safe="", errors="surrogateescape").replace(".", "%2E") for part in parts)))


class Http:
    def __init__(
        self,
        server: str,
        token: str,
        client: httpx.Client | None = None,
        *,
        project: str | None = None,
        patience_s: float = 0,
    ) -> None:
        """Create a connection. A request refused with 429 is repeated when the server allows, for at most `patience_s` seconds in all.

        Raise `BadInput` for an invalid token, `NotFound` for an invalid project.
        """
        if project and not is_project_name(project):
            raise NotFound(
                f"there is no project {project}", hint="an operator can list the projects with `gangline projects ls`"
            )
        self.server = server.rstrip("/")
        self.token = as_secret(token, "the key")
        self._project = project
        self._patience_s = patience_s
        try:
            with self._reaching():
                self._client = client or httpx.Client(
                    base_url=self.server, verify=trusted(), timeout=TIMEOUT, limits=LIMITS
                )
        except (ImportError, OSError) as error:
            raise transport.no_client(self.server, error) from None

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        key: str = "",
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        """Return a successful answer. Raise the error of a problem, or `Unreachable`."""
        content = json.dumps(body if isinstance(body, dict) else asdict(body)) if body is not None else None
        return self._send(method, path, content, "application/json", params=params, key=key, timeout=timeout)

    def send_lines(self, path: str, lines: Iterable[str], *, key: str) -> httpx.Response:
        """Send JSON lines as they are generated. Raise as `ask` does."""
        content = (line.encode() + b"\n" for line in lines)
        return self._send("POST", path, content, "application/jsonl", key=key, timeout=LINES_TIMEOUT)

    def _send(
        self,
        method: str,
        path: str,
        content: str | Iterable[bytes] | None,
        media_type: str,
        *,
        params: dict[str, Any] | None = None,
        key: str = "",
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        headers = self._headers()
        if key:
            headers["Idempotency-Key"] = key
        if content is not None:
            headers["Content-Type"] = media_type
        left_s = self._patience_s
        while True:
            with self._reaching():
                answer = self._client.request(
                    method, path, content=content, headers=headers, params=params, timeout=timeout
                )
            if answer.is_success:
                return answer
            wait_s = _retry_after_s(answer)
            # JSON lines are generated while they are sent, so they cannot be sent a second time.
            if answer.status_code != TOO_MANY or wait_s > left_s or not isinstance(content, str | None):
                raise self._refusal(answer)
            left_s -= wait_s
            threading.Event().wait(wait_s)

    @contextmanager
    def stream(self, path: str, last_event_id: str, *, silent_s_max: float) -> Iterator[httpx.Response]:
        """Open an answer to be read while it arrives. Raise as `ask` does, also in the middle."""
        headers = self._headers() | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        timeout = httpx.Timeout(silent_s_max, connect=5)
        with self._reaching(), self._client.stream("GET", path, headers=headers, timeout=timeout) as answer:
            if not answer.is_success:
                answer.read()
                raise self._refusal(answer)
            yield answer

    def _headers(self) -> dict[str, str]:
        headers = {protocol.HEADER: str(protocol.VERSION)}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self._project:
            headers["Gangline-Project"] = self._project
        return headers

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (httpx.InvalidURL, UnicodeError) as error:  # an address may have characters that no encoding has
            raise transport.not_an_address(self.server, error) from None
        except httpx.HTTPError as error:
            raise transport.not_reached(self.server, error) from None

    def _refusal(self, answer: httpx.Response) -> GanglineError:
        problem = problem_of(answer)
        return (
            to_error(answer.status_code, problem)
            if is_from_gangline(problem)
            else transport.not_ours(self.server, answer)
        )


def _retry_after_s(answer: httpx.Response) -> int:
    said = answer.headers.get("retry-after", "")
    return max(1, int(said)) if said.isdecimal() and len(said) < 9 else 1


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def parse_answer(kind: type[T], answer: httpx.Response) -> T:
    return _parse(kind, answer.content, answer)


def parse_lines(kind: type[T], answer: httpx.Response) -> list[T]:
    """Return the value of each line of an answer."""
    return [_parse(kind, line, answer) for line in answer.content.splitlines()]


def _parse(kind: type[T], content: bytes, answer: httpx.Response) -> T:
    try:
        return _adapter(kind).validate_json(content)
    except ValueError:
        raise Unreachable(
            f"{answer.request.url.copy_with(query=None)} did not answer as a Gangline server does",
            hint="check the address of the server",
        ) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
