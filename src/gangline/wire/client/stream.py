# Made of src/gangline/wire/aio/stream.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""Follow a stream of server-sent events until its end, across interruptions."""

from collections.abc import Generator, Mapping
from contextlib import closing
from random import Random
from typing import Any

from gangline.core.errors import Unreachable
from gangline.core.jobs.retry import retry_s
from gangline.wire.client.http import Http
from gangline.wire.client.waits import chunks_until, sleep
from gangline.wire.stream import (
    END,
    MessageParser,
    StreamMessage,
    Waiting,
    moment_after,
    parse_message,
    seconds_left,
    stream_timeout,
)


def follow(
    http: Http,
    path: str,
    after: str,
    kinds: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
    waiting: Waiting | None = None,
    reached: bool = False,
) -> Generator[Any]:
    """Yield every message once, as a value of its kind, up to the end of the stream or of the time limit.

    Where the connection is lost, connect again and resume after the last message; call `waiting` each time. Raise the error of a problem,
    and `Unreachable` if the first connection fails, unless the caller has `reached` the server just before.
    """
    following = _messages(http, path, after, moment_after(timeout_s), waiting, began=reached)
    with closing(following) as messages:
        for message in messages:
            yield parse_message(message, kinds)


def _messages(
    http: Http, path: str, after: str, until_s: float | None, waiting: Waiting | None, *, began: bool
) -> Generator[StreamMessage]:
    tries, rng = 0, Random()  # noqa: S311 - for jitter
    while seconds_left(until_s, 1.0):
        try:
            with http.stream(path, after, stream_timeout(until_s)) as answer:
                tries, began, parser = 0, True, MessageParser()
                with closing(chunks_until(answer, until_s)) as chunks:
                    for chunk in chunks:
                        for message in parser.feed(chunk):
                            after = message.id or after
                            yield message
                            if message.event == END:
                                return
        except Unreachable as error:
            if not seconds_left(until_s, 1.0):  # that is why
                return
            if not began:
                raise
            if waiting:
                waiting(error)
        sleep(seconds_left(until_s, retry_s(tries, rng)))
        tries += 1
