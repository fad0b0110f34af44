"""What differs between the two clients: how they pause, leave work to a thread, do several things at once, and stop in time.

The asynchronous client has a file of the same functions. But for this and `calls.py`, the files of this folder are made of those of `aio`.
"""

import socket
import threading
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import ParamSpec, TypeVar

import httpx

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def in_thread(function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Call it here: who asks synchronously waits for it anyway."""
    return function(*args, **named)


def for_each(function: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    """Return the result for each item, in order, at most `at_once` of them at a time. The first error ends the others.

    Ctrl-C does not wait for what is under way: the threads are daemons.
    """
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    remaining, lock = iter(enumerate(items)), threading.Lock()

    def work() -> None:
        while not errors:
            with lock:
                found = next(remaining, None)
            if found is None:
                return
            try:
                results[found[0]] = function(found[1])
            except BaseException as error:  # raised in the caller's thread
                errors.append(error)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(items)))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException as error:
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]


def chunks_until(answer: httpx.Response, until_s: float | None) -> Generator[bytes]:
    """Yield what arrives until a moment of the monotonic clock; None: until the answer ends.

    A read that waits cannot be given another time limit, so its connection is shut down at that moment.
    """
    if until_s is None:
        yield from answer.iter_bytes()
        return
    connection: socket.socket = answer.extensions["network_stream"].get_extra_info("socket")
    timer = threading.Timer(max(0.0, until_s - monotonic()), _shut_down, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield from answer.iter_bytes()
    except httpx.TransportError:
        if monotonic() < until_s:
            raise
    finally:
        timer.cancel()


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the server was quicker
        return
