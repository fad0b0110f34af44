"""A finished simulation, recorded, with what its own service answered at each moment, and a server of its replay."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic_core import to_json

from gangline.api.serve import ApiServer, listen
from gangline.core.jobs.lists.filters import JobFilters
from gangline.service.access.projects import projects
from gangline.service.fleet.operating import nodes
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.query import events_after, job
from gangline.service.reports.report import report_of_jobs
from gangline.sim.replay.app import Replay
from gangline.sim.replay.recording import Recording
from gangline.sim.scenario import parse_scenario
from gangline.sim.simulation import Simulation

TEN_JOBS = """
title = "Ten jobs, and every node is taken back once"
[fleet]
nodes_max = 4
start_s = 20
[[machines]]
count = 6
seconds_per_step = 0.5
spread = 0.2
[[jobs]]
count = 8
steps = 300
sample_every_steps = 100
[[jobs]]
count = 2
project = "other"
at_s = 200
steps = 100
[[faults]]
kind = "reclaim"
at_s = 150
"""


@dataclass
class Live:
    """A simulation that was recorded, and what its own service answered at each snapshot."""

    simulation: Simulation
    recording: Recording
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> None:
        self.simulation.after_event = self._look
        self.simulation.run()
        self.recording.finish()
        self._ask()

    def _look(self) -> None:
        before = self.recording.snapshots[-1:]
        self.recording.look()
        if self.recording.snapshots[-1:] != before:
            self._ask()

    def _ask(self) -> None:
        deployment, now = self.simulation.service.deployment, self.simulation.world.now_ms
        answers: dict[str, Any] = {
            "/v1/jobs": page_of_jobs(deployment, "default", JobFilters(), now, limit=50),
            "/v1/nodes": nodes(deployment, None, now),
            "/v1/projects": projects(deployment),
            "/v1/report": report_of_jobs(deployment, "default", JobFilters(), now, ()),
        }
        if self.simulation.jobs:
            first = self.simulation.jobs[0]
            answers[f"/v1/jobs/{first}"] = job(deployment, "default", first, now)
            answers[f"/v1/jobs/{first}/events"] = events_after(deployment, "default", first, 0)
        self.answers[now] = {path: json.loads(to_json(answer)) for path, answer in answers.items()}


@pytest.fixture(scope="package")
def live() -> Live:
    simulation = Simulation(parse_scenario(TEN_JOBS, "ten jobs"), 0)
    found = Live(simulation, Recording(simulation.world, simulation.store, plain_bytes_max=0))
    found.run()
    return found


@pytest.fixture
def replay(live: Live) -> Replay:
    return Replay(live.simulation, live.recording)


@pytest.fixture
def client(replay: Replay) -> Iterator[httpx.Client]:
    listening = listen("127.0.0.1", 0)
    server = ApiServer(replay)
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    answering.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=30) as asking:
        yield asking
    server.should_exit = True
    answering.join()
