"""The real service over a real store, in a temporary folder, with a clock that the test moves."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from gangline.adapters.hub import HuggingFaceHub
from gangline.adapters.objects_local import LocalObjects
from gangline.adapters.store.postgres import PostgresStore
from gangline.adapters.store.sqlite import SqliteStore
from gangline.api.app import make_app
from gangline.core.contract import Manifest
from gangline.core.files import File
from gangline.core.keys import blob_key
from gangline.core.policy import Policy
from gangline.core.spec import DirectoryBase, LoraSpec, spec_hash, spec_to_json
from gangline.ports.server import Assignment, Join, NoWork
from gangline.ports.store import write
from gangline.service.access import admit, set_project
from gangline.service.claim import claim
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment
from gangline.service.nodes import join
from gangline.service.submit import offer_blob, submit

POLICY = Policy(lease_s=45, heartbeat_interval_s=10)
START_MS = 1_000_000_000
PRICE = 360_000  # micro-dollars an hour: 100 a second
USER, JOIN = "gl_user_test", "gl_join_test"
PROJECT = "default"


class Clocked:
    """Makes a store's time the test's."""

    time_ms = START_MS

    def now_ms(self) -> int:
        return self.time_ms


class ClockedSqlite(Clocked, SqliteStore):
    pass


class ClockedPostgres(Clocked, PostgresStore):
    pass


ClockedStore = ClockedSqlite | ClockedPostgres


@dataclass
class Service:
    """A deployment, what reaches it over HTTP, and the files that stand in for a user's."""

    at: Deployment
    http: TestClient
    store: ClockedStore
    objects: LocalObjects
    counter: Iterator[int]
    database: str
    photo: File = field(init=False)

    def __post_init__(self) -> None:
        self.wait(0)
        self.photo = self.hand_in(b"a photo", "a.png")

    @property
    def now_ms(self) -> int:
        return self.store.time_ms

    def wait(self, seconds: float) -> None:
        self.store.time_ms += round(seconds * 1000)
        tick = write("tick", now=self.now_ms, gap_ms=10**15, server=self.at.server, turn_ends_ms=self.now_ms)
        self.store.apply(tick)  # as if it had ticked all the while

    def hand_in(self, content: bytes, path: str) -> File:
        file = File(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        body = {"sha256": file.sha256, "bytes": file.bytes}
        offered = self.ask("POST", "/v1/blobs", json=body).json()
        if not offered["present"]:
            assert self.http.put(offered["url"], content=content).status_code == 201
        assert self.ask("POST", "/v1/blobs", json=body).json()["present"]
        return file

    def spec(self, **settings: Any) -> LoraSpec:
        values: dict[str, Any] = {
            "base": DirectoryBase(files=(self.photo,)),
            "photos": (self.photo,),
            "prompt": "sks dog",
            "steps": 100,
        }
        return LoraSpec(**(values | settings))

    def submit(self, project: str = PROJECT, **settings: Any) -> str:
        value = spec_to_json(self.spec(**settings))
        return submit(self.at, project, value, name="", request=None, now_ms=self.now_ms)

    def add_project(self, project: str, *, share: float = 1.0, budget_usd: float | None = None) -> str:
        """Another project, with the photo in its store."""
        set_project(self.at, project, share=share, budget_usd=budget_usd)
        self.objects.write(blob_key(project, self.photo.sha256), b"a photo")
        assert offer_blob(self.at, project, self.photo.sha256, self.photo.bytes, self.now_ms).present
        return project

    def join(self, name: str = "node-a", **facts: Any) -> str:
        return join(self.at, Join(machine=f"machine-of-{name}", name=name, **facts), self.now_ms).node

    def claim(self, node: str) -> Assignment:
        assignment = claim(self.at, node, self.now_ms)
        assert isinstance(assignment, Assignment), assignment
        return assignment

    def claim_nothing(self, node: str) -> str:
        answer = claim(self.at, node, self.now_ms)
        assert isinstance(answer, NoWork), answer
        return answer.because

    def manifest(self, step: int, content: bytes = b"weights", **changes: Any) -> Manifest:
        file = File(path="weights.safetensors", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        values: dict[str, Any] = {
            "step": step,
            "spec_hash": spec_hash(self.spec()),
            "fingerprint": {},
            "exact": True,
            "files": (file,),
        }
        return Manifest(**(values | changes))

    def state(self, job: str) -> str:
        return self.store.load("job", id=job)[0]["state"]

    def tick(self) -> None:
        """Everything that the service does of itself, now."""
        Controller(self.at).tick(self.now_ms)

    def change_policy(self, **changes: Any) -> None:
        self.at = replace(self.at, policy=replace(self.at.policy, **changes))

    def ask(self, method: str, path: str, token: str = USER, **rest: Any) -> httpx.Response:
        return self.http.request(method, path, headers={"Authorization": f"Bearer {token}"}, **rest)


@pytest.fixture
def service(tmp_path: Path, database: str) -> Iterator[Service]:
    """On each engine."""
    store: ClockedStore = ClockedPostgres(database) if "://" in database else ClockedSqlite(Path(database))
    objects = LocalObjects(tmp_path / "store", "secret")
    counter = iter(range(10**9))
    deployment = Deployment(
        store=store,
        objects=objects,
        hub=HuggingFaceHub(tmp_path / "hub"),
        policy=POLICY,
        new_id=lambda kind: f"{kind}-{next(counter):06d}",
        new_secret=lambda: f"secret-{next(counter)}",
        up_since_ms=0,
        price_micro_usd_per_hour=PRICE,
    )
    admit(deployment, USER, "user", now_ms=0)
    admit(deployment, JOIN, "join", now_ms=0)
    with TestClient(make_app(deployment, objects), raise_server_exceptions=False) as http:
        yield Service(deployment, http, store, objects, counter, database)
    store.close()
