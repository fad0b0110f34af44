"""An experiment over HTTP, and nodes that work on its jobs."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.runs.contract import REPORT
from gangline.core.runs.metrics import Point
from gangline.ports.server import Commit, Committed, Done, Hold, Points, Stale, Succeeded, Uploads
from gangline.service.jobs import checkpoint, metrics
from gangline.service.jobs.finish import finish
from tests.conftest import as_upload
from tests.service.conftest import Service
from tests.service.jobs.test_one_at_a_time import result, upload
from tests.service.test_rules import beat, release

PATH = "/v1/experiments"


def body(service: Service, **given: Any) -> dict[str, Any]:
    settings = given.pop("settings", {})
    return {"name": "ranks", "spec": to_json(service.spec(**settings)), "vary": {"rank": [4, 8]}} | given


def submit(service: Service, **given: Any) -> dict[str, Any]:
    answer = service.ask("POST", PATH, json=body(service, **given))
    assert answer.status_code == 201, answer.text
    return answer.json()


def shown(service: Service, experiment: str) -> dict[str, Any]:
    return service.ask("GET", f"{PATH}/{experiment}").json()


def runs_of(service: Service, experiment: str) -> list[dict[str, Any]]:
    answer = service.ask("GET", f"{PATH}/{experiment}/runs")
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(service: Service, experiment: str) -> list[str]:
    return [run["state"] for run in runs_of(service, experiment)]


@dataclass
class Worked:
    """A job that a node works on."""

    service: Service
    node: str
    job: str
    hold: Hold

    def train(self, step: int, held_out_loss: float | None = None) -> None:
        """Report a step, and what was measured there."""
        beat(self.service, self.node, self.hold, step)
        self.measure(step, held_out_loss)

    def measure(self, step: int, held_out_loss: float | None = None) -> None:
        """Report what was measured at a step, as a job of short steps does before its next heartbeat."""
        values = {"loss": 0.5} | ({} if held_out_loss is None else {"held_out_loss": held_out_loss})
        told = Points(points=(Point(step=step, values=values),))
        metrics.take(self.service.deployment, self.node, self.hold, told, self.service.now_ms)

    def save(self, step: int) -> None:
        """Store a checkpoint of a step."""
        service = self.service
        upload(service, self.node, self.hold, step)
        spec_hash = service.store.load("job", id=self.job)[0]["spec_hash"]
        told = Commit(manifest=service.manifest(step, spec_hash=spec_hash).to_json())
        answer = checkpoint.commit_checkpoint(service.deployment, self.node, self.hold, told, service.now_ms)
        assert isinstance(answer, Committed), answer

    def end(self, report: object = None) -> None:
        """Succeed, with this report of what came of it beside the result."""
        service, told = self.service, result(self.service, self.node, self.hold)
        if report is not None:
            content = json.dumps(report).encode()
            file = File(path=REPORT, bytes=len(content), sha256=sha256(content).hexdigest())
            wanted = Uploads(folder="output", files=(as_upload(file, content),))
            grants = checkpoint.sign_uploads(service.deployment, self.node, self.hold, wanted, service.now_ms)
            assert not isinstance(grants, Stale)
            service.put(grants.files[0], content)
            told = Succeeded(output=(*told.output, file))
        assert finish(service.deployment, self.node, self.hold, told, service.now_ms) == Done()

    def hand_back(self) -> None:
        release(self.service, self.node, self.hold)


def work(service: Service, name: str) -> Worked:
    """Let a new node take the next job."""
    node = service.join(name)
    taken = service.claim(node)
    return Worked(service, node, taken.job, taken.hold)


def work_again(before: Worked) -> Worked:
    taken = before.service.claim(before.node)
    return Worked(before.service, before.node, taken.job, taken.hold)


def tick(service: Service, seconds: float = 1.0) -> None:
    service.wait(seconds)
    service.tick()
