"""A job whose node renders pictures of its steps, and a server that makes small copies of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gangline.core.files import File
from gangline.core.runs.contract import picture_name, pictures_name
from gangline.ports.server import Assignment, Done, Show
from gangline.service.jobs import samples
from gangline.service.pictures.thumbnails import make_thumbnails
from tests.service.conftest import OPERATOR, Service
from tests.service.datasets.conftest import InspectorHere, picture
from tests.service.jobs.test_samples import commit, hand_over, train
from tests.service.test_rules import succeed

PROMPTS = ("sks dog", "sks dog on the beach")
SEEDS = (1, 2)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Album:
    """What a test asks of a job with two prompts and two seeds."""

    service: Service
    training: Assignment
    node: str

    @property
    def job(self) -> str:
        return self.training.job

    def save(self, step: int) -> None:
        commit(self.service, self.node, self.training, step)

    def show(self, step: int, pictures: dict[str, bytes]) -> None:
        """As the training node does between two steps."""
        files = [self._upload(f"{pictures_name(step)}/{name}", content) for name, content in pictures.items()]
        request = Show(step=step, files=tuple(files))
        shown = samples.keep_samples(
            self.service.deployment, self.node, self.training.hold, request, self.service.now_ms
        )
        assert shown == Done(), shown

    def _upload(self, path: str, content: bytes) -> File:
        return hand_over(self.service, self.node, self.training.hold, "samples", path, content)

    def show_all(self, *steps: int) -> None:
        for step in steps:
            places = ((prompt, seed) for prompt in range(len(PROMPTS)) for seed in SEEDS)
            self.show(step, {picture_name(*place): picture(step * 100 + place[0] * 10 + place[1]) for place in places})

    def succeed(self) -> None:
        succeed(self.service, self.node, self.training.hold)

    def make_thumbnails(self) -> None:
        for _ in make_thumbnails(self.service.deployment):
            pass

    def ask_list(self, query: str = "", token: str = OPERATOR) -> Any:
        return self.service.ask("GET", f"/v1/jobs/{self.job}/pictures{query}", token)

    def rows(self) -> list[dict[str, Any]]:
        return self.ask_list().json()

    def thumbnail(self, sha256: str) -> Any:
        return self.service.ask("GET", f"/v1/jobs/{self.job}/pictures/{sha256}/thumbnail")

    def choose(self, step: int) -> Any:
        return self.service.ask("PUT", f"/v1/jobs/{self.job}/winner", json={"step": step})

    def undo(self) -> Any:
        return self.service.ask("DELETE", f"/v1/jobs/{self.job}/winner")

    def pin(self, step: int) -> None:
        assert self.service.ask("PUT", f"/v1/jobs/{self.job}/checkpoints/{step}/pin").status_code == 200

    def remove(self) -> None:
        answer = self.service.ask("DELETE", f"/v1/jobs/{self.job}")
        assert answer.status_code == 200, answer.text

    def pinned(self) -> list[int]:
        found = self.service.ask("GET", f"/v1/jobs/{self.job}/checkpoints").json()
        return [each["step"] for each in found if each["pinned"]]

    def labels(self) -> dict[str, str]:
        return self.service.ask("GET", f"/v1/jobs/{self.job}").json()["summary"]["labels"]

    def stored(self, part: str) -> list[str]:
        return [key for key in self.service.objects.list("") if f"/{part}/" in key]


@pytest.fixture
def album(service: Service, tmp_path: Path) -> Iterator[Album]:
    service.deployment = replace(service.deployment, inspector=InspectorHere(tmp_path / "inspected", ()))
    service.app.state.deployment = service.deployment
    node = service.join()
    yield Album(service, train(service, node, sample_prompts=PROMPTS, sample_seeds=SEEDS), node)
