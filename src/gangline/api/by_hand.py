"""Routes about an attempt, which are found, read and answered by hand. Nearly all requests of a large fleet are about attempts, and this
takes a third of the CPU that FastAPI takes.

FastAPI documents these routes from the signatures of their endpoints, whose parameters have the names `deployment`, `now`, `node` and
`hold`, as far as they need them; any other is the body.
"""

from collections.abc import Callable, Iterable
from functools import partial
from inspect import signature
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from gangline.api.answers.problems import EXPECTED, of_expected
from gangline.api.lanes import Lane, json_response
from gangline.api.who import deployment_of, holder
from gangline.ports.server import Hold

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

HOLD = TypeAdapter(Hold)
KNOWN = {"deployment", "now", "node", "hold"}


class AttemptRoute(APIRoute):
    """The route of one request about an attempt: its endpoint runs in `lane`."""

    def __init__(self, what: str, endpoint: Callable[..., Any], lane: Lane) -> None:
        super().__init__(f"/v1/attempts/{{attempt}}/{what}", endpoint, methods=["POST"], tags=["workers"])
        parameters = signature(endpoint).parameters
        (self._body,) = parameters.keys() - KNOWN
        self._read_body = partial(TypeAdapter(parameters[self._body].annotation).validate_json, strict=True)
        self._takes_time = "now" in parameters
        self._lane = lane
        self.what = what
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raise what is `EXPECTED`."""
        request = Request(scope, receive)
        deployment, node, body = deployment_of(request), holder(request), await request.body()
        fence = dict(parse_qsl(scope["query_string"].decode("latin-1"))) | request.path_params
        given = {
            "deployment": deployment,
            "hold": _read(HOLD.validate_strings, fence, "query"),
            self._body: _read(self._read_body, body, "body"),
        }

        def act() -> Any:
            asked = given | {"node": node.get()}
            if self._takes_time:
                asked["now"] = deployment.store.now_ms()
            return json_response(self.endpoint(**asked))

        answer = await self._lane.run(act)
        await answer(scope, receive, send)


class AttemptRoutes(list[AttemptRoute]):
    """Routes about attempts whose endpoints run in one lane."""

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self._lane = lane

    def post(self, what: str) -> Callable[[Endpoint], Endpoint]:
        """Add the decorated endpoint."""

        def add(endpoint: Endpoint) -> Endpoint:
            self.append(AttemptRoute(what, endpoint, self._lane))
            return endpoint

        return add


class StraightWay:
    """An ASGI middleware that takes a request about an attempt straight to its route. FastAPI's routers would find the same one, later."""

    def __init__(self, app: ASGIApp, routes: Iterable[AttemptRoute]) -> None:
        self._app = app
        self._routes = {route.what: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" and scope["method"] == "POST" else ():
            case ["", "v1", "attempts", attempt, what] if attempt and what in self._routes:
                scope["path_params"], scope["route"] = {"attempt": attempt}, self._routes[what]
                try:
                    await self._routes[what].app(scope, receive, send)
                except EXPECTED as error:
                    await of_expected(error)(scope, receive, send)
            case _:
                await self._app(scope, receive, send)


def _read(validate: Callable[[Any], Any], given: Any, where: str) -> Any:
    try:
        return validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError([one | {"loc": (where, *one["loc"])} for one in found]) from None
