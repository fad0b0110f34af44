"""A cluster behind the page: a simulated scenario, stopped half-way, that a real server serves; tests move its time and its jobs."""

import socket
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copyfile
from typing import Any

from fastapi import FastAPI

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.api.serve import ApiServer, listen
from gangline.core.parsing import to_json
from gangline.core.runs.contract import REPORT
from gangline.core.runs.metrics import Point
from gangline.core.server.limits import Limits
from gangline.ports.server import Assignment, Beaten, Committed, Done, Failed, Log, Points, Succeeded
from gangline.service.facts import number_facts
from gangline.service.jobs import metrics
from gangline.service.jobs.finish import finish
from gangline.service.jobs.renew import append_log
from gangline.sim.scenario import load_scenario
from gangline.sim.simulation import Simulation
from gangline.sim.world import START_MS
from gangline.web.live.hub import SLOW_ROUND_MS, LiveHub
from gangline.web.page import add_page
from tests.service.conftest import OPERATOR, Service, a_service
from tests.service.datasets.conftest import InspectorHere
from tests.service.jobs.test_samples import DIFFUSERS_FILE, commit, hand_over
from tests.service.test_rules import beat, succeed
from tests.waiting import until

SCENARIO, SEED, STOPPED_MS = "small", 0, 14 * 60_000
PRINTED = 200_000
"""Characters that a node sends of a log at a time."""
ROUND_S = 0.1
"""Seconds between two looks of the server for what has changed: a person is content with one."""


def stopped_scenario(path: Path) -> int:
    """Write the database of a scenario that is half over, and return its time."""
    sim = Simulation(load_scenario(SCENARIO), SEED, checked=False)
    sim.play(until_ms=START_MS + STOPPED_MS)
    with closing(sqlite3.connect(path)) as file:
        sim.store._connection().backup(file)
    return sim.world.now_ms


@dataclass
class Cluster:
    """A server that browsers reach, over the `service` of its tests."""

    service: Service
    port: int
    _nodes: dict[str, str] = field(default_factory=dict)
    app: FastAPI = field(init=False)
    _server: ApiServer = field(init=False)
    _thread: threading.Thread = field(init=False)
    _noticing: threading.Thread = field(init=False)
    _stopping: threading.Event = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def hub(self) -> LiveHub:
        return self.app.state.hub

    def start(self) -> None:
        """Serve, at the address of before."""
        deployment = self.service.deployment
        objects = deployment.objects
        self.app = make_app(deployment, objects if isinstance(objects, LocalObjects) else None)
        add_page(self.app, deployment, Limits())
        hub = LiveHub(deployment, Limits(), round_s=ROUND_S)
        self.app.state.streams[-1] = self.app.state.hub = hub
        self._server = ApiServer(self.app)
        listening = listen("127.0.0.1", self.port)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, name="page")
        self._stopping = threading.Event()
        self._noticing = threading.Thread(target=self._keep_noticing, name="noticing")
        self._noticing.start()
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._stopping.set()
        self._thread.join()
        self._noticing.join()

    def look_again(self) -> None:
        """Let as much time pass as a stream takes to look for what no fact tells it of, such as nodes and pools."""
        self.service.wait(SLOW_ROUND_MS / 1000)

    # What happens in the cluster

    def spec(self, **settings: Any) -> Any:
        return to_json(self.service.spec(**settings))

    def submit(
        self, name: str = "", project: str = "default", labels: dict[str, str] | None = None, **spec: Any
    ) -> str:
        answer = self.service.http.post(
            "/v1/jobs",
            json={"name": name, "labels": labels or {}, "spec": self.spec(**spec)},
            headers={"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": project},
        )
        assert answer.status_code == 201, answer.text
        return answer.json()["summary"]["id"]

    def begin(self, job: str, node: str = "browser-node") -> Assignment:
        """Let a new node have this job, whichever wait before it."""
        self.service.execute(f"UPDATE job SET fetching = 7 WHERE state = 'queued' AND fetching = 0 AND id <> '{job}'")
        joined = self.service.join(node)
        found = self.service.claim(joined)
        self.service.execute("UPDATE job SET fetching = 0 WHERE fetching = 7")
        assert found.job == job
        self._nodes[job] = joined
        return found

    def step(self, held: Assignment, step: int, **said: Any) -> None:
        assert isinstance(beat(self.service, self._nodes[held.job], held.hold, step, **said), Beaten)

    def measure(self, held: Assignment, values: Mapping[int, Mapping[str, float]]) -> None:
        """Let its node report what it measured at some steps."""
        told = Points(points=tuple(Point(step=step, values=dict(each)) for step, each in values.items()))
        assert (
            metrics.take(self.service.deployment, self._nodes[held.job], held.hold, told, self.service.now_ms) == Done()
        )

    def log(self, held: Assignment, text: str, after: int = 0) -> None:
        """Let its trainer print plain ASCII, after so many characters."""
        for first in range(0, len(text), PRINTED):
            said = Log(first_byte=after + first, text=text[first : first + PRINTED])
            assert (
                append_log(self.service.deployment, self._nodes[held.job], held.hold, said, self.service.now_ms)
                == Done()
            )

    def save(self, held: Assignment, step: int) -> None:
        """Store a checkpoint."""
        assert commit(self.service, self._nodes[held.job], held, step) == Committed()

    def succeed(self, held: Assignment) -> None:
        succeed(self.service, self._nodes[held.job], held.hold)

    def report(self, held: Assignment, report: str) -> None:
        """Let it succeed with a report in its result."""
        node, contents = self._nodes[held.job], {DIFFUSERS_FILE: b"weights", REPORT: report.encode()}
        files = tuple(hand_over(self.service, node, held.hold, "output", *each) for each in contents.items())
        ended = finish(self.service.deployment, node, held.hold, Succeeded(output=files), self.service.now_ms)
        assert ended == Done()

    def fail(self, held: Assignment, because: str) -> None:
        said = Failed(kind="bad data", because=because)
        assert finish(self.service.deployment, self._nodes[held.job], held.hold, said, self.service.now_ms) == Done()

    def act(self, job: str, action: str) -> None:
        assert self.service.ask("POST", f"/v1/jobs/{job}/{action}").is_success

    def _keep_noticing(self) -> None:
        """What has happened becomes a fact, as the controller sees to four times a second."""
        while not self._stopping.wait(ROUND_S):
            number_facts(self.service.deployment, self.service.now_ms)


@contextmanager
def a_cluster(folder: Path, database: Path, now_ms: int) -> Iterator[Cluster]:
    copyfile(database, folder / "db.sqlite")
    objects = LocalObjects(folder / "objects", "secret")
    with a_service(folder, str(folder / "db.sqlite"), objects, begins_ms=now_ms) as service:
        inspector = InspectorHere(folder / "inspected", ())
        service.deployment = service.app.state.deployment = replace(service.deployment, inspector=inspector)
        cluster = Cluster(service, _free_port())
        try:
            yield cluster
        finally:
            cluster.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
