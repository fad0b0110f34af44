"""A hub of models on this machine, as the Hugging Face hub answers: what a revision stands for, files of its own and files elsewhere."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse

from tests.servers import served

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "somebody/tiny-sdxl"
TOKEN = "hf_of_a_member"


@dataclass
class FakeHub:
    """`folder` as the one revision of `REPO`; weights lie elsewhere, at URLs that ask for no token. `asked` are the paths of files
    that were read."""

    folder: Path
    gated: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    asked: list[str] = field(default_factory=list)
    api_asked: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()
        app.add_route("/api/models/{org}/{name}/revision/{revision}", self._model, methods=["GET"])
        app.add_route("/{org}/{name}/resolve/{revision}/{path:path}", self._resolve, methods=["GET", "HEAD"])
        app.add_route("/elsewhere/{path:path}", self._elsewhere, methods=["GET", "HEAD"])
        return app

    async def _model(self, request: Request) -> Response:
        self.api_asked += 1
        if refused := self._refusal(request, listing=True):
            return refused
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        siblings = [self._sibling(name) for name in names]
        gated = "manual" if self.gated else False
        said = {"sha": COMMIT, "gated": gated, "cardData": self.card, "siblings": siblings}
        return JSONResponse(said | self._config())

    def _config(self) -> dict[str, Any]:
        """The hub says to everybody of which class a pipeline is, of a gated one too."""
        index = self.folder / "model_index.json"
        kind = json.loads(index.read_text()).get("_class_name") if index.is_file() else None
        return {"config": {"diffusers": {"_class_name": kind}}} if kind else {}

    async def _resolve(self, request: Request) -> Response:
        path = request.path_params["path"]
        if refused := self._refusal(request, listing=False):
            return refused
        if not (self.folder / path).is_file():
            return Response(status_code=404, headers={"x-error-code": "EntryNotFound"})
        if path.endswith(".safetensors"):
            return RedirectResponse(f"{self.url.replace('127.0.0.1', 'localhost')}/elsewhere/{path}", 302)
        return self._file(request, path)

    async def _elsewhere(self, request: Request) -> Response:
        if "authorization" in request.headers:
            return Response(status_code=400)  # as a store does that is asked with a signature and a token
        return self._file(request, request.path_params["path"])

    def _file(self, request: Request, path: str) -> Response:
        if request.method == "GET":
            self.asked.append(path)
        return FileResponse(self.folder / path)

    def _refusal(self, request: Request, *, listing: bool) -> Response | None:
        if (request.path_params["org"], request.path_params["name"]) != tuple(REPO.split("/")):
            return Response(status_code=401, headers={"x-error-code": "RepoNotFound"})
        if request.path_params["revision"] not in (COMMIT, "main"):
            return Response(status_code=404, headers={"x-error-code": "RevisionNotFound"})
        if self.gated and not listing and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=403, headers={"x-error-code": "GatedRepo"})
        return None

    def _sibling(self, name: str) -> dict[str, Any]:
        content = (self.folder / name).read_bytes()
        said: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": "0" * 40}
        if name.endswith(".safetensors"):
            said["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 135}
        return said


@contextmanager
def fake_hub(folder: Path, **facts: Any) -> Iterator[FakeHub]:
    hub = FakeHub(folder, **facts)
    with served(hub.app()) as url:
        hub.url = url
        yield hub
