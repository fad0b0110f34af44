"""A service that checks data sets, and photos that are made for it."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.adapters.places.inspector import ProgramInspector
from gangline.data.images.sets.inspected import inspect_pictures, inspect_texts
from gangline.service.datasets.check import check_datasets
from tests.service.conftest import OPERATOR, Service


def picture(seed: int, size: tuple[int, int] = (24, 16), format: str = "PNG") -> bytes:
    """A small picture of noise, another one for each seed."""
    small = Image.effect_noise((8, 8), 60)
    small.putdata([(seed * 7919 + place * 104729 + (seed * place) % 251) % 256 for place in range(64)])
    out = io.BytesIO()
    small.convert("RGB").resize(size, Image.Resampling.NEAREST).save(out, format)
    return out.getvalue()


def named(path: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@dataclass
class Sets:
    """What a test asks of the data sets of a service."""

    service: Service

    def upload(self, *contents: bytes) -> None:
        files = [{name: value for name, value in named("x", each).items() if name != "path"} for each in contents]
        answer = self.service.ask("POST", "/v1/blobs/missing", json={"files": files})
        assert answer.status_code == 200, answer.text
        of = {named("x", each)["sha256"]: each for each in contents}
        for each in answer.json()["missing"]:
            self.service.put(self.service.as_grant(each["grant"]["parts"]), of[each["sha256"]])
        assert self.service.ask("POST", "/v1/blobs/missing", json={"files": files}).json() == {"missing": []}

    def add(self, name: str, files: dict[str, bytes]) -> dict[str, Any]:
        self.upload(*files.values())
        answer = self.post(name, {"files": [named(path, content) for path, content in files.items()]})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def post(self, name: str, body: dict[str, Any], token: str = OPERATOR) -> Any:
        return self.service.ask("POST", f"/v1/datasets/{name}/versions", token, json=body)

    def check(self) -> None:
        for _ in check_datasets(self.service.deployment):
            pass

    def ready(self, name: str, files: dict[str, bytes]) -> dict[str, Any]:
        made = self.add(name, files)
        self.check()
        return self.show(name, made["number"])

    def show(self, name: str, number: int) -> dict[str, Any]:
        answer = self.service.ask("GET", f"/v1/datasets/{name}/{number}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def files(self, name: str, number: int) -> list[dict[str, Any]]:
        return self.service.ask("GET", f"/v1/datasets/{name}/{number}/files").json()

    def get(self, path: str) -> Any:
        return self.service.ask("GET", path)

    def remove(self, path: str) -> Any:
        return self.service.ask("DELETE", f"/v1/datasets/{path}")

    def submit(self, **body: Any) -> Any:
        wanted = {"base": "pony", "prompt": "a photo of sks dog", "photos": "timber"} | body
        return self.service.ask("POST", "/v1/jobs", json=wanted)


class InspectorHere(ProgramInspector):
    """The same without a process for each step: the program's own functions."""

    def _asked(self, folder: Path, question: Mapping[str, Any], seconds: float) -> Any:
        if "pictures" in question:
            return inspect_pictures(folder / "files", question["pictures"])
        return inspect_texts(folder / "files", question["photos"], question["masks"])


@pytest.fixture
def sets(service: Service, tmp_path: Path) -> Iterator[Sets]:
    service.deployment = replace(service.deployment, inspector=InspectorHere(tmp_path / "inspected", ()))
    service.app.state.deployment = service.deployment
    base = {"source": "files", "files": [named("a.png", b"a photo")]}
    assert service.ask("POST", "/v1/bases", json={"name": "pony", "base": base}).status_code == 201
    yield Sets(service)
