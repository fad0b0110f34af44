"""What both clients know of HTTP: paths, headers, timeouts, typed answers, and problems as errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from gangline.core.access import is_project_name
from gangline.core.errors import GanglineError, NotFound, Unreachable, UserError
from gangline.core.server.idempotency import write_key
from gangline.wire import protocol, transport
from gangline.wire.problem import is_from_gangline, to_error

T = TypeVar("T")
TIMEOUT = httpx.Timeout(20, connect=5)
TOO_MANY = 429
# a server that submits thousands of jobs answers only when it has done so
LINES_TIMEOUT = httpx.Timeout(600, connect=5)
# a report may wait for others, and then reads up to 10,000 jobs
REPORT_TIMEOUT = httpx.Timeout(120, connect=5)
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


def check_project(project: str | None) -> None:
    """Raise `NotFound` for a text that no project has as its name: it would be a header."""
    if project and not is_project_name(project):
        raise NotFound(
            f"there is no project {project}", hint="an operator can list the projects with `gangline projects ls`"
        )


def headers_of(token: str, project: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    headers = {protocol.HEADER: str(protocol.VERSION)}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if project:
        headers["Gangline-Project"] = project
    return headers


def conditions_of(key: str, tag: str = "") -> dict[str, str]:
    """Return the headers that let a server answer a request only once, and only if what it is about has this entity tag."""
    conditions = {"Idempotency-Key": write_key(key)} if key else {}
    return conditions | ({"If-Match": tag} if tag else {})


def content_of(body: Any) -> str | None:
    """Return the JSON of a request's body, which is a dict or a dataclass."""
    return None if body is None else json.dumps(body if isinstance(body, dict) else asdict(body))


@contextmanager
def reaching(server: str) -> Iterator[None]:
    """Raise what went wrong on the way to a server as `Unreachable`, in words."""
    try:
        yield
    except (httpx.InvalidURL, UnicodeError) as error:  # an address may have characters that no encoding has
        raise transport.not_an_address(server, error) from None
    except httpx.HTTPError as error:
        raise transport.not_reached(server, error) from None


def refusal_of(server: str, answer: httpx.Response) -> GanglineError:
    """Return the error of an answer that is no success."""
    problem = problem_of(answer)
    if is_from_gangline(problem):
        return to_error(answer.status_code, problem)
    return transport.not_ours(server, answer)


def retry_after_s(answer: httpx.Response) -> int | None:
    """Return after how many seconds the server allows a request that it refused as one too many; None for any other answer."""
    if answer.status_code != TOO_MANY:
        return None
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


def tag_of(answer: httpx.Response) -> str:
    """Return the entity tag of an answer. Raise `UserError` if it has none."""
    tag = str(answer.headers.get("etag", ""))
    if not tag:
        raise UserError(f"{answer.request.url} has no entity tag", hint="update the server, or leave out `version`")
    return tag


def number_after(answer: httpx.Response) -> int:
    """Return the number after which the next page of an answer begins, from its header `Link`."""
    after = httpx.URL(answer.links.get("next", {}).get("url", "")).params.get("after", "")
    if not after.isdecimal():
        raise _not_as_expected(answer)
    return int(after)


def _parse(kind: type[T], content: bytes, answer: httpx.Response) -> T:
    try:
        return _adapter(kind).validate_json(content)
    except ValueError:
        raise _not_as_expected(answer) from None


def _not_as_expected(answer: httpx.Response) -> Unreachable:
    return Unreachable(
        f"{answer.request.url.copy_with(query=None)} did not answer as a Gangline server does",
        hint="check the address of the server",
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
