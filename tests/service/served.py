"""The application behind a real socket, for what needs one: streams, and clients."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from gangline.api.serve import ApiServer, listen


class Served:
    def __init__(self, app: FastAPI, port: int = 0) -> None:
        listening = listen("127.0.0.1", port)
        self.port: int = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = app
        self._server = ApiServer(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()

    def stop(self, within_s: float = 60) -> bool:
        """Whether it ended in time."""
        self._server.should_exit = True
        self._thread.join(within_s)
        return not self._thread.is_alive()


@contextmanager
def serving(app: FastAPI, port: int = 0) -> Iterator[Served]:
    served = Served(app, port)
    try:
        yield served
    finally:
        assert served.stop()
