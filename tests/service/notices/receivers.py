"""Receivers of webhooks on this machine, each as some are: they remember what came, and answer as they are asked to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook


@dataclass
class Heard:
    """One message as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def verify(self, secret: str) -> Any:
        """As the reference implementation does: it raises an error if the signature is wrong or too old."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Site:
    """`answers` gives a path its status; 204 is what others are answered."""

    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    answers: dict[str, int | Callable[[], int]] = field(default_factory=dict)

    def at(self, path: str) -> list[Heard]:
        return [each for each in self.heard if each.path == path]

    def facts(self, path: str) -> list[int]:
        return [each.json["data"]["fact"] for each in self.at(path)]


@contextmanager
def receiving() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # who was sending it is dead
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.heard.append(Heard(self.path, headers, body))
            status = site.answers.get(self.path, 204)
            self.send_response(status if isinstance(status, int) else status())
            if status == 429:
                self.send_header("Retry-After", "600")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield site
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
