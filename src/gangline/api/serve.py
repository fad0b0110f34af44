"""Run a server's loops, which decide nothing: the application, the controller's ticks, and the threads that verify checkpoints, mirror
gated models, download photos, deliver results and feed trackers.
"""

import faulthandler
import gc
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from gangline.api.answers.streams import Followers
from gangline.api.limits.slow_headers import TimedProtocol
from gangline.core.errors import UserError
from gangline.ports.tracker import Tracker
from gangline.service.content.deliver import deliver
from gangline.service.content.imports import fetch_photos
from gangline.service.content.mirror import mirror
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment
from gangline.service.jobs.track import Tracking
from gangline.service.jobs.verify import verify

log = logging.getLogger("gangline.controller")
KEEP_ALIVE_S = 75
"""Seconds. Longer than clients keep an idle connection, so that none is closed while a request is on its way."""


TELLING_ENDS_S = 15.0
"""Seconds to wait for a tracker at the end. What it did not get by then, the next server sends."""


GLANCE_S = 0.5
"""Seconds between two looks for work that has just come, for which a node is rented at once."""
SIGNAL_S = 1.0
"""Seconds between two checks for a signal.

One that arrives just before a thread goes to sleep does not wake it, so without this limit the server might never notice it.
"""
ENDING_S = 30.0
"""Seconds until a stopped server whose nodes have left exits, even if a thread never returns.

The timer is a thread in C, so a thread that holds the interpreter lock cannot block it; it prints the stack of every thread.
"""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise `UserError` if the address is taken or not on this machine."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:  # no host name has such characters
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror if isinstance(error, OSError) else error}",
            hint="is another server running there? choose another port with --port",
        ) from None
    listening.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # else Nagle's algorithm holds an answer's second packet for 40 ms, until an ACK
    return listening


class ApiServer(uvicorn.Server):
    """A uvicorn server that ends the streams before it waits for the remaining answers."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                log_config=None,  # its lines go to our handlers, which escape them
                access_log=False,
                server_header=False,
                http=cast(Any, partial(TimedProtocol, headers_s=app.state.limits.headers_s)),
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=5,
            )
        )
        self._followers: Followers = app.state.followers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._followers.close()
        await super().shutdown(sockets)


def serve(
    app: FastAPI,
    deployment: Deployment,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT. `stopping` is called while requests are still answered. Call it from the main thread."""
    _collect_seldom()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = ApiServer(app)
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http")
    ticking = threading.Thread(target=_keep_ticking, args=(deployment, stop), name="controller")
    verifying = threading.Thread(target=_keep_verifying, args=(deployment, stop), name="verifier", daemon=True)
    copying = threading.Thread(target=_keep_copying, args=(deployment, stop), name="mirror", daemon=True)
    telling = [
        threading.Thread(target=_keep_telling, args=(deployment, tracker, stop), name=tracker.name, daemon=True)
        for tracker in deployment.trackers
    ]
    placing = [
        threading.Thread(target=keep, args=(deployment, number, stop), name=f"{name}-{number}", daemon=True)
        for name, keep in (("fetcher", _keep_fetching), ("deliverer", _keep_delivering))
        for number in range(deployment.fetching.at_once_max)
    ]
    for thread in (answering, ticking, verifying, copying, *placing, *telling):
        thread.start()
    try:
        ready()
        while not stop.wait(SIGNAL_S):
            pass
    finally:
        stop.set()
        stopping()
        server.should_exit = True
        # never canceled: at exit the interpreter waits for threads, too
        faulthandler.dump_traceback_later(ENDING_S, exit=True)
        ticking.join()
        answering.join()
        for thread in telling:
            thread.join(TELLING_ENDS_S)


def _collect_seldom() -> None:
    """Let the garbage collector run rarely.

    Reference counting frees what requests leave; a full collection would scan all loaded modules and delay a request by 0.1 s.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def _keep_ticking(deployment: Deployment, stopping: threading.Event) -> None:
    controller, tick_s = Controller(deployment), deployment.policy.tick_interval_s
    due_s = time.monotonic()
    while not stopping.wait(min(GLANCE_S, max(0.0, due_s - time.monotonic()))):
        is_due = time.monotonic() >= due_s
        due_s = time.monotonic() + tick_s if is_due else due_s
        try:
            (controller.tick if is_due else controller.glance)(deployment.store.now_ms())
        except Exception:
            log.exception("a tick failed; the next one tries again")


def _keep_verifying(deployment: Deployment, stopping: threading.Event) -> None:
    """Verify checkpoints in a thread that is not waited for at the end: reading a large file back takes long, and starting over does no
    harm.
    """
    _keep_at(lambda: verify(deployment), "verifying checkpoints", deployment, stopping)


def _keep_copying(deployment: Deployment, stopping: threading.Event) -> None:
    """Mirror gated models in their own thread. Progress is recorded part by part, so this thread is not waited for either."""
    _keep_at(lambda: mirror(deployment), "copying bases from the hub", deployment, stopping)


def _keep_fetching(deployment: Deployment, number: int, stopping: threading.Event) -> None:
    """Download photos in several threads: one user's slow addresses delay nobody else."""
    _keep_at(lambda: fetch_photos(deployment, number), "fetching photos", deployment, stopping)


def _keep_delivering(deployment: Deployment, number: int, stopping: threading.Event) -> None:
    """Deliver results in threads apart from downloads: slow addresses of users delay no delivery."""
    _keep_at(lambda: deliver(deployment, number), "delivering results", deployment, stopping)


def _keep_at(work: Callable[[], Iterator[None]], what: str, deployment: Deployment, stopping: threading.Event) -> None:
    while not stopping.wait(deployment.policy.tick_interval_s):
        try:
            for _ in work():
                if stopping.is_set():
                    return
        except Exception:
            if not stopping.is_set():
                log.exception("%s failed; it will be retried", what)


def _keep_telling(deployment: Deployment, tracker: Tracker, stopping: threading.Event) -> None:
    """Send metrics to a tracker in its own thread, as a tracker may be slow."""
    tracking = Tracking(deployment, tracker, Random())  # noqa: S311 - jitter, not a secret
    while not stopping.wait(deployment.policy.tick_interval_s):
        try:
            tracking.look(deployment.store.now_ms())
        except Exception:
            log.exception("sending metrics to %s failed; it will be retried", tracker.name)
    tracking.close()
