"""Serve a replay on this machine until Ctrl-C."""

import socket
import threading
from collections.abc import Callable

from gangline.api.serve import SIGNAL_S, ApiServer, stopped_by_signals
from gangline.sim.replay.app import Replay


def serve_replay(replay: Replay, listening: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called once requests are answered. Call it from the main thread."""
    stop = stopped_by_signals()
    server = ApiServer(replay)
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http")
    answering.start()
    try:
        ready()
        while not stop.wait(SIGNAL_S):
            pass
    finally:
        server.should_exit = True
        answering.join()
