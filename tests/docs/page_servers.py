"""The servers whose page docs/page.md shows: a replay of a simulated fleet, a form of a new job before it, and an experiment at work."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from math import exp
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageChops, ImageFilter

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.package import bundled_presets
from gangline.api.app import make_app
from gangline.api.serve import ApiServer, listen
from gangline.core.parsing import to_json
from gangline.core.runs.contract import picture_name
from gangline.core.runs.metrics import Point
from gangline.core.server.limits import Limits
from gangline.ports.server import Points
from gangline.service.datasets.check import check_datasets
from gangline.service.jobs import metrics
from gangline.sim.replay.app import Replay
from gangline.sim.replay.recording import Recording
from gangline.sim.scenario import Jobs, parse_scenario
from gangline.sim.simulation import Simulation
from gangline.web.page import add_page
from tests.conftest import ROOT
from tests.service.conftest import Service, a_service
from tests.service.datasets.conftest import InspectorHere
from tests.service.experiments.at_work import Worked, submit, tick, work, work_again
from tests.service.jobs.test_samples import train as begin
from tests.service.pictures.conftest import Album
from tests.service.test_rules import beat

SCENARIO = """
title = "Forty jobs of two teams on up to twelve nodes"
[fleet]
nodes_max = 12
start_s = 60
[[machines]]
count = 14
gpu = "RTX 4090"
price_usd_per_hour = 0.36
seconds_per_step = 0.8
spread = 0.2
interruptions_per_hour = 1.5
[[machines]]
count = 6
gpu = "RTX 3090"
price_usd_per_hour = 0.22
seconds_per_step = 1.4
spread = 0.2
interruptions_per_hour = 0.8
[[jobs]]
count = 26
steps = 800
sample_every_steps = 100
sample_result = true
[[jobs]]
count = 6
at_s = 600
steps = 1200
sample_every_steps = 200
[[jobs]]
count = 8
project = "portraits"
at_s = 300
steps = 600
sample_every_steps = 200
[[faults]]
kind = "reclaim"
at_s = 900
share = 0.5
"""
NAMES = ("timber", "red mug", "sneaker", "teapot", "violin", "lighthouse", "armchair", "lantern", "backpack", "bonsai")
PHOTOS = ROOT / "examples" / "subject"
PROMPTS = ("a photo of sks cat", "sks cat that laughs", "sks cat with a wry smile", "sks cat that cries")
WALLS = ("#f4d9c6", "#cfe3ee", "#dbe7cf", "#e6d6ea")
CHOSEN = 400
RANKS, RATES, SEEDS, STEPS, EVERY, SECONDS_PER_STEP = (8, 16, 32), (1e-4, 4e-4), 2, 600, 50, 0.9


@contextmanager
def replay(scenario: str = SCENARIO) -> Iterator[str]:
    """Play a scenario, and serve its replay."""
    simulation = NamedJobs(parse_scenario(scenario, "page_pictures"), 0)
    recording = Recording(simulation.world, simulation.store)
    simulation.after_event = recording.look
    simulation.run()
    recording.finish()
    with served(Replay(simulation, recording)) as url:
        yield url


class NamedJobs(Simulation):
    """A simulation whose jobs have the names that people give to theirs."""

    def _submit_one(self, batch: Jobs, index: int) -> None:
        super()._submit_one(batch, index)
        name = f"{NAMES[index % len(NAMES)]} {'abcdefgh'[index // len(NAMES)]}"
        self.store._connection().execute("UPDATE job SET name = ? WHERE id = ?", (name, self.jobs[-1]))


@dataclass
class Team:
    """A server with a page, and who works on its jobs."""

    service: Service
    url: str

    def check_photos(self) -> None:
        deque(check_datasets(self.service.deployment), maxlen=0)


@contextmanager
def a_team() -> Iterator[Team]:
    """Serve a new server, that has a base and whose nodes have trained a job."""
    with TemporaryDirectory() as home:
        folder = Path(home)
        objects = LocalObjects(folder / "objects", "secret")
        with a_service(folder, str(folder / "db.sqlite"), objects) as service:
            service.deployment = replace(service.deployment, inspector=InspectorHere(folder / "inspected", ()))
            app = make_app(service.deployment, objects)
            add_page(app, service.deployment, Limits(), presets=bundled_presets())
            with served(app) as url:
                yield Team(service, url)


@contextmanager
def served(app: Any) -> Iterator[str]:
    listening = listen("127.0.0.1", 0)
    server = ApiServer(app)
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    answering.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        answering.join()


def prepare_new_job(service: Service) -> None:
    """Let the server have a base, and a node that has trained with it, so that a plan says what a job takes."""
    base = to_json(service.upload_base())
    said = service.ask("POST", "/v1/bases", json={"name": "pony", "base": base, "family": "sdxl"})
    assert said.status_code == 201, said.text
    for name, gpu in (("rig-1", "RTX 4090"), ("rig-2", "RTX 3090")):
        service.join(name, gpu=gpu, gpu_memory_gb=24.0)


def run_experiment(service: Service) -> str:
    """Submit an experiment, and let nodes work on it until a part has ended. Return its id."""
    held_out = service.upload(b"a held-out photo", "h.png")
    settings = {"held_out": (held_out,), "held_out_every_steps": EVERY, "steps": STEPS}
    vary = {"rank": list(RANKS), "learning_rate": list(RATES)}
    made = submit(service, name="ranks and rates", vary=vary, seeds=SEEDS, settings=settings)["id"]
    rng, nodes = Random(0), list[Worked]()
    first = work(service, "rig-1")
    measure(first, 1, rng)  # it has prepared what the others read
    tick(service)
    nodes = [first, *(work(service, f"rig-{number}") for number in (2, 3, 4))]
    for last in (STEPS, STEPS, STEPS * 7 // 12):
        for step in range(EVERY // 2, last + 1, EVERY // 2):
            for node in nodes:
                measure(node, step, rng)
            service.wait(EVERY / 2 * SECONDS_PER_STEP)
        if last < STEPS:
            break
        for node in nodes:
            node.end()
        tick(service)
        nodes = [work_again(node) for node in nodes]
    tick(service)
    return made


def measure(node: Worked, step: int, rng: Random) -> None:
    """Report a step, with losses as a training has them: large ranks learn faster, and the higher rate forgets."""
    spec = node.service.ask("GET", f"/v1/jobs/{node.job}").json()["spec"]
    rank, high = spec["rank"], spec["learning_rate"] > RATES[0]
    learned = 1 - exp(-step / (260 - 3 * rank - 90 * high))
    values = {"loss": 0.142 - 0.05 * learned + rng.gauss(0, 0.004)}
    if step % EVERY == 0:
        forgotten = 0.012 * high * (step / STEPS) ** 2 * rank / 16
        values["held_out_loss"] = 0.131 - 0.031 * learned + forgotten + rng.gauss(0, 0.0008)
    beat(node.service, node.node, node.hold, step, loss=values["loss"], seconds_per_step=SECONDS_PER_STEP)
    told = Points(points=(Point(step=step, values=values),))
    metrics.take(node.service.deployment, node.node, node.hold, told, node.service.now_ms)


def draw_album(service: Service) -> str:
    """Let a node train a job that shows itself, as photos that come out of noise: what a model renders takes a GPU. Return the job's id."""
    node = service.join("rig-1", gpu="RTX 4090")
    photos = sorted(PHOTOS.glob("*.png"))[: len(PROMPTS)]
    spec = {
        "prompt": "sks cat",
        "sample_prompts": PROMPTS,
        "steps": 600,
        "sample_every_steps": 100,
        "sample_seeds": (1,),
    }
    album = Album(service, begin(service, node, **spec), node)
    for step in range(100, 601, 100):
        service.wait(20)
        album.save(step)
        drawn = {picture_name(at, 1): out_of_noise(photo, step, at) for at, photo in enumerate(photos)}
        album.show(step, drawn)
        if step == CHOSEN:
            album.choose(step)
    album.make_thumbnails()
    return album.job


def out_of_noise(photo: Path, step: int, number: int) -> bytes:
    """Return a photo before a coloured wall, with the less noise the later the step is."""
    size, rng = (512, 512), Random(1000 * number + step)
    with Image.open(photo) as opened:
        drawn = ImageChops.multiply(opened.convert("RGB").resize(size), Image.new("RGB", size, WALLS[number]))
    left = max(0.0, 1 - step / 500)
    grain = Image.frombytes("RGB", (6, 6), rng.randbytes(3 * 6 * 6)).resize(size, Image.Resampling.BICUBIC)
    drawn = Image.blend(drawn.filter(ImageFilter.GaussianBlur(14 * left)), grain, 0.75 * left)
    content = BytesIO()
    drawn.save(content, "PNG")
    return content.getvalue()
