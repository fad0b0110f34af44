"""Requests that a client may repeat: those with an `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).

What they have made is in the store (`gangline.service.access.requests`). This server answers each of them once at a time: a repeated one
that comes before the first is answered is refused with 409. Where the two came to two servers, the store lets one of them make something.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Request

from gangline.api.lanes import Later
from gangline.core.errors import InProgress
from gangline.core.server.idempotency import HEADER_MAX, parse_key, request_fingerprint
from gangline.service.access.requests import KeyedRequest

SUBMIT = "POST /v1/jobs"
"""The endpoint whose keys jobs have as they were sent; those of all others have their endpoint before them."""
EVERY_PROJECT = ""
"""The project of keys of requests that are about none."""
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=HEADER_MAX,
        description="A key that makes the request safe to repeat: the same one makes nothing twice.",
    ),
]


class InFlight:
    """The requests with a key that this server is answering."""

    def __init__(self) -> None:
        self._keys = set[tuple[str, str, str]]()
        self._lock = threading.Lock()

    @contextmanager
    def alone(self, project: str, endpoint: str, key: str) -> Iterator[None]:
        """Hold the key. Raise `InProgress` if another request holds it."""
        held = (project, endpoint, key)
        with self._lock:
            if held in self._keys:
                raise InProgress(
                    "a request with this Idempotency-Key is being answered",
                    hint="wait for its answer, or send it again later",
                )
            self._keys.add(held)
        try:
            yield
        finally:
            with self._lock:
                self._keys.discard(held)


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request to an endpoint, with its key and its fingerprint if it has a key, and the `header` that the key was in."""

    endpoint: str
    key: str | None
    fingerprint: str | None
    in_flight: InFlight
    header: str | None = None

    @contextmanager
    def alone(self, project: str) -> Iterator[None]:
        """Hold the key while the request is answered. Raise `InProgress` if another request holds it."""
        if self.key is None:
            yield
        else:
            with self.in_flight.alone(project, self.endpoint, self.key):
                yield

    @property
    def request_of_job(self) -> str | None:
        """Return the key as a job remembers it. No header has a line break, so no two endpoints have a key in common."""
        return self.key if self.key is None or self.endpoint == SUBMIT else f"{self.endpoint}\n{self.key}"

    @property
    def released_request(self) -> str | None:
        """Return the key as servers that took the header as it is wrote it; None if that is the same."""
        return None if self.header == self.key or self.endpoint != SUBMIT else self.header

    def within(self, project: str) -> KeyedRequest | None:
        """Return the request for what makes no job."""
        if self.key is None or self.fingerprint is None:
            return None
        return KeyedRequest(project=project, endpoint=self.endpoint, key=self.key, fingerprint=self.fingerprint)


async def _repeatable(request: Request, idempotency_key: IdempotencyKey = None) -> Later[Repeatable]:
    """Return the request. Its fingerprint is made in the lane: for a megabyte that takes some 12 ms."""
    endpoint = f"{request.method} {request.scope['route'].path}"
    in_flight = cast(InFlight, request.app.state.in_flight)
    if idempotency_key is None:
        return Later(lambda: Repeatable(endpoint, None, None, in_flight))
    path, query, body = request.url.path, request.url.query, await request.body()
    key = parse_key(idempotency_key)
    return Later(lambda: Repeatable(endpoint, key, request_fingerprint(path, query, body), in_flight, idempotency_key))


Repeat = Annotated[Repeatable, Depends(_repeatable)]
RepeatLater = Annotated[Later[Repeatable], Depends(_repeatable)]
