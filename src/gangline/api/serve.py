"""Run a server's loops, which decide nothing: the application, the controller's ticks, and the threads that verify checkpoints, mirror
gated models, download photos, check data sets, make thumbnails, deliver results, feed trackers and send notices.
"""

import asyncio
import faulthandler
import gc
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, Protocol, cast

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from gangline.api.answers.streams import Followers
from gangline.api.limits.slow_headers import TimedProtocol
from gangline.api.operating.exposition import ProcessMetrics
from gangline.core.errors import UserError
from gangline.ports.tracker import Tracker
from gangline.service.content.deliver import deliver
from gangline.service.content.imports import fetch_photos
from gangline.service.content.mirror import mirror
from gangline.service.controller import Controller
from gangline.service.datasets.check import check_datasets
from gangline.service.deployment import Deployment
from gangline.service.jobs.track import Tracking
from gangline.service.jobs.verify import verify
from gangline.service.notices.send import NoticeSender, Sending
from gangline.service.pictures.thumbnails import make_thumbnails

log = logging.getLogger("gangline.controller")
KEEP_ALIVE_S = 75
"""Seconds. Longer than clients keep an idle connection, so that none is closed while a request is on its way."""


TELLING_ENDS_S = 15.0
"""Seconds to wait for a tracker at the end. What it did not get by then, the next server sends."""


GLANCE_S = 0.25
"""Seconds between two looks for what has just come: facts without a number, and work for which a node is rented at once."""
NOTICE_S = 0.2
"""Seconds between two looks for notices that are due."""
NOTICES_TOGETHER_S = 0.05
"""Seconds after a notice has been sent in which the results of others are collected, to be recorded together."""
NOTICES_END_S = 2.0
"""Seconds to wait at the end for notices that are on their way. The next server sends those again that are not there by then."""
SIGNAL_S = 1.0
"""Seconds between two checks for a signal.

One that arrives just before a thread goes to sleep does not wake it, so without this limit the server might never notice it.
"""
FINISHING_S = 20
"""Seconds to wait at the end for the answers that are under way, such as to a part of an upload; one that has none waits for nothing."""
ENDING_S = 45.0
"""Seconds until a stopped server whose nodes have left exits, even if a thread never returns. Answers, notices and trackers fit in.

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


class ServedApp(Protocol):
    """An ASGI application. Its `state` has its `limits`, and its `streams`, which end by `close()`."""

    @property
    def state(self) -> State: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class ApiServer(uvicorn.Server):
    """A uvicorn server that ends the streams before it waits for the remaining answers."""

    def __init__(self, app: ServedApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                log_config=None,  # its lines go to our handlers, which escape them
                access_log=False,
                server_header=False,
                http=cast(Any, partial(TimedProtocol, headers_s=app.state.limits.headers_s)),
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=FINISHING_S,
            )
        )
        self._streams: list[Followers] = app.state.streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._streams:
            each.close()
        await super().shutdown(sockets)


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set. Call it from the main thread."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def serve(
    app: FastAPI,
    deployment: Deployment,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    stopping: Callable[[], None],
    drain_s: float = 0,
) -> None:
    """Serve until SIGTERM or SIGINT. Call it from the main thread.

    Then the server is not ready any more, but answers for `drain_s` seconds, or until another signal: whoever balances the load can notice.
    All that it does besides continues as long, since claims are still answered. `stopping` is called next, while requests are answered.
    Leases are not touched: nodes continue with the next server.
    """
    _collect_seldom()
    asked, stop = stopped_by_signals(), threading.Event()
    server = ApiServer(app)
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http")
    ticking = threading.Thread(
        target=_keep_ticking, args=(deployment, app.state.process_metrics, stop), name="controller"
    )
    verifying = threading.Thread(target=_keep_verifying, args=(deployment, stop), name="verifier", daemon=True)
    copying = threading.Thread(target=_keep_copying, args=(deployment, stop), name="mirror", daemon=True)
    inspecting = threading.Thread(target=_keep_inspecting, args=(deployment, stop), name="inspector", daemon=True)
    shrinking = threading.Thread(target=_keep_shrinking, args=(deployment, stop), name="thumbnails", daemon=True)
    telling = [
        threading.Thread(target=_keep_telling, args=(deployment, tracker, stop), name=tracker.name, daemon=True)
        for tracker in deployment.trackers
    ]
    placing = [
        threading.Thread(target=keep, args=(deployment, number, stop), name=f"{name}-{number}", daemon=True)
        for name, keep in (("fetcher", _keep_fetching), ("deliverer", _keep_delivering))
        for number in range(deployment.fetching.at_once_max)
    ]
    sending = threading.Thread(target=_keep_sending, args=(deployment, stop), name="notices", daemon=True)
    for thread in (answering, ticking, verifying, copying, inspecting, shrinking, sending, *placing, *telling):
        thread.start()
    try:
        ready()
        while not asked.wait(SIGNAL_S):
            pass
        hurry = stopped_by_signals()
        app.state.readiness.stopping.set()
        _drain(drain_s, hurry)
    finally:
        app.state.readiness.stopping.set()
        stop.set()
        stopping()
        server.should_exit = True
        # never canceled: at exit the interpreter waits for threads, too
        faulthandler.dump_traceback_later(ENDING_S, exit=True)
        ticking.join()
        answering.join()
        sending.join(2 * NOTICES_END_S)
        for thread in telling:
            thread.join(TELLING_ENDS_S)


def _drain(seconds: float, hurry: threading.Event) -> None:
    """Wait this long, or until whoever stops the server is in a hurry."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0 and not hurry.wait(min(left_s, SIGNAL_S)):
        pass


def _collect_seldom() -> None:
    """Let the garbage collector run rarely.

    Reference counting frees what requests leave; a full collection would scan all loaded modules and delay a request by 0.1 s.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def _keep_ticking(deployment: Deployment, metrics: ProcessMetrics, stopping: threading.Event) -> None:
    controller, tick_s = Controller(deployment), deployment.policy.tick_interval_s
    due_s = time.monotonic()
    while not stopping.wait(min(GLANCE_S, max(0.0, due_s - time.monotonic()))):
        is_due = time.monotonic() >= due_s
        due_s = time.monotonic() + tick_s if is_due else due_s
        began_s, now_ms = time.monotonic(), None
        try:
            found_ms = deployment.store.now_ms()
            (controller.tick if is_due else controller.glance)(found_ms)
            now_ms = found_ms
        except Exception:
            log.exception("a tick failed; the next one tries again")
        if is_due or now_ms is None:
            metrics.note_round(time.monotonic() - began_s, now_ms)


def _keep_verifying(deployment: Deployment, stopping: threading.Event) -> None:
    """Verify checkpoints in a thread that is not waited for at the end: reading a large file back takes long, and starting over does no
    harm.
    """
    _keep_at(lambda: verify(deployment), "verifying checkpoints", deployment, stopping)


def _keep_copying(deployment: Deployment, stopping: threading.Event) -> None:
    """Mirror gated models in their own thread. Progress is recorded part by part, so this thread is not waited for either."""
    _keep_at(lambda: mirror(deployment), "copying bases from the hub", deployment, stopping)


def _keep_inspecting(deployment: Deployment, stopping: threading.Event) -> None:
    """Check data sets in their own thread. Each step is recorded, so this thread is not waited for either."""
    _keep_at(lambda: check_datasets(deployment), "checking data sets", deployment, stopping)


def _keep_shrinking(deployment: Deployment, stopping: threading.Event) -> None:
    """Make thumbnails in their own thread: pictures do not wait for a large data set, nor that for them."""
    _keep_at(lambda: make_thumbnails(deployment), "making thumbnails", deployment, stopping)


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


def _keep_sending(deployment: Deployment, stopping: threading.Event) -> None:
    """Send notices in an event loop of their own, many at the same time: no receiver delays another, or anything else."""
    with asyncio.Runner() as runner:
        runner.run(_send_notices(deployment, stopping))


async def _send_notices(deployment: Deployment, stopping: threading.Event) -> None:
    """Let the store be used by a thread beside the loop, so that a transaction that waits for the disk holds up no request."""
    sender = NoticeSender(deployment, Random())  # noqa: S311 - jitter, not a secret
    loop, storing = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix="notices")
    sending = set[asyncio.Task[None]]()

    def turn() -> list[Sending]:
        return sender.turn(deployment.store.now_ms())  # the clock is the store's, so reading it may wait, too

    def settle() -> None:
        sender.settle(deployment.store.now_ms())

    while not stopping.is_set():
        try:
            for each in await loop.run_in_executor(storing, turn):
                sending.add(asyncio.create_task(sender.send(each)))
        except Exception:
            log.exception("sending notices failed; it will be retried")
        pause_s = NOTICES_TOGETHER_S if sending else NOTICE_S
        if sending:
            _, sending = await asyncio.wait(sending, timeout=NOTICE_S, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(pause_s)
    if sending:
        await asyncio.wait(sending, timeout=NOTICES_END_S)
    await loop.run_in_executor(storing, settle)
    storing.shutdown()
