"""Serve the application and tick the controller. The server's only loop; it decides nothing."""

import logging
import signal
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from gangline.core.errors import UserError
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment

log = logging.getLogger("gangline.controller")


def listen(host: str, port: int) -> socket.socket:
    """Raises `UserError` where the address is taken or not ours."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror if isinstance(error, OSError) else error}",
            hint="is another server running there? choose another port with --port",
        ) from None
    return listening


def serve(
    app: FastAPI,
    deployment: Deployment,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Until SIGTERM or SIGINT. `stopping` is called while requests are still answered. Call it from the main thread."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5))
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http")
    ticking = threading.Thread(target=_keep_ticking, args=(deployment, stop), name="controller")
    answering.start()
    ticking.start()
    try:
        ready()
        stop.wait()
    finally:
        stop.set()
        stopping()
        server.should_exit = True
        ticking.join()
        answering.join()


def _keep_ticking(deployment: Deployment, stopping: threading.Event) -> None:
    controller = Controller(deployment)
    while not stopping.wait(deployment.policy.tick_interval_s):
        try:
            controller.tick(deployment.store.now_ms())
        except Exception:
            log.exception("a tick failed; the next one tries again")
