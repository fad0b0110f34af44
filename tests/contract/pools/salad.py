"""A stand-in for SaladCloud: its public API over HTTP, with room for two nodes, a clock that the test moves, and faults.

Each request that it takes and each answer that it gives is parsed by the models of Salad's own client, so that the stand-in speaks as the
original does.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from salad_cloud_sdk.models import (
    ContainerGroup,
    ContainerGroupCollection,
    ContainerGroupCreationRequest,
    ContainerGroupInstanceCollection,
    GpuAvailability,
    GpuAvailabilityPrototype,
    GpuClassesList,
    LogEntryCollection,
    LogEntryQuery,
    ProblemDetails,
    Quotas,
    SystemLogList,
)

from gangline.adapters.pools.salad.driver import SaladPool
from gangline.adapters.pools.salad.settings import KEYS, SaladSettings
from tests.contract.pools.suite import PLACES, Fault, rental

ORGANIZATION, PROJECT, KEY = "acme", "dogs", "salad_cloud_user_secret"
MARK, SERVER = "p1", rental("any").server
GROUPS = f"/organizations/{ORGANIZATION}/projects/{PROJECT}/containers"
RTX_4090, RTX_3060, RADEON = (str(uuid.UUID(int=number)) for number in (4090, 3060, 7900))
NOBODY = str(uuid.UUID(int=0))
LOOK_MS = 5_000
"""How much later it is at each list of all groups."""
SAID_BY_SDK = {
    "instances": ContainerGroupInstanceCollection,
    "system-logs": SystemLogList,
    "gpu-classes": GpuClassesList,
}
SAID_BY_SDK |= {"quotas": Quotas, "log-entries": LogEntryCollection, "sce-gpu-availability": GpuAvailability}
ASKED_BY_SDK = {"containers": ContainerGroupCreationRequest, "log-entries": LogEntryQuery}
ASKED_BY_SDK |= {"sce-gpu-availability": GpuAvailabilityPrototype}
ROUTES = ("", "/{group}", "/{group}/instances", "/{group}/system-logs", "/{group}/instances/{instance}/reallocate")


class FakeSalad:
    """The cloud. Groups have their instances as Salad shows them; `requests` are those that it was sent, as `METHOD path`."""

    def __init__(self) -> None:
        self.now_ms = 1_780_000_000_000
        self.replicas_quota = PLACES
        self.free = dict.fromkeys(("high", "medium", "low", "batch"), 7)
        self.classes = [
            gpu_class(RTX_4090, "RTX 4090 (24 GB)", {"high": "0.30", "medium": "0.26", "low": "0.22", "batch": "0.18"}),
            gpu_class(RTX_3060, "RTX 3060 (12 GB)", {"low": "0.047", "batch": "0.03"}),
            gpu_class(RADEON, "Radeon RX 7900 XTX (24 GB)", {"batch": "0.1"}),
        ]
        self.groups: dict[str, dict[str, Any]] = {}
        self.instances: dict[str, list[dict[str, Any]]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.printed: dict[str, list[str]] = {}
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.removal_looks = 1
        """How many lists still show a group that was removed."""
        self.answers: dict[str, Response] = {}
        """What a request is answered in place of what it should be."""
        self.fault: Fault | None = None
        self._snapshot: list[dict[str, Any]] = []
        self.app = FastAPI()
        self.app.middleware("http")(self._through)
        self.app.get(GROUPS)(self._list)
        self.app.post(GROUPS)(self._create)
        self.app.get(f"{GROUPS}/{{group}}")(self._get)
        self.app.delete(f"{GROUPS}/{{group}}")(self._delete)
        self.app.get(f"{GROUPS}/{{group}}/instances")(self._instances)
        self.app.get(f"{GROUPS}/{{group}}/system-logs")(self._system_logs)
        self.app.post(f"{GROUPS}/{{group}}/instances/{{instance}}/reallocate")(self._reallocate)
        self.app.get(f"/organizations/{ORGANIZATION}/gpu-classes")(lambda: JSONResponse({"items": self.classes}))
        self.app.get(f"/organizations/{ORGANIZATION}/quotas")(self._quotas)
        self.app.post(f"/organizations/{ORGANIZATION}/availability/sce-gpu-availability")(self._available)
        self.app.post(f"/organizations/{ORGANIZATION}/log-entries")(self._logs)

    @contextmanager
    def suffers(self, fault: Fault) -> Iterator[None]:
        self.fault, self._snapshot = fault, self._listing()
        try:
            yield
        finally:
            self.fault = None

    # What happens by itself, and by hand

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def run(self, group: str) -> None:
        """Bring the newest instance of the group to run."""
        if self.instances[group][-1]["state"] != "running":
            self.change(group, -1, state="running", machine_id=str(uuid.uuid4()))
            self.groups[group]["current_state"]["status"] = "running"

    def change(self, group: str, number: int, **fields: Any) -> None:
        self.instances[group][number] |= fields | {"update_time": self.time()}

    def place_anew(self, group: str, event: str, state: str = "allocating") -> str:
        """Take the machine away from a group, for this reason, and look for another. Return the id of the instance that it left."""
        left = self.instances[group].pop()
        self.happen(group, event, left)
        self.instances[group].append(self._instance())
        if state != "allocating":
            self.change(group, -1, state=state, machine_id=str(uuid.uuid4()))
        return left["id"]

    def happen(self, group: str, event: str, instance: Mapping[str, Any]) -> None:
        asked = self.groups[group]["container"]["resources"]
        said = {"event_name": event, "event_time": self.time(), "version": "1", "resource_cpu": asked["cpu"]}
        said |= {"resource_gpu_class": "RTX 4090 (24 GB)", "resource_memory": asked["memory"]}
        said |= {"resource_storage_amount": asked["storage_amount"]}
        said |= {"instance_id": instance["id"], "machine_id": instance["machine_id"]}
        self.events.setdefault(group, []).append(said)

    def end(self, group: str) -> None:
        del self.groups[group], self.instances[group]

    def stop_by_hand(self, group: str) -> None:
        """What the portal's button does: the group stays."""
        self.groups[group]["current_state"]["status"] = "stopped"
        self.instances[group] = []

    def add(self, body: Mapping[str, Any]) -> dict[str, Any]:
        given = body["container"]
        container = {name: given[name] for name in ("command", "image", "environment_variables") if name in given}
        group = {
            "id": str(uuid.uuid4()),
            "name": body["name"],
            "display_name": body.get("display_name", body["name"]),
            "organization_name": ORGANIZATION,
            "project_name": PROJECT,
            "container": {"command": None} | container | {"resources": {"gpu_classes": []} | given["resources"]},
            "autostart_policy": body["autostart_policy"],
            "restart_policy": body["restart_policy"],
            "replicas": body["replicas"],
            "priority": given.get("priority"),
            "country_codes": body.get("country_codes", []),
            "scaling-actions": [],
            "scheduled-scaling-enabled": False,
            "pending_change": False,
            "version": 1,
            "create_time": self.time(),
            "update_time": self.time(),
            "current_state": {"status": "deploying", "start_time": self.time(), "finish_time": self.time()},
        }
        self.groups[group["name"]] = group
        self.instances[group["name"]] = [self._instance()]
        return group

    def time(self) -> str:
        return f"{datetime.fromtimestamp(self.now_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}1Z"

    # What it is asked

    async def _through(self, request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        path, body = request.url.path, await request.body()
        self.requests.append(f"{request.method} {path}")
        last = path.rsplit("/", 1)[-1]
        if body and last in ASKED_BY_SDK:
            ASKED_BY_SDK[last]._unmap(json.loads(body))
        early = self._early(request)
        if early is not None:
            return early
        answer = await proceed(request)
        parts = [part async for part in answer.body_iterator]  # pyright: ignore[reportAttributeAccessIssue]
        said = b"".join(part if isinstance(part, bytes) else bytes(part) for part in parts)
        read_by_sdk(request.method, path, answer.status_code, said)
        if self.fault is Fault.LOST_AFTER and request.method == "POST" and path == GROUPS:
            return cut_off()
        if self.fault is Fault.PARTIAL and request.method == "GET" and path == GROUPS:
            said = said[: len(said) // 2]
        return Response(said, answer.status_code, media_type=answer.headers.get("content-type"))

    def _early(self, request: Request) -> Response | None:
        """Return an answer that another than the API gives, or that it gives to no one."""
        path = request.url.path
        for name, answer in self.answers.items():
            if f"{request.method} {path}".endswith(name):
                return answer
        lost = self.fault is Fault.LOST_BEFORE and request.method == "POST" and path == GROUPS
        if lost or self.fault is Fault.AWAY:
            return cut_off()
        if request.headers.get("Salad-Api-Key") != KEY or self.fault is Fault.CREDENTIALS:
            return problem(401, "Unauthorized", "The API key is invalid.")
        if not path.startswith(f"/organizations/{ORGANIZATION}/") or (
            "/projects/" in path and not path.startswith(GROUPS)
        ):
            return problem(404, "Not Found", "The organization or project does not exist.")
        return None

    def _list(self) -> Response:
        self.now_ms += LOOK_MS
        listed = self._snapshot if self.fault is Fault.STALE else self._listing()
        for group in [name for name, each in self.groups.items() if each.get("going")]:
            self.groups[group]["going"] -= 1
            if not self.groups[group]["going"]:
                self.end(group)
        return JSONResponse({"items": listed})

    async def _create(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if body["name"] in self.groups:
            return problem(409, "Conflict", "A container group with this name already exists.")
        known = {each["id"] for each in self.classes}
        if not set(body["container"]["resources"].get("gpu_classes", [])) <= known:
            return problem(400, "Bad Request", "The GPU class does not exist.")
        if self._used() + body["replicas"] > self._quota():
            return problem(403, "Forbidden", "You may not create this.")
        self.created.append(body)
        return JSONResponse(self._shown(self.add(body)), 201)

    def _get(self, group: str) -> Response:
        return JSONResponse(self._shown(self.groups[group])) if group in self.groups else nothing()

    def _delete(self, group: str) -> Response:
        if group not in self.groups:
            return nothing()
        if self.fault is not Fault.DEAF:
            self.groups[group].setdefault("going", self.removal_looks)
            self.groups[group]["current_state"]["status"] = "stopped"
            for number in range(len(self.instances[group])):
                self.change(group, number, state="stopping")
        return Response(status_code=202)

    def _instances(self, group: str) -> Response:
        return JSONResponse({"instances": self.instances[group]}) if group in self.groups else nothing()

    def _system_logs(self, group: str) -> Response:
        return JSONResponse({"items": self.events.get(group, [])}) if group in self.groups else nothing()

    def _reallocate(self, group: str, instance: str) -> Response:
        if instance not in [each["id"] for each in self.instances.get(group, [])]:
            return nothing()
        self.place_anew(group, "Instance Reallocated by User", "creating")
        return Response(status_code=202)

    def _quotas(self) -> Response:
        replicas = {"container_replicas_quota": self._quota(), "container_replicas_used": self._used()}
        return JSONResponse(
            {"container_groups_quotas": replicas | {"max_container_group_reallocations_per_minute": 10}}
        )

    def _available(self) -> Response:
        free = dict.fromkeys(self.free, 0) if self.fault is Fault.NO_CAPACITY else self.free
        return JSONResponse(
            {f"available_gpu_{priority}": count for priority, count in free.items()} | {"on_call_gpu": 3}
        )

    async def _logs(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        assert datetime.fromisoformat(asked["end_time"]).timestamp() * 1000 <= self.now_ms, "not about the future"
        lines = [
            line
            for group, said in self.printed.items()
            if f'container_group_name = "{group}"' in asked["query"]
            for line in said
        ]
        resource = {"type": "container", "labels": {"project_name": PROJECT}}
        said = {"receive_time": self.time(), "time": self.time(), "severity": "info", "resource": resource}
        items = [said | {"text_log": line} for line in lines][-asked["page_size"] :]
        page = {"page_max_time": asked["end_time"], "page_min_time": asked["start_time"]}
        return JSONResponse({"items": items, "organization_name": ORGANIZATION} | page)

    def _listing(self) -> list[dict[str, Any]]:
        return [self._shown(each) for each in self.groups.values()]

    def _shown(self, group: Mapping[str, Any]) -> dict[str, Any]:
        states = [each["state"] for each in self.instances[group["name"]]]
        counts = {f"{state}_count": states.count(state) for state in ("allocating", "creating", "running", "stopping")}
        counts["creating_count"] += states.count("downloading")
        shown = {name: value for name, value in group.items() if name != "going"}
        return shown | {"current_state": group["current_state"] | {"instance_status_counts": counts}}

    def _instance(self) -> dict[str, Any]:
        return {
            "id": str(uuid.uuid4()),
            "machine_id": NOBODY,
            "state": "allocating",
            "update_time": self.time(),
            "version": 1,
        }

    def _used(self) -> int:
        return sum(group["replicas"] for group in self.groups.values() if not group.get("going"))

    def _quota(self) -> int:
        return 0 if self.fault is Fault.QUOTA else self.replicas_quota


class SaladProvider:
    """The stand-in as the contract's suite wants it, with a driver of it."""

    def __init__(
        self, cloud: FakeSalad, url: str, settings: SaladSettings | None = None, keys: str = KEYS, mark: str = MARK
    ) -> None:
        self.cloud = cloud
        self._mark = mark
        self._keys = keys
        self._url = url
        self._settings = settings or SaladSettings()
        self.driver = self.restarted()

    def restarted(self) -> SaladPool:
        return SaladPool(
            organization=ORGANIZATION,
            project=PROJECT,
            key=KEY,
            mark=self._mark,
            server=SERVER,
            endpoint=self._url,
            keys=self._keys,
            settings=self._settings,
            clock=lambda: self.cloud.now_ms,
        )

    def suffers(self, fault: Fault) -> Any:
        return self.cloud.suffers(fault)

    def run(self, name: str) -> None:
        self.cloud.run(group_of(name))

    def kill(self, name: str) -> None:
        self.cloud.place_anew(group_of(name), "Instance Interrupted (Node Offline)", "downloading")

    def end_by_hand(self, name: str) -> None:
        self.cloud.end(group_of(name))

    def rent_by_hand(self, name: str) -> str:
        resources = {"cpu": 1, "memory": 1024}
        self.cloud.add(
            {
                "name": name,
                "autostart_policy": True,
                "restart_policy": "always",
                "replicas": 1,
                "container": {"image": "x", "resources": resources},
            }
        )
        return name

    def has(self, instance: str) -> bool:
        return instance in self.cloud.groups and not self.cloud.groups[instance].get("going")


def group_of(name: str) -> str:
    return f"gl-{name}-{MARK}"


def gpu_class(of: str, name: str, prices: Mapping[str, str], **more: Any) -> dict[str, Any]:
    priced = [{"priority": priority, "price": price} for priority, price in prices.items()]
    limits = {
        "min_vcpu": 1,
        "max_vcpu": 16,
        "min_ram": 1024,
        "max_ram": 61_440,
        "min_storage": 1 << 30,
        "max_storage": 250 << 30,
    }
    return {"id": of, "name": name, "prices": priced, "gpu_class_type": "community", "gpu_count": 1} | limits | more


def problem(status: int, title: str, detail: str) -> Response:
    said = {"type": "about:blank", "title": title, "detail": detail, "status": status}
    return Response(json.dumps(said), status, media_type="application/problem+json")


def nothing() -> Response:
    return problem(404, "Not Found", "There is no such container group.")


def web_page(status: int) -> Response:
    """An error as a gateway in front of the API gives it."""
    return Response("<!DOCTYPE html><html><body><h1>Sorry</h1></body></html>", status, media_type="text/html")


def cut_off() -> Response:
    """An answer that never arrives: the connection is closed after its headers."""

    class CutOff(Response):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"", "more_body": True})

    return CutOff()


def read_by_sdk(method: str, path: str, status: int, said: bytes) -> None:
    """Parse an answer with the models of Salad's own client, which refuse what is missing or of another type; of a long list its start."""
    if not said:
        return
    last, read = path.rsplit("/", 1)[-1], json.loads(said)
    if status >= 400:
        model: Any = ProblemDetails
    elif last == "containers":
        model = ContainerGroupCollection if method == "GET" else ContainerGroup
    else:
        model = SAID_BY_SDK.get(last, ContainerGroup)
    model._unmap(read | {"items": read["items"][:20]} if "items" in read else read)
