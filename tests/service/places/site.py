"""A site on loopback with photos, for tests that fetch from it."""

import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image


def picture(colour: str = "red", side: int = 64) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(out, "PNG")
    return out.getvalue()


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as into:
        for name, content in files.items():
            into.writestr(name, content)
    return out.getvalue()


class Site:
    """Files by their paths; `asked` has what was asked for; `before` is called with each path and may return a status; `length` is what is
    told of it, empty for nothing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.before: Callable[[str], int | None] = lambda path: None
        self.length: Callable[[str], str] = lambda path: str(len(self.files.get(path, b"")))
        self.url = ""

    def put(self, path: str, content: bytes) -> str:
        self.files[f"/{path}"] = content
        return f"{self.url}/{path}"


@contextmanager
def a_site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            site.asked.append(path)
            status = site.before(path) or (200 if path in site.files else 404)
            content = site.files[path] if status == 200 else b""
            self.send_response(status)
            length = site.length(path) if status == 200 else "0"
            if length:
                self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield site
    server.shutdown()
    server.server_close()
