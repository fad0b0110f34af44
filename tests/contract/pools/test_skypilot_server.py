"""The `skypilot` driver against SkyPilot's own API server, with a stand-in for one of its clouds beneath it.

`GANGLINE_SKYPILOT_PYTHON` names a Python that has SkyPilot, which needs other libraries than this project: `pip install skypilot==0.14.1`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from gangline.adapters.pools.skypilot.driver import SkyPilotPool
from gangline.adapters.pools.skypilot.settings import SkyPilotSettings
from gangline.core.errors import BadInput
from gangline.ports.pool import Instance
from tests.contract.pools.skypilot import FIELDS, record
from tests.contract.pools.suite import rental
from tests.servers import _free_ports, served
from tests.waiting import until

PYTHON = os.environ.get("GANGLINE_SKYPILOT_PYTHON", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),  # the server starts a dozen processes, and builds a package
    pytest.mark.skipif(not PYTHON, reason="GANGLINE_SKYPILOT_PYTHON names no Python that has SkyPilot"),
]
SETTINGS = SkyPilotSettings(
    accelerators=("A10",), clouds=("lambda",), use_spot=False, labels=("team=dogs",), timeout_s=60
)
GPU = "{'Gpus': [{'Name': 'A10', 'Manufacturer': 'NVIDIA', 'Count': 1.0, 'MemoryInfo': {'SizeInMiB': 24576}}]}"
COLUMNS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region"
MACHINE = 'gpu_1x_a10,A10,1.0,30.0,200.0,"{gpu}",0.75,,{region}'
# SkyPilot has no setting for the address of this cloud. Every Python that the server starts reads this, so it imports nothing by itself.
REDIRECT = """\
import importlib.util, sys

class Redirect:
    def find_spec(self, name, path, target=None):
        if name != "sky.provision.lambda_cloud.lambda_utils":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            module.API_ENDPOINT = "{url}"
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Redirect())
"""
MODELS = """\
import json
from sky.schemas.api.responses import StatusResponse
from sky.server.requests import payloads
from sky.server import constants
named = {"/launch": "LaunchBody", "/down": "StopOrDownBody", "/status": "StatusBody", "/list_accelerators": "ListAcceleratorsBody"}
named |= {"/cluster_events": "ClusterEventsBody", "/api/cancel": "RequestCancelBody", "/provision_logs": "ProvisionLogsBody"}
named |= {"/logs": "ClusterJobBody"}
fields = {path: list(getattr(payloads, name).model_fields) for path, name in named.items()}
print(json.dumps({"asked": fields, "status": list(StatusResponse.model_fields), "version": constants.API_VERSION}))
"""


class FakeCloud:
    """A cloud with one free machine, in its western region; nothing answers on the machine."""

    def __init__(self) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self.rented = 0
        self.app = FastAPI()
        self.app.get("/instances")(lambda: {"data": list(self.machines.values())})
        self.app.get("/ssh-keys")(lambda: {"data": []})
        self.app.post("/ssh-keys")(lambda: {"data": {}})
        self.app.get("/instance-types")(self._types)
        self.app.post("/instance-operations/launch")(self._launch)
        self.app.post("/instance-operations/terminate")(self._terminate)

    def _types(self) -> Any:
        free = [] if self.machines else [{"name": "us-west-1"}]
        return {"data": {"gpu_1x_a10": {"regions_with_capacity_available": free}}}

    async def _launch(self, request: Request) -> Any:
        asked = await request.json()
        self.rented += 1
        machine = {"id": f"i-{self.rented}", "name": asked["name"], "status": "active", "ip": "127.0.0.1"}
        machine |= {"private_ip": "127.0.0.1", "region": {"name": asked["region_name"]}}
        self.machines[machine["id"]] = machine | {"instance_type": {"name": asked["instance_type_name"]}}
        return {"data": {"instance_ids": [machine["id"]]}}

    async def _terminate(self, request: Request) -> Any:
        gone = [self.machines.pop(each) for each in (await request.json())["instance_ids"] if each in self.machines]
        return {"data": {"terminated_instances": gone}}


@contextmanager
def api_server(home: Path, cloud: str) -> Iterator[str]:
    """SkyPilot's API server with a home and a cloud of its own, until the context ends; then all its processes have ended too."""
    _catalog(home)
    (home / "sitecustomize.py").write_text(REDIRECT.format(url=cloud))
    (port,) = _free_ports(1)
    # A launch builds a package of SkyPilot for the machine: pip keeps the settings that it has here.
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [PYTHON, "-m", "sky.server.server", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: server.poll() is not None or _is_up(url))
        assert server.poll() is None, (home / "log").read_text()[-2000:]
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/health").json()["status"] == "healthy"
    except httpx.HTTPError:
        return False


def _catalog(home: Path) -> None:
    """Two regions of one cloud, and an account there."""
    folder = home / ".sky" / "catalogs" / "v8"
    (folder / "lambda").mkdir(parents=True)
    (folder / "common").mkdir()
    rows = [MACHINE.format(gpu=GPU, region=region) for region in ("us-east-1", "us-west-1")]
    (folder / "lambda" / "vms.csv").write_text("\n".join([COLUMNS, *rows, ""]))
    (folder / "common" / "accelerators.csv").write_text("AcceleratorName,Clouds\nA10,Lambda\n")
    (home / ".lambda_cloud").mkdir()
    (home / ".lambda_cloud" / "lambda_keys").write_text("api_key = x\n")


def of(pool: SkyPilotPool, name: str) -> Instance:
    (only,) = [each for each in pool.list() if each.name == name]
    return only


def test_the_stand_in_asks_and_answers_what_skypilots_models_have() -> None:
    told = json.loads(subprocess.run([PYTHON, "-c", MODELS], check=True, capture_output=True, text=True).stdout)
    unknown = {path: sorted(fields - set(told["asked"][path])) for path, fields in FIELDS.items()}
    assert not any(unknown.values()), unknown
    assert set(record("gl-a", 1)) <= set(told["status"]) and told["version"] == 62


def test_skypilots_own_server_understands_what_the_driver_asks(tmp_path: Path) -> None:
    cloud = FakeCloud()
    with served(cloud.app) as cloud_url, api_server(tmp_path, cloud_url) as url:
        pool = SkyPilotPool(settings=SETTINGS, mark="p1", endpoint=url)
        httpx.post(f"{url}/check", json={"clouds": ["lambda"]})
        until(lambda: _has_offers(pool))
        east, west = pool.offers()
        assert (east.id, west.price_micro_usd_per_hour) == ("lambda/us-east-1/a10:on-demand", 750_000)
        assert pool.list() == []

        # No machine is free in the east.
        pool.start(east.id, rental("node-a"))
        until(lambda: of(pool, "node-a").ended)
        assert "Failed to acquire resources in all zones in us-east-1" in of(pool, "node-a").ended
        assert pool.offers() == [west] and cloud.machines == {}

        # In the west one is rented, once. Nothing answers there, so its launch goes on until it is stopped.
        for _ in range(2):
            pool.start(west.id, rental("node-b"))
        until(lambda: of(pool, "node-b").billed_from_ms is not None)
        again = SkyPilotPool(settings=SETTINGS, mark="p1", endpoint=url)
        assert of(again, "node-b").billed_from_ms == of(pool, "node-b").billed_from_ms and cloud.rented == 1
        assert "Instances launched" in pool.logs("gl-node-b-p1")
        pool.stop("gl-node-b-p1")
        until(lambda: of(pool, "node-b").billed_to_ms is not None)
        assert of(pool, "node-b").ended == "it was stopped" and cloud.machines == {}
        for gone in ("gl-node-b-p1", "gl-nothing-p1"):
            pool.stop(gone)

        # A launch that is cut off leaves a machine, which the driver removes.
        pool.start(west.id, rental("node-c"))
        until(lambda: cloud.machines)
        (begun,) = httpx.get(f"{url}/api/status", params={"cluster_name": "gl-node-c-p1"}).json()
        httpx.post(f"{url}/api/cancel", json={"request_ids": [begun["request_id"]]})
        until(lambda: of(pool, "node-c").ended)
        assert of(pool, "node-c").ended == "its launch failed: it was cut off" and cloud.machines == {}


def _has_offers(pool: SkyPilotPool) -> bool:
    try:
        return bool(pool.offers())
    except BadInput:  # it still looks which clouds it has
        return False
