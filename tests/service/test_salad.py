"""The service with nodes on a stand-in of SaladCloud: rented for a job, moved by Salad, returned."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Response

from gangline.core.fleet.autoscale import PoolLimits
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from tests.contract.pools.salad import MARK, FakeSalad, SaladProvider, web_page
from tests.servers import served
from tests.service.conftest import Service
from tests.service.test_http import problem

POOL = "gpus"


@pytest.fixture
def cloud(service: Service) -> Iterator[FakeSalad]:
    cloud = FakeSalad()
    with served(cloud.app) as url:
        limits = PoolLimits(name=POOL, nodes_min=0, nodes_max=1)
        pools = {POOL: RentedPool(limits, AtOnce(SaladProvider(cloud, url).driver))}
        service.deployment = replace(service.deployment, pools=pools, url="https://gangline.example.org")
        yield cloud


def look(service: Service, cloud: FakeSalad) -> None:
    """Let twenty seconds go by, and what the service does then."""
    service.wait(20)
    cloud.now_ms = service.now_ms
    service.tick()


def start_of(cloud: FakeSalad) -> tuple[str, dict[str, str]]:
    """Return the only group, and the environment of its container."""
    (group,) = cloud.groups.values()
    return group["name"], group["container"]["environment_variables"]


def join(service: Service, cloud: FakeSalad) -> Any:
    """As the worker of the group's container does on the machine where that is now."""
    group, environment = start_of(cloud)
    cloud.run(group)
    place = cloud.instances[group][-1]
    return service.join_with(environment["GANGLINE_TOKEN"], place["machine_id"], place=place["id"])


def nodes(service: Service) -> dict[str, str]:
    return {row["id"]: row["state"] for row in service.look("SELECT id, state FROM node ORDER BY id")}


def test_a_node_that_salad_moves_is_fenced_and_its_job_resumes_on_the_next(service: Service, cloud: FakeSalad) -> None:
    job = service.submit()
    look(service, cloud)
    group, environment = start_of(cloud)
    assert environment["GANGLINE_SERVER"] == "https://gangline.example.org"
    assert group == f"gl-{environment['GANGLINE_NODE']}-{MARK}"
    first = join(service, cloud).json()
    look(service, cloud)
    assert service.claim(first["node"]).job == job

    cloud.place_anew(group, "Instance Interrupted (Priority)", "creating")
    look(service, cloud)
    assert nodes(service)[first["node"]] == "gone"
    assert service.ask("POST", "/v1/claims", first["token"]).status_code == 401, "it was fenced"
    (because,) = service.look(f"SELECT because FROM node WHERE id = '{first['node']}'")
    assert because["because"] == "Salad gave its machine to work of a higher priority"

    second = join(service, cloud).json()
    assert second["node"] != first["node"] and len(cloud.groups) == len(cloud.created) == 1
    look(service, cloud)
    assert service.claim(second["node"]).job == job
    strikes = service.look("SELECT COUNT(*) AS n FROM strike")
    assert strikes[0]["n"] == 0, "it blames nobody"


def test_without_work_the_group_is_deleted_and_nothing_is_billed_any_more(service: Service, cloud: FakeSalad) -> None:
    job = service.submit()
    look(service, cloud)
    node = join(service, cloud).json()["node"]
    look(service, cloud)
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    for _ in range(40):
        look(service, cloud)
    assert cloud.groups == {} and nodes(service)[node] == "gone"
    (instance,) = service.look("SELECT billed_from_ms, billed_to_ms, settled FROM instance")
    assert instance["billed_from_ms"] < instance["billed_to_ms"] and instance["settled"] == 1


def test_the_time_between_two_machines_costs_nothing(service: Service, cloud: FakeSalad) -> None:
    job = service.submit()
    look(service, cloud)
    first = join(service, cloud).json()
    started_ms = cloud.now_ms
    look(service, cloud)
    group, _ = start_of(cloud)
    cloud.place_anew(group, "Instance Interrupted (Priority)", "creating")
    for _ in range(50):
        look(service, cloud)
    join(service, cloud)
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    for _ in range(40):
        look(service, cloud)
    assert cloud.groups == {}
    (instance,) = service.look("SELECT billed_from_ms, billed_to_ms FROM instance")
    (gap,) = service.look("SELECT from_ms, to_ms FROM unbilled")
    assert instance["billed_from_ms"] == started_ms and gap["to_ms"] - gap["from_ms"] == 1_000_000
    (node,) = service.look(f"SELECT price_micro_usd_per_hour FROM node WHERE id = '{first['node']}'")
    price, bounds = node["price_micro_usd_per_hour"], (*instance.values(), *gap.values())
    from_ms, to_ms, left_ms, back_ms = (price * bound // 3_600_000 for bound in bounds)
    (billed,) = service.look("SELECT SUM(micro_usd) AS micro_usd FROM ledger")
    assert billed["micro_usd"] == (left_ms - from_ms) + (to_ms - back_ms)


def quarantine(service: Service, node: str) -> None:
    assert service.ask("POST", f"/v1/nodes/{node}/quarantine?lasts_s=3600").is_success


def test_a_machine_in_quarantine_is_left_for_another_one_while_work_waits(service: Service, cloud: FakeSalad) -> None:
    service.submit()
    look(service, cloud)
    first = join(service, cloud).json()
    group, environment = start_of(cloud)
    look(service, cloud)
    bad = cloud.instances[group][-1]
    quarantine(service, first["node"])
    look(service, cloud)
    assert cloud.instances[group][-1]["id"] != bad["id"] and cloud.events[group][-1]["instance_id"] == bad["id"]
    assert service.ask("POST", "/v1/claims", first["token"]).status_code == 401, "it was fenced"
    again = service.join_with(environment["GANGLINE_TOKEN"], bad["machine_id"], place=bad["id"])
    said = problem(again, 401, "denied")["detail"]
    assert said.endswith("away from this machine: quarantined by an operator")
    second = join(service, cloud).json()
    look(service, cloud)
    assert nodes(service) == {first["node"]: "gone", second["node"]: "ready"}
    assert service.claim(second["node"]).job and len(cloud.created) == 1


def test_without_work_a_machine_in_quarantine_is_given_back(service: Service, cloud: FakeSalad) -> None:
    job = service.submit()
    look(service, cloud)
    node = join(service, cloud).json()["node"]
    look(service, cloud)
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    quarantine(service, node)
    for _ in range(2):
        look(service, cloud)
    assert cloud.groups == {} and not any(each.endswith("/reallocate") for each in cloud.requests)


def test_where_salad_refuses_another_machine_the_group_is_deleted_and_another_one_is_made(
    service: Service, cloud: FakeSalad
) -> None:
    service.submit()
    look(service, cloud)
    node = join(service, cloud).json()["node"]
    group, _ = start_of(cloud)
    look(service, cloud)
    quarantine(service, node)
    cloud.answers["/reallocate"] = web_page(502)
    for _ in range(3):
        look(service, cloud)
    assert group not in cloud.groups and len(cloud.created) == 2


def test_a_node_that_salad_does_not_move_in_time_is_given_back(service: Service, cloud: FakeSalad) -> None:
    service.submit()
    look(service, cloud)
    node = join(service, cloud).json()["node"]
    group, _ = start_of(cloud)
    look(service, cloud)
    quarantine(service, node)
    cloud.answers["/reallocate"] = Response(status_code=202)
    for _ in range(10):
        look(service, cloud)
    assert group in cloud.groups
    for _ in range(10):
        look(service, cloud)
    assert group not in cloud.groups and len(cloud.created) == 2
