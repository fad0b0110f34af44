"""Convert every error to `application/problem+json`."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gangline.core.errors import GanglineError, NotFound, TooLarge, TooMany, TooSlow, UserError
from gangline.core.parsing import InvalidSpec, Problem, as_problem, problems
from gangline.ports.server import Refused, Stale
from gangline.wire.problem import MEDIA_TYPE, REFUSED, STALE, ProblemDetails, details, of_error

T = TypeVar("T")
log = logging.getLogger("gangline.api")
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


class RefusedRequest(Exception):
    """An expected refusal, which use cases return as a value, on its way to the answer."""

    def __init__(self, value: Stale | Refused) -> None:
        super().__init__(value.because)
        self.details = details(STALE if isinstance(value, Stale) else REFUSED, value.because)


def accepted(value: T | Stale | Refused) -> T:
    if isinstance(value, Stale | Refused):
        raise RefusedRequest(value)
    return value


def install(app: FastAPI) -> None:
    """Install the handlers of errors. They are asynchronous, so that no error waits for a thread."""

    async def expected(_: Request, error: Exception) -> JSONResponse:
        return of_expected(error)

    for kind in EXPECTED:
        app.add_exception_handler(kind, expected)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return of_http(request, error)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(details(GanglineError.code, "the server failed; its log says why"))


EXPECTED = (RefusedRequest, GanglineError, RequestValidationError)
"""The errors by which a route refuses a request."""


def of_expected(error: Exception) -> JSONResponse:
    """Return the answer for one of the `EXPECTED` errors."""
    match error:
        case RefusedRequest():
            return problem(error.details)
        case GanglineError():
            return of_our(error)
        case RequestValidationError():
            return problem(of_error(InvalidSpec(problems(list(error.errors()), _of_request))))
        case _:
            raise error


def of_http(request: Request, error: HTTPException) -> JSONResponse:
    """Return the answer to a request that no route answers."""
    kind = NotFound if error.status_code == 404 else UserError
    found = details(kind.code, f"{request.method} {request.url.path}: {error.detail}")
    return problem(found, status=error.status_code, headers=error.headers)


def of_our(error: GanglineError) -> JSONResponse:
    """Return the answer for one of our errors. The body of a refused request is not read, so its connection is closed."""
    answer = problem(of_error(error))
    if isinstance(error, TooLarge | TooSlow):
        answer.headers["Connection"] = "close"
    if isinstance(error, TooMany):
        answer.headers["Retry-After"] = str(error.wait_whole_s)
    return answer


def problem(found: ProblemDetails, *, status: int = 0, headers: Mapping[str, str] | None = None) -> JSONResponse:
    body = asdict(found) | ({"status": status} if status else {})
    return JSONResponse(body, body["status"], dict(headers or {}) | HEADERS.get(body["status"], {}), MEDIA_TYPE)


APART, PLAIN = "apart", "plain"
"""The shapes of a submission: its spec in a field of its own, or its settings at the top level."""


def of_body(found: dict[str, Any]) -> Problem:
    """Return the problem of a body's field, without the name of the shape that the body was taken for."""
    place = found["loc"]
    return as_problem(found | {"loc": place[1:] if place[:1] in ((APART,), (PLAIN,)) else place}, "body")


def _of_request(found: dict[str, Any]) -> Problem:
    """Return the problem of a request's field, without the part of the request (body, query, …) that it is in."""
    return of_body(found | {"loc": found["loc"][1:]})
