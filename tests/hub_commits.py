"""A stub of the hub's commit API: repositories, preupload, Git LFS's batch, a commit in NDJSON."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = (".safetensors", ".png")


class CommitHub:
    """`files` of each repository; `commits` as they came; `refuse` may give a status for a path."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.url = ""
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.lfs: dict[str, bytes] = {}
        self.verified: list[str] = []
        self.commits: list[list[dict[str, Any]]] = []
        self.refuse: Callable[[str], int | None] = lambda path: None

    def answer(self, path: str, body: bytes, authorization: str | None) -> tuple[int, Any]:
        status = self.refuse(path) or (401 if authorization != f"Bearer {self.token}" else None)
        if status:
            return status, {"error": "no"}
        if path == "/api/repos/create":
            return self.create(body)
        if path == "/api/validate-yaml":  # which the hub's own client asks of a README
            return 200, {"errors": [], "warnings": []}
        if path == "/verify":
            return self.verify(body)
        if re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            return self.preupload(body)
        if re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return self.batch(body)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            return self.commit(match[1], body)
        return 404, {"error": path}

    def verify(self, body: bytes) -> tuple[int, Any]:
        found = json.loads(body)
        self.verified.append(found["oid"])
        return (200 if len(self.lfs.get(found["oid"], b"")) == found["size"] else 404), {}

    def create(self, body: bytes) -> tuple[int, Any]:
        wanted = json.loads(body)
        repo = f"{wanted['organization']}/{wanted['name']}"
        if repo in self.repos:
            return 409, {"error": "You already created this model repo"}
        self.repos[repo], self.private[repo] = {}, wanted["visibility"] == "private"
        return 200, {"url": f"{self.url}/{repo}", "name": repo, "id": "0"}

    def preupload(self, body: bytes) -> tuple[int, Any]:
        asked = json.loads(body)["files"]
        assert all(len(base64.b64decode(each["sample"])) <= 512 for each in asked)
        modes = {each["path"]: "lfs" if each["path"].endswith(LARGE) else "regular" for each in asked}
        files = [{"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None} for path, mode in modes.items()]
        return 200, {"files": files}

    def batch(self, body: bytes) -> tuple[int, Any]:
        asked = json.loads(body)
        assert asked["operation"] == "upload" and "basic" in asked["transfers"]
        return 200, {"transfer": "basic", "objects": [self._object(each) for each in asked["objects"]]}

    def _object(self, each: dict[str, Any]) -> dict[str, Any]:
        if each["oid"] in self.lfs:
            return each
        upload = {"href": f"{self.url}/store/{each['oid']}"}
        verify = {"href": f"{self.url}/verify", "header": {"Authorization": f"Bearer {self.token}"}}
        return each | {"actions": {"upload": upload, "verify": verify}}

    def commit(self, repo: str, body: bytes) -> tuple[int, Any]:
        lines = [json.loads(line) for line in body.splitlines()]
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"]
        for line in lines[1:]:
            value = line["value"]
            content = self.lfs[value["oid"]] if line["key"] == "lfsFile" else base64.b64decode(value["content"])
            self.repos[repo][value["path"]] = content
        self.commits.append(lines)
        url = f"{self.url}/{repo}/commit/{'0' * 40}"
        return 200, {"success": True, "commitOid": "0" * 40, "commitUrl": url, "hookOutput": ""}


@contextmanager
def commit_hub(token: str) -> Iterator[CommitHub]:
    hub = CommitHub(token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _body(self) -> bytes:
            if "chunked" not in (self.headers["Transfer-Encoding"] or ""):
                return self.rfile.read(int(self.headers["Content-Length"] or 0))
            content = b""
            while length := int(self.rfile.readline(), 16):
                content += self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _answer(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self._answer(*hub.answer(self.path, self._body(), self.headers["Authorization"]))

        def do_PUT(self) -> None:
            body, oid = self._body(), self.path.rpartition("/")[2]
            right = hashlib.sha256(body).hexdigest() == oid and not self.headers["Authorization"]
            if right:
                hub.lfs[oid] = body
            self._answer(200 if right else 400, {})

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield hub
    server.shutdown()
    server.server_close()
