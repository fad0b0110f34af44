"""A stand-in for SkyPilot's API server: the calls that the driver makes, over HTTP, with room for two nodes, a clock and faults.

Its answers have the form of those of SkyPilot 0.14.1, and `FIELDS` are the fields that its request models have: the real server ignores
others without a word. `test_skypilot_server.py` compares both with the real package.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from gangline.adapters.pools.skypilot.driver import SkyPilotPool
from gangline.adapters.pools.skypilot.settings import SkyPilotSettings
from tests.contract.pools.salad import cut_off
from tests.contract.pools.suite import PLACES, Fault

TOKEN = "sky_a-service-account"
WANTED = SkyPilotSettings(accelerators=("RTX4090",))
LOOK_MS = 5_000
"""How much later it is at each list of all clusters."""
WAITS = 30
"""For how many hundredths of a second `/api/get` waits: longer than the driver does."""
COMMON = frozenset({"env_vars", "entrypoint_command"})
FIELDS = {
    "/launch": COMMON | {"cluster_name", "task", "retry_until_up", "quiet_optimizer"},
    "/down": COMMON | {"cluster_name"},
    "/status": COMMON
    | {"cluster_names", "refresh", "all_users", "include_credentials", "include_handle", "summary_response"},
    "/list_accelerators": COMMON | {"name_filter", "case_sensitive", "quantity_filter", "clouds", "all_regions"},
    "/cluster_events": COMMON | {"cluster_name", "cluster_hash", "event_type", "include_timestamps", "limit"},
    "/api/cancel": COMMON | {"request_ids"},
    "/provision_logs": COMMON | {"cluster_name"},
    "/logs": COMMON | {"cluster_name", "job_id", "follow", "tail"},
}
"""The fields of each request's body that the driver may send."""


def row(cloud: str, gpu: str, price: float | None, spot: float | None, region: str, **other: Any) -> list[Any]:
    """A machine type as the catalog lists it."""
    given = {"count": 1.0, "cpus": 8.0, "gpu_memory": 24.0, "memory": 62.0} | other
    kind = given.get("instance_type", f"1x_{gpu}")
    return [
        cloud,
        kind,
        gpu,
        given["count"],
        given["cpus"],
        given["gpu_memory"],
        given["memory"],
        price,
        spot,
        region,
    ]


class FakeSkyPilot:
    """The API server, and the clouds beneath it. `clusters` are as SkyPilot lists them, and `bodies` are those that it was sent."""

    def __init__(self) -> None:
        self.now_ms = 1_780_000_000_000
        self.places = PLACES
        self.enabled = ["runpod", "lambda"]
        self.catalog = [
            row("RunPod", "RTX4090", 0.69, 0.35, "CA"),
            row("RunPod", "RTX4090", 0.74, 0.39, "US"),
            row("Lambda", "A10", 0.75, None, "us-east-1"),
        ]
        self.clusters: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.printed: dict[str, str] = {}
        self.answers: dict[str, Response] = {}
        """What a request is answered in place of what it should be."""
        self.down_fails = ""
        self.looks_to_remove = 2
        """How many lists of all clusters still have one after its removal was requested."""
        self._removals: dict[str, tuple[dict[str, Any], int]] = {}
        self.api_version = "62"
        self.fault: Fault | None = None
        self._snapshot: list[dict[str, Any]] = []
        self.app = FastAPI()
        self.app.middleware("http")(self._through)
        for path in FIELDS:
            self.app.post(path)(self._asked)
        self.app.get("/enabled_clouds")(self._enabled)
        self.app.get("/api/get")(self._get)
        self.app.get("/api/status")(self._requests)

    @contextmanager
    def suffers(self, fault: Fault) -> Iterator[None]:
        self.fault, self._snapshot = fault, list(self.clusters.values())
        try:
            yield
        finally:
            self.fault = None

    # What happens by itself, and by hand

    @property
    def launched(self) -> list[dict[str, Any]]:
        return [body for path, body in self.bodies if path == "/launch"]

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def launch_of(self, cluster: str) -> dict[str, Any]:
        return [
            each for each in self.requests.values() if (each["name"], each["cluster_name"]) == ("sky.launch", cluster)
        ][-1]

    def provision(self, cluster: str) -> None:
        """Bring a launch as far as SkyPilot has asked the cloud for a machine."""
        self.launch_of(cluster)["status"] = "RUNNING"
        self.clusters[cluster] = record(cluster, self.now_ms // 1000)

    def rent(self, cluster: str) -> None:
        """Bring a launch as far as the cloud has rented the machine."""
        if cluster not in self.clusters:
            self.provision(cluster)
        self.clusters[cluster] |= {"node_names": "i-0", "init_status_reason": "Instances launched on runpod in CA"}

    def run(self, cluster: str) -> None:
        if cluster not in self.clusters or self.clusters[cluster]["status"] != "UP":
            self.rent(cluster)
            self.clusters[cluster] |= {"status": "UP", "init_kind": None, "init_status_reason": None}
            self.finish(self.launch_of(cluster), [1, "a handle"])
            self.happen(cluster, "All nodes up; SkyPilot runtime healthy.")

    def fail_launch(self, cluster: str, kind: str, message: str, *, leaves: str = "") -> None:
        """End a launch. `leaves` is the status of the cluster that stays; else none does."""
        self.fail(self.launch_of(cluster), kind, message)
        if leaves:
            self.clusters[cluster] |= {"status": leaves, "init_kind": "launching" if leaves == "INIT" else None}
        else:
            self.clusters.pop(cluster, None)

    def end(self, cluster: str, reason: str) -> None:
        """Remove a cluster, as whoever `reason` says."""
        self.happen(cluster, reason)
        del self.clusters[cluster]

    def happen(self, cluster: str, reason: str) -> None:
        happened = {"reason": reason, "transitioned_at": self.now_ms // 1000}
        self.events.setdefault(self.clusters[cluster]["cluster_hash"], []).append(happened)

    def finish(self, request: dict[str, Any], value: Any) -> None:
        request |= {"status": "SUCCEEDED", "return_value": json.dumps(value)}

    def fail(self, request: dict[str, Any], kind: str, message: str) -> None:
        failure = {"object": "a pickle", "type": kind, "message": message}
        request |= {"status": "FAILED", "error": json.dumps(failure)}

    # What it is asked

    async def _through(self, request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        path, body = request.url.path, await request.body()
        if body:
            asked = json.loads(body)
            assert set(asked) <= FIELDS[path], f"SkyPilot ignores {set(asked) - FIELDS[path]}"
            self.bodies.append((path, asked))
        early = self._early(request)
        answer = await proceed(request) if early is None else early
        if self.fault is Fault.LOST_AFTER and path == "/launch":
            return cut_off()
        answer.headers["X-SkyPilot-API-Version"] = self.api_version
        answer.headers["X-SkyPilot-Version"] = "0.14.1"
        return answer

    def _early(self, request: Request) -> Response | None:
        """Return an answer that another than the API gives, or that it gives to no one."""
        path = request.url.path
        if path in self.answers:
            return self.answers[path]
        if self.fault is Fault.AWAY or (self.fault is Fault.LOST_BEFORE and path == "/launch"):
            return cut_off()
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" or self.fault is Fault.CREDENTIALS:
            return JSONResponse({"detail": "Invalid service account token"}, 401)
        assert request.headers["X-SkyPilot-API-Version"] == "62", "as SkyPilot's own client says its version"
        return None

    async def _asked(self, request: Request) -> Response:
        path, body = request.url.path, json.loads(await request.body())
        if path in ("/provision_logs", "/logs"):
            return Response(self.printed.get(path, ""), media_type="text/plain")
        made = self._made("sky." + path.rsplit("/", 1)[-1], body.get("cluster_name"))
        getattr(self, "_do" + path.replace("/", "_"))(made, body)
        return JSONResponse(None, headers={"X-SkyPilot-Request-ID": made["request_id"]})

    def _enabled(self) -> Response:
        made = self._made("sky.enabled_clouds", None)
        self.finish(made, self.enabled)
        return JSONResponse(None, headers={"X-SkyPilot-Request-ID": made["request_id"]})

    async def _get(self, request_id: str) -> Response:
        found = self.requests[request_id]
        for _ in range(WAITS):  # the real server waits for as long as it takes
            if found["status"] in ("PENDING", "RUNNING"):
                await asyncio.sleep(0.01)
        if found["status"] == "FAILED":
            return JSONResponse({"detail": found}, 500)
        said = json.dumps(found).encode()
        cut = self.fault is Fault.PARTIAL and found["name"] == "sky.status"
        return Response(said[: len(said) // 2] if cut else said, media_type="application/json")

    def _requests(self, request: Request) -> Response:
        asked = request.query_params
        found = [
            each | {"return_value": "null", "error": "null"}
            for each in self.requests.values()
            if asked.get("request_ids", each["request_id"]) == each["request_id"]
            and asked.get("cluster_name", each["cluster_name"]) == each["cluster_name"]
            and ("all_status" in asked or "request_ids" in asked or each["status"] in ("PENDING", "RUNNING"))
        ]
        return JSONResponse(found)

    def _made(self, name: str, cluster: str | None) -> dict[str, Any]:
        made: dict[str, Any] = {
            "request_id": str(uuid.uuid4()),
            "name": name,
            "status": "PENDING",
            "cluster_name": cluster,
        }
        made |= {"created_at": self.now_ms / 1000 + len(self.requests) / 1e6, "return_value": "null", "error": "null"}
        self.requests[made["request_id"]] = made
        return made

    def _do_launch(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        begun = [
            each
            for each in self.requests.values()
            if each["name"] == "sky.launch" and each["status"] in ("PENDING", "RUNNING")
        ]
        taken = {each["cluster_name"] for each in begun} | set(self.clusters)
        if self.fault in (Fault.NO_CAPACITY, Fault.QUOTA) or len(taken) > self.places:
            self.fail(made, "ResourcesUnavailableError", NO_MACHINE)

    def _do_down(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        cluster = body["cluster_name"]
        if cluster not in self.clusters:
            self.fail(made, "ClusterDoesNotExist", f"Cluster '{cluster}' does not exist.")
        elif self.down_fails:
            self.fail(made, "RuntimeError", self.down_fails)
        elif cluster in self._removals:
            said = f"Cluster '{cluster}' is locked by {cluster}_status. Check to see if it is still being launched"
            self.fail(made, "RuntimeError", said)
        elif self.fault is Fault.DEAF:
            self.finish(made, None)
        else:
            self.happen(cluster, "Cluster was terminated by user gangline (request ID: x).")
            self._removals[cluster] = made, self.looks_to_remove
            self._remove()

    def _remove(self) -> None:
        """Remove the clusters whose removal has taken its time."""
        for cluster, (made, looks) in list(self._removals.items()):
            if not looks:
                del self._removals[cluster]
                self.clusters.pop(cluster, None)
                self.finish(made, None)

    def _do_status(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        names, listed = body.get("cluster_names"), list(self.clusters.values())
        if names is None:
            self.now_ms += LOOK_MS
            listed = self._snapshot if self.fault is Fault.STALE else listed
            self._removals = {cluster: (down, looks - 1) for cluster, (down, looks) in self._removals.items()}
            self._remove()
        self.finish(made, [each for each in listed if names is None or each["name"] in names])

    def _do_list_accelerators(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        found: dict[str, list[Any]] = {}
        names = body["name_filter"].lower().removeprefix("^(").removesuffix(")$").replace("\\", "").split("|")
        for each in self.catalog:
            if each[0].lower() in body["clouds"] and each[2].lower() in names and each[3] == body["quantity_filter"]:
                found.setdefault(each[2], []).append(each)
        self.finish(made, found)

    def _do_cluster_events(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        known = self.clusters.get(body.get("cluster_name") or "", {}).get("cluster_hash", body.get("cluster_hash"))
        if known is None:
            self.fail(made, "ValueError", f"Hash for cluster {body['cluster_name']} not found.")
        else:
            self.finish(made, self.events.get(known, []))

    def _do_api_cancel(self, made: dict[str, Any], body: dict[str, Any]) -> None:
        for request_id in body["request_ids"]:
            if self.fault is not Fault.DEAF and self.requests[request_id]["status"] in ("PENDING", "RUNNING"):
                self.requests[request_id]["status"] = "CANCELLED"
        self.finish(made, body["request_ids"])


NO_MACHINE = (
    "\x1b[31mFailed to provision all possible launchable resources.\x1b[0m Relax the task's resource requirements.\n"
    "Provision failures (tried 1 infra):\n\n✗ RunPod (CA) — (gpus=RTX4090:1, ...)\n  Failed to acquire resources in all zones in CA.\n"
)


def record(cluster: str, launched_at: int) -> dict[str, Any]:
    """A cluster as SkyPilot lists it while it makes it."""
    return {
        "name": cluster,
        "launched_at": launched_at,
        "status": "INIT",
        "autostop": -1,
        "to_down": False,
        "cluster_hash": str(uuid.uuid4()),
        "cluster_ever_up": False,
        "user_hash": "6a6e6c6e",
        "user_name": "gangline",
        "workspace": "default",
        "is_managed": False,
        "init_kind": "launching",
        "init_status_reason": "Provisioning on runpod in CA",
        "nodes": 1,
        "cloud": "RunPod",
        "region": "CA",
        "handle": "gAROLg==",
    }


class SkyPilotProvider:
    """The stand-in as the contract's suite wants it, with a driver of it."""

    def __init__(self, cloud: FakeSkyPilot, url: str, settings: SkyPilotSettings = WANTED) -> None:
        self.cloud = cloud
        self._url = url
        self._settings = settings
        self.driver = self.restarted()

    def restarted(self) -> SkyPilotPool:
        return SkyPilotPool(
            settings=self._settings,
            mark="p1",
            endpoint=self._url,
            secret=TOKEN,
            launch_wait_s=0.05,
            clock=lambda: self.cloud.now_ms,
        )

    def suffers(self, fault: Fault) -> Any:
        return self.cloud.suffers(fault)

    def run(self, name: str) -> None:
        self.cloud.run(f"gl-{name}-p1")

    def kill(self, name: str) -> None:
        self.cloud.end(f"gl-{name}-p1", "All nodes terminated, cleaning up the cluster.")

    def end_by_hand(self, name: str) -> None:
        self.cloud.end(f"gl-{name}-p1", "Cluster was terminated by user bob (request ID: y).")

    def rent_by_hand(self, name: str) -> str:
        self.cloud.clusters[name] = record(name, self.cloud.now_ms // 1000) | {"status": "UP"}
        return name

    def has(self, instance: str) -> bool:
        return instance in self.cloud.clusters
