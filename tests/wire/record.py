"""What goes over the wire, written down: `python -m tests.wire.record` makes the recording of this version anew.

It is made while a version of the protocol grows. Once that is released its recording stays as it is, and the next gets another.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.compose.client import Client
from gangline.core.errors import UserError
from gangline.core.files import PART_BYTES, Beginning, Beginnings, File
from gangline.core.fleet.gauges import Gauges, GpuGauges
from gangline.core.runs.contract import Prepared
from gangline.core.runs.metrics import Point
from gangline.core.runs.prepared import embeddings_key
from gangline.core.runs.saving import SaveCost, choose_saving
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_spec
from gangline.ports.server import (
    Assignment,
    Beat,
    Commit,
    Downloads,
    Failed,
    Join,
    Keep,
    Log,
    Notice,
    Points,
    Reject,
    Released,
    Show,
    Stale,
    Succeeded,
    Uploads,
)
from gangline.wire import protocol
from gangline.wire.agent import HttpServer
from gangline.wire.stream import MessageParser
from tests.conftest import as_upload
from tests.service.conftest import JOIN, OPERATOR, Service, a_service
from tests.service.served import serving

RECORDED = Path(__file__).parent / "recorded"
PICTURE = File(path="step-000030/prompt-00-seed-1.png", bytes=9, sha256=hashlib.sha256(b"a picture").hexdigest())
GAUGES = Gauges(
    cpu_load=0.25,
    memory_used_bytes=12 * 10**9,
    memory_bytes=64 * 10**9,
    disk_free_bytes=80 * 10**9,
    disk_bytes=100 * 10**9,
    received_bytes_per_s=2_500_000,
    sent_bytes_per_s=400_000,
    gpu_memory_spills=False,
    gpus=(
        GpuGauges(
            utilisation=0.97,
            memory_used_bytes=11 * 10**9,
            memory_bytes=16 * 10**9,
            temperature_c=71,
            power_w=68.5,
            power_limit_w=70,
            limited_by=("power cap",),
        ),
    ),
)
HEADERS = ("authorization", "content-type", "idempotency-key", "last-event-id", protocol.HEADER.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its answer, JSON as what it means. `waited_s`: what passed on the server's clock before it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int
    answer: Any
    waited_s: float = 0


class Recorder:
    """Between the server and the application: it keeps every exchange."""

    def __init__(self, app: ASGIApp, kept: list[Exchange], now_ms: Callable[[], int]) -> None:
        self._app = app
        self._kept = kept
        self._now_ms = now_ms
        self._last_ms = now_ms()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked, told, status = bytearray(), bytearray(), list[int]()
        waited_s, self._last_ms = (self._now_ms() - self._last_ms) / 1000, self._now_ms()

        async def receiving() -> Message:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            status.extend([message["status"]] if "status" in message else [])
            told.extend(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._kept.append(_exchange(scope, asked, status[0], told, waited_s))  # before the next can be asked
            await send(message)

        await self._app(scope, receiving, sending)


def _exchange(scope: Scope, asked: bytes, status: int, told: bytes, waited_s: float) -> Exchange:
    given = {name.decode(): value.decode() for name, value in scope["headers"]}
    query = scope["query_string"].decode()
    return Exchange(
        method=scope["method"],
        path=scope["raw_path"].decode() + (f"?{query}" if query else ""),
        headers={name: given[name] for name in HEADERS if name in given},
        body=meant(asked.decode()),
        status=status,
        answer=meant(told.decode()),
        waited_s=waited_s,
    )


def record() -> list[Exchange]:
    kept: list[Exchange] = []
    with tempfile.TemporaryDirectory() as folder:
        objects = LocalObjects(Path(folder) / "store", "secret")
        with a_service(Path(folder), str(Path(folder) / "db.sqlite"), objects) as service:
            _converse(service, objects, Path(folder), kept)
    return kept


def _converse(service: Service, objects: LocalObjects, folder: Path, kept: list[Exchange]) -> None:
    app: FastAPI = make_app(service.deployment, objects)
    app.add_middleware(Recorder, kept=kept, now_ms=lambda: service.now_ms)
    with serving(app) as served:
        Conversation(service, served.url, folder).hold()


class Conversation:
    """What users and nodes ask in the life of a few jobs, by the clients of this version."""

    def __init__(self, service: Service, url: str, folder: Path) -> None:
        self.service = service
        self.url = url
        self.user = Client(url, OPERATOR)
        self.node = HttpServer(url, JOIN)
        self.folder = folder

    def hold(self) -> None:
        photo = self.folder / "a.png"
        photo.write_bytes(b"a photo that was not here before")
        (file,) = self.user.files.upload([photo], self.folder)
        self.user.projects.set("default", share=2.0, budget_usd=50.0)
        spec = self.service.spec(photos=(file,))
        self.user.jobs.place(spec)
        succeeds = self.user.jobs.submit(spec, name="recorded", key="once").summary.id
        self.node.join(
            Join(
                machine="machine",
                name="node",
                gpu="T4",
                gpu_memory_gb=16,
                capabilities={"python": "3.11"},
                kinds=("lora", "sample"),
                problems={"scratch": "lance is not installed"},
                measured={"disk_free": "80 GB"},
                cards=(hashlib.sha256(b"GPU-1").hexdigest(),),
            )
        )
        assert httpx.get(f"{self.url}/healthz").is_success
        self.train(self.claim(), file)
        self.look_at(succeeds)
        self.administer()
        self.steer(spec, file)
        self.experiment(spec)
        self.clean_up(succeeds, spec)
        self.node.claim(GAUGES)
        self.node.notice(Notice(because="the provider will take this machine back"))
        self.node.leave()

    def administer(self) -> None:
        self.user.bases.add("a-base", self.service.spec().base, family="sdxl", prediction_type="epsilon", licence="mit")
        self.user.bases.get("a-base")
        list(self.user.bases.list())
        self.user.bases.remove("a-base")
        self.keep_photos()
        self.user.secrets.set("HF_TOKEN", "hf_abcdefgh")
        list(self.user.secrets.list())
        self.user.secrets.remove("HF_TOKEN")
        self.notify()
        self.user.projects.add("team")
        list(self.user.projects.list())
        self.user.keys.revoke(self.user.keys.add("a colleague").key.id)
        list(self.user.keys.list())
        self.user.keys.sign_in()
        self.user.join_tokens.revoke(self.user.join_tokens.add("at home", lasts_s=3600).join_token.id)
        list(self.user.join_tokens.list())
        self.rent()

    def keep_photos(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (photo := Path(folder) / "b.png").write_bytes(b"another photo")
            self.user.datasets.push("photos", {"b.png": photo})
        self.user.datasets.change("photos", 1, put=[self.service.photo], remove=["b.png"])
        list(self.user.datasets.list())
        self.user.datasets.versions("photos")
        self.user.datasets.get("photos", 2)
        list(self.user.datasets.files("photos", 2))
        with suppress(UserError):  # it was not checked
            self.user.datasets.thumbnail("photos", 2, self.service.photo.sha256)
        self.user.datasets.removal("photos", 1)
        self.user.datasets.remove("photos", 1)
        self.user.datasets.removal("photos")
        self.user.datasets.remove("photos")

    def notify(self) -> None:
        made = self.user.endpoints.add("https://hooks.example/gangline", name="hooks", kinds=("submitted", "succeeded"))
        list(self.user.endpoints.list())
        self.user.endpoints.set("hooks", kinds=("succeeded",), quiet="22:00-07:00 Europe/Berlin")
        self.user.endpoints.get(made.endpoint.id)
        self.user.endpoints.rotate("hooks", old_s=3600)
        self.user.endpoints.test("hooks")
        list(self.user.endpoints.log("hooks"))
        self.user.endpoints.replay_facts("hooks", after=1)
        with suppress(UserError):  # the log is empty
            self.user.endpoints.replay_message("hooks", f"msg_{made.endpoint.id}_1")
        self.user.endpoints.remove("hooks")

    def rent(self) -> None:
        list(self.user.pools.drivers())
        self.user.jobs.offers(self.user.jobs.find("last"))
        self.user.pools.add("a-pool", "shop", {"nodes_max": 2, "offers": ["small"], "settings": {"town": "Ulm"}})
        self.user.pools.set("a-pool", {"price_max_usd_per_hour": 1.5})
        self.user.pools.pause("a-pool")
        self.user.pools.resume("a-pool")
        self.user.pools.sync("a-pool")
        self.user.pools.get("a-pool")
        list(self.user.pools.list())
        list(self.user.pools.instances("a-pool"))
        self.user.pools.remove("a-pool")
        node = next(iter(self.user.nodes.list()))
        self.user.nodes.get(node.id)
        self.user.nodes.drain(node.id)
        self.user.nodes.quarantine(node.id, lasts_s=60)
        self.user.nodes.release(node.id)
        with suppress(UserError):  # it was not rented
            self.user.nodes.logs(node.id)
        with suppress(UserError):
            self.user.nodes.bill(node.id)
        self.user.nodes.machines(limit=5)

    def claim(self) -> Assignment:
        assignment = self.node.claim()
        assert isinstance(assignment, Assignment), assignment
        return assignment

    def train(self, assignment: Assignment, photo: File) -> None:
        hold = assignment.hold
        self.node.downloads(hold, Downloads(keys=(assignment.inputs[0].key,)))
        self.node.beat(hold, Beat(phase="downloading", step=0))
        self.service.wait(10)
        measured = Beat(
            phase="training",
            step=30,
            training_s=5.5,
            loss=0.25,
            seconds_per_step=0.2,
            memory_bytes=9 * 10**9,
            gauges=GAUGES,
        )
        self.node.beat(hold, measured)
        self.node.log(hold, Log(first_byte=0, text="step 30\n"))
        self.node.metrics(hold, Points(points=(Point(step=30, values={"loss": 0.25, "learning_rate": 1e-4}),)))
        self.prepare(assignment)
        begun = Beginning(
            path="large.safetensors", bytes=PART_BYTES + 1, parts=(hashlib.sha256(b"a part").hexdigest(),)
        )
        self.node.begin(hold, Beginnings(step=30, files=(begun,)))
        self.save(assignment, 30)
        self.user.checkpoints.pin(assignment.job, 30)
        self.user.checkpoints.pin(assignment.job, 30, pinned=False)
        list(self.user.checkpoints.list(assignment.job))
        self.user.checkpoints.get(assignment.job, 30)
        self.upload(assignment, Uploads(folder="samples", files=(as_upload(PICTURE, b"a picture"),)), b"a picture")
        self.node.show(hold, Show(step=30, files=(PICTURE,)))
        self.choose(assignment.job)
        self.node.finish(hold, Failed(kind="crashed", because="the trainer crashed"))
        self.service.wait(3600)
        again = self.of_another_machine()
        self.node.reject(again.hold, Reject(checkpoint=again.resume[0].id, because="it does not match its SHA-256"))
        (result,) = self.service.manifest(1, b"result").files
        self.upload(again, Uploads(folder="output", files=(as_upload(result, b"result"),)), b"result")
        self.node.beat(again.hold, Beat(phase="uploading", step=100, training_s=20.0, loss=0.125, seconds_per_step=0.2))
        self.node.finish(again.hold, Succeeded(output=(result,)))
        assert isinstance(self.node.beat(again.hold, Beat(phase="uploading", step=100)), Stale)

    def choose(self, job: str) -> None:
        (picture,) = self.user.pictures.list(job)
        with suppress(UserError):  # it was not made
            self.user.pictures.thumbnail(job, picture.sha256)
        self.user.pictures.choose(job, picture.step)
        self.user.pictures.undo_choice(job)

    def save(self, assignment: Assignment, step: int) -> None:
        spec_hash = self.service.store.load("job", id=assignment.job)[0]["spec_hash"]
        manifest = self.service.manifest(step, spec_hash=spec_hash)
        files = (as_upload(manifest.files[0], b"weights"),)
        self.upload(assignment, Uploads(folder="checkpoints", step=step, files=files), b"weights")
        assert assignment.saving
        saving = choose_saving(assignment.saving, SaveCost(held_up_s=0.03, upload_s=5.3, bytes=7))
        self.node.commit(assignment.hold, Commit(manifest=manifest.to_json(), saving=saving))

    def prepare(self, assignment: Assignment) -> None:
        spec = parse_spec(assignment.spec)
        assert isinstance(spec, LoraSpec)
        file = File(path="texts.safetensors", bytes=10, sha256=hashlib.sha256(b"embeddings").hexdigest())
        made = Prepared(key=embeddings_key(spec, {"torch": "2"}), files=(file,))
        upload = as_upload(replace(file, path=f"{made.key}/{file.path}"), b"embeddings")
        self.upload(assignment, Uploads(folder="prepared", files=(upload,)), b"embeddings")
        self.node.keep_prepared(assignment.hold, Keep(manifest=made.to_json()))

    def of_another_machine(self) -> Assignment:
        self.node.join(Join(machine="another", name="another"))
        return self.claim()

    def upload(self, assignment: Assignment, request: Uploads, content: bytes) -> None:
        grants = self.node.uploads(assignment.hold, request)
        assert not isinstance(grants, Stale)
        (signed,) = grants.files[0].parts
        assert signed is not None
        assert httpx.put(self.url + signed.url, content=content, headers=signed.headers).is_success

    def look_at(self, job: str) -> None:
        self.user.jobs.get(job)
        self.user.jobs.label(job, {"team": "vision"})
        list(self.user.jobs.list())
        list(self.user.jobs.list(state=["succeeded"], label=["team=vision"], owner="me", limit=1))
        list(self.user.events.list(job))
        self.user.logs.get(job)
        self.user.metrics.get(job)
        list(self.user.events.follow(job, after=2))
        list(self.user.facts.list())
        key = {"Authorization": f"Bearer {OPERATOR}"}
        assert httpx.get(f"{self.url}/v1/facts/stream?after=end", headers=key).is_success  # it has no end otherwise
        list(self.user.logs.follow(job))
        list(self.user.nodes.list())
        self.user.projects.current()
        artifact = next(iter(self.user.artifacts.list(job)))
        self.user.files.download(artifact, self.folder)

    def steer(self, spec: Any, photo: File) -> None:
        job = self.user.jobs.submit(spec, key="twice").summary.id
        assignment = self.claim()
        self.user.jobs.save(job)
        self.user.jobs.sample(job)
        self.user.jobs.finish(job)
        self.user.jobs.pause(job)
        self.node.beat(assignment.hold, Beat(phase="saving", step=1, training_s=1.0))
        self.save(assignment, 1)
        self.node.finish(assignment.hold, Released())
        self.user.jobs.resume(job)
        self.user.jobs.cancel(job)
        self.user.jobs.cancel(self.user.jobs.retry(job).summary.id)
        self.user.jobs.plan_clone(job, {"seed": 7})
        self.user.jobs.cancel(self.user.jobs.clone(job, {"seed": 7}, name="seven").summary.id)
        self.user.jobs.extension(job, 200)
        self.user.jobs.cancel(self.user.jobs.extend(job, 200).summary.id)
        (line,) = self.user.jobs.submit_batch([spec], key="lines")
        self.user.jobs.cancel(str(line.job))

    def experiment(self, spec: Any) -> None:
        asked = {"name": "ranks", "spec": spec, "vary": {"rank": [4, 8]}, "at_once": 1}
        self.user.experiments.plan(asked)
        made = self.user.experiments.submit(asked, key="experiment").id
        list(self.user.experiments.list())
        list(self.user.experiments.runs(made))
        self.user.experiments.get(made)
        self.user.experiments.change(made, at_once=2)
        self.user.experiments.resume(made)
        self.user.experiments.stop(made)

    def clean_up(self, job: str, spec: Any) -> None:
        self.user.jobs.timeline(job)
        self.user.jobs.plan(spec)
        self.user.storage.get()
        self.user.jobs.report(include=["jobs"])
        self.user.queue.get(limit=10)
        self.user.costs.get("cause", zone="Europe/Berlin")
        self.user.costs.get("gpu", forecast=True)
        kept = self.user.costs.set_threshold(50, "month", project="default", percents=(80, 100))
        self.user.costs.thresholds()
        self.user.costs.remove_threshold(kept.id)
        self.user.costs.budgets()
        self.user.costs.fleet()
        self.user.jobs.removal(job)
        self.user.jobs.remove(job)


def meant(text: str) -> Any:
    """JSON as its value, server-sent events as a list of those, anything else as it is."""
    if "\ndata: " in text:
        told = [(message.event, json.loads(message.data)) for message in MessageParser().feed(text.encode())]
        return [{"event": event, "data": data} for event, data in told]
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    folder = RECORDED / f"v{protocol.VERSION}"
    for old in folder.glob("*.json"):
        old.unlink()
    for number, exchange in enumerate(record()):
        what = [part for part in exchange.path.partition("?")[0].split("/")[2:] if "-0" not in part][:3] or ["healthz"]
        name = f"{number:03d}-{exchange.method.lower()}-{'-'.join(what)}.json"
        (folder / name).write_text(json.dumps(asdict(exchange), indent=1, ensure_ascii=False) + "\n")
