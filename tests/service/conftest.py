"""The real service over a real store, in a temporary folder, with a clock that the test moves."""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg.rows import dict_row
from starlette.testclient import TestClient

from gangline.adapters.hub import HuggingFaceHub
from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.package import InstalledPackage
from gangline.adapters.sealing import JweSealer
from gangline.adapters.store.postgres import PostgresStore
from gangline.adapters.store.sqlite import SqliteStore
from gangline.api.app import make_app
from gangline.core.files import PART_BYTES, File, Grant, Signed
from gangline.core.jobs.keys import blob_key
from gangline.core.parsing import to_json
from gangline.core.policy import Policy
from gangline.core.runs.contract import Manifest
from gangline.core.server.settings import PoolSettings
from gangline.core.specs.fields import FilesBase, Needs
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import spec_hash
from gangline.ports.objects import Objects
from gangline.ports.server import Assignment, Join, NoWork
from gangline.ports.store import write
from gangline.service.access.access import DEFAULT_POOL, ensure_secret
from gangline.service.access.projects import create_project, set_allowance
from gangline.service.attempts import load_node
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment
from gangline.service.driving import AtOnce
from gangline.service.fleet.nodes import join_pool
from gangline.service.jobs.claim import claim
from gangline.service.jobs.submit import blob_here, queue, submit
from gangline.service.renting import Renting
from tests.service.jobs.schedules import Stage
from tests.shop import Till, make_drivers
from tests.sqlite import make_database

POLICY = Policy(lease_s=45, heartbeat_interval_s=10)
START_MS = 1_000_000_000
PRICE = 360_000  # micro-dollars an hour: 100 a second
OPERATOR, JOIN = "gl_operator_test", "gl_join_test"
PROJECT = "default"


class Before:
    """An edge; just before its method `name` is called, `happens`."""

    def __init__(self, edge: Any, name: str, happens: Callable[[], object]) -> None:
        self._edge, self._name, self._happens = edge, name, happens

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._happens()
        return getattr(self._edge, name)


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

    deployment: Deployment
    app: FastAPI
    http: TestClient
    store: ClockedStore
    objects: Objects
    counter: Iterator[int]
    database: str
    till: Till
    photo: File = field(init=False)

    def __post_init__(self) -> None:
        self.wait(0)
        content = b"a photo"
        self.photo = File(path="a.png", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        self._keep_photo(PROJECT)

    @property
    def now_ms(self) -> int:
        return self.store.time_ms

    def wait(self, seconds: float) -> None:
        self.store.time_ms += round(seconds * 1000)
        tick = write("tick", now=self.now_ms, gap_ms=10**15, server=self.deployment.server, turn_ends_ms=self.now_ms)
        self.store.apply(tick)  # as if it had ticked all the while

    def upload(self, content: bytes, path: str) -> File:
        file = File(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        body = {"sha256": file.sha256, "bytes": file.bytes}
        offered = self.ask("POST", "/v1/blobs", json=body).json()
        if not offered["present"]:
            self.put(self.as_grant(offered["grant"]["parts"]), content)
        assert self.ask("POST", "/v1/blobs", json=body).json()["present"]
        return file

    def upload_base(self) -> FilesBase:
        """One file that stands for a published base: only its length is that of one, as the list of files tells it."""
        file = replace(self.upload(b"stands for a published base", "model.safetensors"), bytes=6_938_040_682)
        self.execute(f"UPDATE blob SET bytes = {file.bytes} WHERE sha256 = '{file.sha256}'")
        return FilesBase(files=(file,))

    def as_grant(self, parts: list[dict[str, Any] | None]) -> Grant:
        return Grant(parts=tuple(signed and Signed(**signed) for signed in parts))

    def put(self, grant: Grant, content: bytes) -> None:
        """All that is granted."""
        for signed, start in zip(grant.parts, count(0, PART_BYTES), strict=False):
            if signed is not None:
                answer = self.send("PUT", signed, content[start : start + PART_BYTES])
                assert answer.is_success, answer.text

    def send(self, method: str, signed: Signed, content: bytes = b"") -> httpx.Response:
        """To this service, or to the object store where that is another server."""
        ask = httpx.request if "://" in signed.url else self.http.request
        return ask(method, signed.url, content=content, headers=signed.headers)

    def spec(self, **settings: Any) -> LoraSpec:
        values: dict[str, Any] = {
            "base": FilesBase(files=(self.photo,)),
            "photos": (self.photo,),
            "prompt": "sks dog",
            "steps": 100,
            "sample_result": False,  # who ends one job is then as free as before it
        }
        return LoraSpec(**(values | settings))

    def submit(self, project: str = PROJECT, **settings: Any) -> str:
        """Also for several GPUs: older versions took such LoRAs."""
        spec = self.spec(**settings)
        if isinstance(spec.needs, Needs) and spec.needs.slots > 1:
            return queue(self.deployment, project, spec, name="", request=None, now_ms=self.now_ms)
        return submit(self.deployment, project, to_json(spec), name="", request=None, now_ms=self.now_ms)

    def add_project(self, project: str, *, share: float = 1.0, budget_usd: float | None = None) -> str:
        """Another project, with the photo in its store."""
        create_project(self.deployment, project)
        set_allowance(self.deployment, project, share=share, budget_usd=budget_usd)
        self._keep_photo(project)
        return project

    def _keep_photo(self, project: str) -> None:
        """As if it had been uploaded: every test begins so, and `upload` takes three requests."""
        self.objects.write(blob_key(project, self.photo.sha256), b"a photo")
        assert blob_here(self.deployment, project, self.photo.sha256, self.photo.bytes, self.now_ms).present

    def join(self, name: str = "node-a", **facts: Any) -> str:
        """A rented node into the pool that it was rented for."""
        pool = load_node(self.deployment, facts["node"]).pool if "node" in facts else DEFAULT_POOL
        request = Join(machine=f"machine-of-{name}", name=name, **facts)
        return join_pool(self.deployment, request, pool, self.now_ms, rental=facts.get("node")).node

    def claim(self, node: str) -> Assignment:
        assignment = claim(self.deployment, node, self.now_ms)
        assert isinstance(assignment, Assignment), assignment
        return assignment

    def claim_nothing(self, node: str) -> str:
        answer = claim(self.deployment, node, self.now_ms)
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
        Controller(self.deployment).tick(self.now_ms)

    def change_policy(self, **changes: Any) -> None:
        self.deployment = replace(self.deployment, policy=replace(self.deployment.policy, **changes))

    def look(self, sql: str) -> list[dict[str, Any]]:
        """What is in the database, past the store."""
        if isinstance(self.store, ClockedPostgres):
            with psycopg.connect(self.database, row_factory=dict_row) as found:
                return found.execute(sql).fetchall()  # type: ignore[arg-type]
        with closing(sqlite3.connect(self.database)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]

    def execute(self, *statements: str) -> None:
        """As another program would, past the store."""
        for statement in statements:
            if isinstance(self.store, ClockedPostgres):
                with psycopg.connect(self.database) as there:
                    there.execute(statement)  # type: ignore[arg-type]
            else:
                with closing(sqlite3.connect(self.database, isolation_level=None)) as there:
                    there.execute(statement)

    def dump(self) -> str:
        """Everything that is in the database."""
        tables = "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"
        if not isinstance(self.store, ClockedPostgres):
            tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        return "\n".join(str(self.look(f"SELECT * FROM {row['name']}")) for row in self.look(tables))

    def key(self, role: str, project: str = PROJECT, **wanted: Any) -> str:
        """The secret of a new one."""
        return self.make_key(role, project, **wanted)["secret"]

    def make_key(self, role: str, project: str = PROJECT, **wanted: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": project}
        body = {"name": f"a {role}", "role": role} | wanted
        return _made(self.http.post("/v1/keys", json=body, headers=headers))

    def join_token(self, **wanted: Any) -> dict[str, Any]:
        return _made(self.ask("POST", "/v1/join-tokens", json={"name": "machines at home"} | wanted))

    def join_with(self, token: str, machine: str = "m", **facts: Any) -> httpx.Response:
        """As a worker does."""
        return self.ask("POST", "/v1/nodes", token, json={"machine": machine, "name": machine} | facts)

    def ask(self, method: str, path: str, token: str = OPERATOR, **rest: Any) -> httpx.Response:
        return self.http.request(method, path, headers={"Authorization": f"Bearer {token}"}, **rest)


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return LocalObjects(tmp_path / "store", "secret")


def _store(database: str) -> ClockedStore:
    if "://" in database:
        return ClockedPostgres(database)
    if not Path(database).exists():
        make_database(Path(database))
    return ClockedSqlite(Path(database))


@contextmanager
def a_service(folder: Path, database: str, objects: Objects, *, begins_ms: int = START_MS) -> Iterator[Service]:
    """Its ids, secrets and times are the same in each run. A SQLite file that exists is used as it is."""
    store = _store(database)
    store.time_ms = begins_ms
    if not isinstance(objects, LocalObjects):  # whose clock cannot be moved
        store.time_ms = time.time_ns() // 1_000_000
    counter = iter(range(10**9))
    till = Till()
    drivers = make_drivers(till)
    renting = Renting({}, drivers, lambda _name, driver: AtOnce(driver))
    deployment = Deployment(
        store=store,
        objects=objects,
        hub=HuggingFaceHub(""),
        policy=POLICY,
        pools=renting,
        open_pools=renting.refresh,
        drivers=drivers,
        new_id=lambda kind: f"{kind}-{next(counter):06d}",
        new_secret=lambda kind: f"gl_{kind}_secret-{next(counter)}",
        up_since_ms=0,
        sealer=JweSealer(["a key of 32 characters, or longer"]),
        settings_of_pools={name: PoolSettings(price_usd_per_hour=PRICE / 1e6) for name in ("default", "cloud", "home")},
    )
    ensure_secret(deployment, OPERATOR, "operator", now_ms=0)
    ensure_secret(deployment, JOIN, "join", now_ms=0)
    served = objects if isinstance(objects, LocalObjects) else None
    app = make_app(deployment, served, package=InstalledPackage(folder / "wheels"))
    with TestClient(app, raise_server_exceptions=False) as http:
        yield Service(deployment, app, http, store, objects, counter, database, till)
    store.close()


@pytest.fixture
def service(tmp_path: Path, database: str, objects: Objects) -> Iterator[Service]:
    """On each engine."""
    with a_service(tmp_path, database, objects) as service:
        yield service


@pytest.fixture
def stage(database: str) -> Iterator[Stage]:
    """Two requests that meet, in every order of their statements: for tests on PostgreSQL."""
    stage = Stage(database)
    yield stage
    stage.close()
