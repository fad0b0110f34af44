"""Send HTTP requests: typed bodies out, typed answers in, problems raised as errors."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from gangline.core.access import as_secret
from gangline.tls import trusted
from gangline.wire import transport
from gangline.wire.aio.waits import async_sleep
from gangline.wire.http import (
    LIMITS,
    LINES_TIMEOUT,
    TIMEOUT,
    check_project,
    conditions_of,
    content_of,
    headers_of,
    parse_answer,
    reaching,
    refusal_of,
    retry_after_s,
)

T = TypeVar("T")


class AsyncHttp:
    def __init__(
        self,
        server: str,
        token: str,
        client: httpx.AsyncClient | None = None,
        *,
        project: str | None = None,
        patience_s: float = 0,
    ) -> None:
        """Create a connection. A request refused with 429 is repeated when the server allows, for at most `patience_s` seconds in all.

        Raise `BadInput` for an invalid token, `NotFound` for an invalid project.
        """
        check_project(project)
        self.server = server.rstrip("/")
        self.token = as_secret(token, "the key")
        self._project = project
        self._patience_s = patience_s
        try:
            with reaching(self.server):
                self._client = client or httpx.AsyncClient(
                    base_url=self.server, verify=trusted(), timeout=TIMEOUT, limits=LIMITS
                )
        except (ImportError, OSError) as error:
            raise transport.no_client(self.server, error) from None

    async def close(self) -> None:
        await self._client.aclose()

    async def read(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        key: str = "",
        tag: str = "",
        timeout: httpx.Timeout = TIMEOUT,
    ) -> T:
        """Return a successful answer as a value of `kind`. Raise as `ask` does."""
        answer = await self.ask(method, path, body, params=params, key=key, tag=tag, timeout=timeout)
        return parse_answer(kind, answer)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        key: str = "",
        tag: str = "",
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        """Return a successful answer. Raise the error of a problem, or `Unreachable`.

        `key` makes the request safe to repeat; `tag` is the entity tag of what the request must find unchanged.
        """
        content, about = content_of(body), conditions_of(key, tag)
        left_s = self._patience_s
        while True:
            answer = await self._send(method, path, content, "application/json", params, about, timeout)
            if answer.is_success:
                return answer
            wait_s = retry_after_s(answer)
            if wait_s is None or wait_s > left_s:
                raise refusal_of(self.server, answer)
            left_s -= wait_s
            await async_sleep(wait_s)

    async def send_lines(self, path: str, lines: Iterable[str], *, key: str) -> httpx.Response:
        """Send JSON lines as they are generated, so they cannot be sent a second time. Raise as `ask` does."""
        answer = await self._send(
            "POST", path, _encoded(lines), "application/jsonl", None, conditions_of(key), LINES_TIMEOUT
        )
        if not answer.is_success:
            raise refusal_of(self.server, answer)
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        content: str | AsyncIterable[bytes] | None,
        media_type: str,
        params: dict[str, Any] | None,
        conditions: dict[str, str],
        timeout: httpx.Timeout,
    ) -> httpx.Response:
        headers = headers_of(self.token, self._project) | conditions
        if content is not None:
            headers["Content-Type"] = media_type
        with reaching(self.server):
            return await self._client.request(
                method, path, content=content, headers=headers, params=params, timeout=timeout
            )

    @asynccontextmanager
    async def stream(self, path: str, last_event_id: str, timeout: httpx.Timeout) -> AsyncIterator[httpx.Response]:
        """Open an answer to be read while it arrives. Raise as `ask` does, also in the middle."""
        headers = headers_of(self.token, self._project)
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        with reaching(self.server):
            async with self._client.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise refusal_of(self.server, answer)
                yield answer


async def _encoded(lines: Iterable[str]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line.encode() + b"\n"
