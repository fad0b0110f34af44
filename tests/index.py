"""An index of packages like PyPI's, on this machine, with one small package."""

import base64
import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

NAME, VALUE = "smallest", "from the package"
WHEEL = f"{NAME}-1.0-py3-none-any.whl"
FILES = {
    f"{NAME}.py": f"VALUE = {VALUE!r}\n\ndef main():\n    print('its program says: ' + VALUE)\n",
    f"{NAME}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
    f"{NAME}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{NAME}-1.0.dist-info/entry_points.txt": f"[console_scripts]\n{NAME} = {NAME}:main\n",
}


@dataclass
class Index:
    url: str
    asked: list[str] = field(default_factory=list)

    @property
    def downloads(self) -> int:
        """Return how often the package was downloaded."""
        return sum(path.endswith(WHEEL) for path in self.asked)

    def requirements(self, *packages: str) -> str:
        return "\n".join([f"--index-url {self.url}/simple", *(packages or (NAME,)), ""])


def wheel() -> bytes:
    made, record = io.BytesIO(), ""
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
            sha256 = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={sha256},{len(text)}\n"
        archive.writestr(f"{NAME}-1.0.dist-info/RECORD", f"{record}{NAME}-1.0.dist-info/RECORD,,\n")
    return made.getvalue()


@contextmanager
def package_index() -> Iterator[Index]:
    content = wheel()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            pages = {f"/simple/{NAME}/": (f'<a href="/{WHEEL}">{WHEEL}</a>'.encode(), "text/html")}
            body, kind = (pages | {f"/{WHEEL}": (content, "application/zip")}).get(self.path, (b"", ""))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index = Index(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
