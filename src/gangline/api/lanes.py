"""Run requests in separate thread pools (lanes), so that no kind of request takes the threads of another: least of all a heartbeat's.

Lanes have few threads. While more requests come than can be answered, every thread is ready to run, and between two of its turns the event
loop waits up to 5 ms for the interpreter lock for each of them; a heartbeat needs two turns. With fewer threads the other requests wait in
their lane instead. Four still overlap what a request waits for the database.

The event loop reads and checks a request. One hop into its lane then authenticates, runs the use case and serializes the answer. A lane's
threads live as long as the process, so a store may keep a connection for each.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Signature, iscoroutinefunction, signature
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from fastapi import Request, Response
from fastapi.params import Body
from fastapi.routing import APIRoute
from pydantic_core import to_json

from gangline.api.tags.entity_tags import entity_tag, unless_known
from gangline.core.errors import Unreachable
from gangline.core.parsing import EXACT_NUMBERS
from gangline.core.views import JobView

T = TypeVar("T")
FORM, JSON = b"application/x-www-form-urlencoded", b"application/json"


class Lane:
    """A pool of `threads`. At most `waiting_max` requests wait for one, none for longer than `wait_s`."""

    def __init__(self, name: str, *, threads: int, waiting_max: int, wait_s: float) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._inside_max = threads + waiting_max
        self._wait_s = wait_s
        self._inside = 0

    async def run(self, act: Callable[[], T]) -> T:
        """Return the result of `act`, run in a thread of this lane.

        Raise `Unreachable` if none was free in time; then `act` was not run.
        """
        if self._inside >= self._inside_max:
            raise _busy()
        self._inside += 1
        work = self._pool.submit(act)
        giving_up = asyncio.get_running_loop().call_later(self._wait_s, work.cancel)  # no effect once it has begun
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            # Either the client has left and this task is canceled, or the timer canceled the work before it began.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _busy() from None
        finally:
            giving_up.cancel()
            self._inside -= 1


def _busy() -> Unreachable:
    return Unreachable("the server has too many requests of this kind at the moment", hint="try again")


HEARTBEATS = Lane("heartbeats", threads=2, waiting_max=10_000, wait_s=15)
WORKERS = Lane("workers", threads=4, waiting_max=10_000, wait_s=15)
USERS = Lane("users", threads=4, waiting_max=1000, wait_s=5)
OBJECTS = Lane("objects", threads=4, waiting_max=1000, wait_s=15)
OPERATIONS = Lane("operations", threads=1, waiting_max=100, wait_s=5)
PROVIDERS = Lane("providers", threads=2, waiting_max=20, wait_s=5)
REPORTS = Lane("reports", threads=1, waiting_max=20, wait_s=30)
FOLLOWING = Lane("following", threads=1, waiting_max=0, wait_s=5)


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A value that only a thread can look up. An endpoint in a lane gets the value itself."""

    get: Callable[[], T]


class LaneRoute(APIRoute):
    """A route whose endpoint runs in a lane."""

    lane: ClassVar[Lane]

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        status = options.get("status_code") or 200
        super().__init__(path, _in_lane(self.lane, endpoint, status), **options)


class WorkerRoute(LaneRoute):
    lane = WORKERS


class UserRoute(LaneRoute):
    """A route for users, where every body is JSON: `curl -d` declares its data as a form by default.

    That opens no hole for forged requests: a browser never sends a key by itself, so another site's form has none.
    """

    lane = USERS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_json(request: Request) -> Response:
            headers = [(name, JSON if value == FORM else value) for name, value in request.scope["headers"]]
            asked = Request({**request.scope, "headers": headers}, request.receive)
            return unless_known(request, await answer(asked))

        return answer_json


class ProviderRoute(UserRoute):
    """A route for operators that may wait for a provider of nodes."""

    lane = PROVIDERS


class ReportRoute(UserRoute):
    """A route that may read very many rows: one request at a time, so that all others have their threads and the processor."""

    lane = REPORTS


class ObjectRoute(LaneRoute):
    lane = OBJECTS


class OperationsRoute(LaneRoute):
    lane = OPERATIONS


def json_response(value: Any, status: int = 200) -> Response:
    """Return the response of one of our own values, serialized once and without validation. That of a job has its tag."""
    if value is None:
        return Response(status_code=status)
    body = to_json(value, inf_nan_mode="null")
    headers = {"ETag": entity_tag(body, value.summary.id, value.version)} if isinstance(value, JobView) else None
    return Response(body, status, headers, media_type="application/json")


def _in_lane(lane: Lane, endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    endpoint.__signature__ = _with_exact_numbers(signature(endpoint))  # type: ignore[attr-defined]
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def answer(**given: Any) -> Response:
        def act() -> Response:
            found = endpoint(**{name: _now(value) for name, value in given.items()})
            return found if isinstance(found, Response) else json_response(found, status)

        return await lane.run(act)

    return answer


def _with_exact_numbers(found: Signature) -> Signature:
    """Mark the parameters that are read from the body, so that only a JSON number counts as a number there."""
    return found.replace(
        parameters=[
            parameter.replace(annotation=Annotated[parameter.annotation, EXACT_NUMBERS])
            if is_dataclass(parameter.annotation)
            or any(isinstance(mark, Body) for mark in getattr(parameter.annotation, "__metadata__", ()))
            else parameter
            for parameter in found.parameters.values()
        ]
    )


def _now(value: Any) -> Any:
    return value.get() if isinstance(value, Later) else value
