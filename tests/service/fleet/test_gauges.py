"""What nodes measure of themselves: they send it with what they ask, and whoever looks at the fleet sees it."""

import json
import time
from dataclasses import asdict, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from gangline.cli import main
from gangline.cli.gauges import gauges_facts, load_text
from gangline.core.fleet.gauges import Gauges, GaugesView, GpuGauges
from gangline.ports.server import Assignment, Beat, Beaten, Join
from gangline.service.fleet.nodes import gone
from gangline.service.jobs.claim import claim
from gangline.service.jobs.renew import renew
from gangline.wire.agent import HttpServer
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.served import serving
from tests.wire.record import GAUGES

HOT = replace(GAUGES, gpus=(replace(GAUGES.gpus[0], temperature_c=90),))
SENT = json.loads(json.dumps(asdict(GAUGES)))


def listed(service: Service) -> dict[str, Any]:
    (node,) = service.ask("GET", "/v1/nodes").json()
    return node


def shown(service: Service, node: str) -> dict[str, Any]:
    return service.ask("GET", f"/v1/nodes/{node}").json()


@pytest.fixture
def node(service: Service) -> HttpServer:
    joined = HttpServer("http://testserver", JOIN, service.http)  # type: ignore[arg-type]
    joined.join(Join(machine="m", name="n", gpu="T4", gpu_memory_gb=16))
    return joined


def post(service: Service, node: HttpServer, path: str, content: str) -> Any:
    headers = {"Authorization": f"Bearer {node._http.token}", "Content-Type": "application/json"}
    return service.http.post(path, content=content.encode(), headers=headers)


def test_an_idle_node_sends_its_gauges_when_it_asks_for_work(service: Service, node: HttpServer) -> None:
    assert listed(service)["gauges"] is None
    node.claim(GAUGES)
    assert listed(service)["gauges"] == SENT | {"at_ms": service.now_ms}


def test_a_busy_node_sends_them_with_a_heartbeat(service: Service, node: HttpServer) -> None:
    service.submit()
    assignment = node.claim(GAUGES)
    assert isinstance(assignment, Assignment)
    service.wait(30)
    assert isinstance(node.beat(assignment.hold, Beat(phase="training", step=1, gauges=HOT)), Beaten)
    service.wait(10)
    assert isinstance(node.beat(assignment.hold, Beat(phase="training", step=1)), Beaten)
    newest = listed(service)["gauges"]
    assert newest["gpus"][0]["temperature_c"] == 90 and newest["at_ms"] == service.now_ms - 10_000


def test_a_node_is_shown_with_the_points_of_its_last_hour_and_day(service: Service) -> None:
    node = service.join()
    for _ in range(3 * 60 * 2):
        claim(service.deployment, node, service.now_ms, GAUGES)
        service.store.time_ms += 30_000
    found = shown(service, node)
    ages_s = [(service.now_ms - point["at_ms"]) / 1000 for point in found["gauges_history"]]
    assert ages_s == sorted(ages_s, reverse=True) and len(ages_s) < 60 + 15
    assert sum(age_s < 3600 for age_s in ages_s) >= 59 and max(ages_s) > 2 * 3600
    assert found["gauges_history"][-1] == {
        "at_ms": found["gauges_history"][-1]["at_ms"],
        "cpu_load": 0.25,
        "memory_share": 0.188,
        "disk_share": 0.2,
        "gpu_utilisation": 0.97,
        "gpu_memory_share": 0.688,
        "temperature_c": 71,
        "power_w": 68.5,
        "received_bytes_per_s": 2_500_000,
        "sent_bytes_per_s": 400_000,
        "limited_by": ["power cap"],
    }
    assert found["gauges"] == SENT | {"at_ms": service.now_ms - 30_000}


def test_what_a_node_without_gpus_has_not_is_unknown(service: Service) -> None:
    node = service.join()
    bare = Gauges(memory_used_bytes=1, memory_bytes=2, disk_free_bytes=3, disk_bytes=4)
    claim(service.deployment, node, service.now_ms, bare)
    (point,) = shown(service, node)["gauges_history"]
    assert point["cpu_load"] is point["gpu_utilisation"] is point["temperature_c"] is None
    assert listed(service)["gauges"]["gpus"] == []


NONSENSE = (
    '{"cpu_load": NaN}',
    '{"cpu_load": -0.1}',
    '{"cpu_load": 1e999}',
    '{"cpu_load": true}',
    '{"cpu_load": "0.5"}',
    '{"memory_bytes": -1}',
    '{"memory_bytes": 1e30}',
    '{"disk_bytes": null}',
    '{"gpus": [{"temperature_c": NaN}]}',
    '{"gpus": [{"utilisation": 97}]}',
    '{"gpus": 7}',
    f'{{"gpus": [{", ".join(["{}"] * 1000)}]}}',
)
REST = '"memory_used_bytes": 1, "memory_bytes": 2, "disk_free_bytes": 3, "disk_bytes": 4'


@pytest.mark.parametrize("nonsense", [*NONSENSE, "[]", "7", '"hot"', "{}", "null"])
def test_gauges_that_make_no_sense_are_dropped_and_the_request_counts(
    service: Service, node: HttpServer, nonsense: str
) -> None:
    sent = f"{{{REST}, {nonsense[1:]}" if nonsense in NONSENSE else nonsense
    service.submit()
    claimed = post(service, node, "/v1/claims", f'{{"gauges": {sent}}}')
    assert claimed.status_code == 201, claimed.text
    hold = claimed.json()["hold"]
    service.wait(30)
    path = f"/v1/attempts/{hold['attempt']}/heartbeats?rank=0&fencing={hold['fencing']}"
    beaten = post(service, node, path, f'{{"phase": "training", "step": 7, "gauges": {sent}}}')
    assert beaten.status_code == 200, beaten.text
    assert listed(service)["gauges"] is None and listed(service)["jobs"][0]["step"] == 7
    assert service.look("SELECT * FROM node_gauges") == []


@pytest.mark.parametrize("body", ["", "{}", '{"gauges": null}', '{"of_a_later_version": {"x": 1}}'])
def test_an_agent_of_an_older_or_a_later_version_claims_as_before(
    service: Service, node: HttpServer, body: str
) -> None:
    service.submit()
    assert post(service, node, "/v1/claims", body).status_code == 201
    assert listed(service)["gauges"] is None


def test_what_a_later_version_measures_besides_does_not_spoil_the_rest(service: Service, node: HttpServer) -> None:
    gpus = '[{"fans": 300, "power_w": 1e99, "limited_by": ["ice"], "temperature_c": 40}]'
    post(
        service, node, "/v1/claims", f'{{"gauges": {{{REST}, "fans": 3, "gpus": {gpus}, "sent_bytes_per_s": "many"}}}}'
    )
    assert listed(service)["gauges"]["gpus"] == [asdict(GpuGauges(temperature_c=40))]


def test_a_beat_without_gauges_writes_none_and_one_that_comes_too_soon_neither(service: Service) -> None:
    node = service.join()
    service.submit()
    hold = service.claim(node).hold
    renew(service.deployment, node, hold, Beat(phase="training", step=1), service.now_ms)
    assert service.look("SELECT * FROM node_gauges") == []
    renew(service.deployment, node, hold, Beat(phase="training", step=1, gauges=GAUGES), service.now_ms)
    service.store.time_ms += 1_000
    renew(service.deployment, node, hold, Beat(phase="training", step=1, gauges=HOT), service.now_ms)
    assert listed(service)["gauges"]["gpus"][0]["temperature_c"] == 71


def test_the_gauges_of_a_node_go_with_it(service: Service) -> None:
    here, left = service.join("here"), service.join("left")
    for node in (here, left):
        claim(service.deployment, node, service.now_ms, GAUGES)
    gone(service.deployment, left, "left", service.now_ms)
    assert shown(service, left)["gauges"] is None and shown(service, left)["gauges_history"] == []
    service.tick()
    assert {row["node"] for row in service.look("SELECT node FROM node_gauges")} == {here}
    claim(service.deployment, left, service.now_ms + 60_000, GAUGES)
    assert {row["node"] for row in service.look("SELECT node FROM node_gauges")} == {here}


def test_a_terminal_shows_how_busy_full_and_hot_a_node_is(service: Service) -> None:
    service.store.time_ms = round(time.time() * 1000)
    node = service.join("node-a")
    claim(service.deployment, node, service.now_ms, GAUGES)
    with serving(service.app) as served:

        def run(*words: str) -> str:
            where = ["--server", served.url, "--token", OPERATOR]
            return CliRunner().invoke(main.app, ["nodes", *words, *where], catch_exceptions=False).stdout

        head, row = run("ls").splitlines()
        assert head.split()[:4] == ["node", "state", "gpu", "load"] and "97% 71°" in row
        facts = run("show", "node-a")
        as_json = json.loads(run("show", "node-a", "-o", "json"))
    assert "25% of its cores" in facts and "12.0 of 64.0 GB used" in facts and "80.0 of 100.0 GB free" in facts
    assert "97% busy, 11.0 of 16.0 GB used, 71 °C, 68 of 70 W, clocks held down by its power limit" in facts
    assert "2.5 MB/s received, 0.4 sent" in facts
    assert as_json["gauges"]["cpu_load"] == 0.25 and len(as_json["gauges_history"]) == 1


def test_a_load_is_that_of_the_gpus_else_of_the_processor_and_no_old_one_is_shown() -> None:
    now_ms = round(time.time() * 1000)
    seen = GaugesView(**{**asdict(GAUGES), "gpus": GAUGES.gpus}, at_ms=now_ms)
    assert load_text(seen) == "97% 71°"
    assert load_text(replace(seen, gpus=())) == "25%"
    assert load_text(replace(seen, gpus=(GpuGauges(),))) == "–"
    assert load_text(None) == load_text(replace(seen, at_ms=now_ms - 600_000)) == "–"
    assert gauges_facts(None) == {}
    unknown = gauges_facts(replace(seen, cpu_load=None, gpus=(GpuGauges(),)))
    assert unknown["load"] == "unknown" and unknown["gpu 0"] == "unknown"


def test_a_terminal_draws_the_day_of_a_node_with_its_extremes_and_when_they_were(service: Service) -> None:
    day = 24 * 60
    service.store.time_ms = round(time.time() * 1000) - day * 60_000
    node = service.join("node-a")
    for minute in range(day):
        hot, busy = (89, 1.0) if 600 <= minute < 660 else (60, 0.5)
        gpu = replace(GAUGES.gpus[0], temperature_c=hot, utilisation=busy)
        claim(service.deployment, node, service.now_ms, replace(GAUGES, gpus=(gpu,)))
        service.store.time_ms += 60_000
    with serving(service.app) as served:
        where = ["--server", served.url, "--token", OPERATOR]
        told = CliRunner(env={"COLUMNS": "120"}).invoke(main.app, ["nodes", "show", "node-a", *where]).stdout
    rows = {line.split("  ")[0]: line for line in told.splitlines()}
    assert "\n\nlast 24 h, from" in told
    load, heat = rows["GPU"], rows["GPU temperature"]
    assert "█" in load and "50%" in load and "100%" in load and "52%" in load  # 1 hour of 24 is busier
    assert "60 °C" in heat and "89 °C" in heat and "61 °C" in heat
    assert sum(heat.count(bar) for bar in "▁▂▃▄▅▆▇█") == 24
