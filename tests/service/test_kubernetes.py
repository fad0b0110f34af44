"""The service with nodes on a stand-in of a Kubernetes cluster, whose Pods leave nothing behind when they end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.core.fleet.autoscale import PoolLimits
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet.nodes import leave_pool
from gangline.service.recent import Recent
from tests.contract.pools.kubernetes import FakeKubernetes, KubernetesProvider
from tests.servers import served
from tests.service.conftest import Service
from tests.shop import LARGE, ShopPool, Till

PRICE = 3.6


class Lab:
    """A service whose only pool is on a cluster. The cluster's time is the service's."""

    def __init__(self, service: Service, cluster: FakeKubernetes, url: str, folder: Path) -> None:
        self.service, self.cluster = service, cluster
        self._provider = KubernetesProvider(cluster, url, folder, price_usd_per_hour=PRICE)
        self.restart()

    def restart(self) -> None:
        """Go on as another server does that has the turn now: neither it nor its driver remembers anything."""
        limits = PoolLimits(name="pods", nodes_min=0, nodes_max=1)
        pools = {"pods": RentedPool(limits, AtOnce(self._provider.restarted()))}
        self.service.deployment = replace(self.service.deployment, pools=pools, recent=Recent())

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.service.wait(20)
            self.service.tick()

    def bill(self) -> dict[str, Any]:
        (instance,) = self.service.look("SELECT billed_from_ms, billed_to_ms, settled FROM instance")
        return instance


@pytest.fixture
def lab(service: Service, tmp_path: Path) -> Iterator[Lab]:
    cluster = FakeKubernetes(lambda: service.now_ms, look_s=0)
    cluster.page_max = 100
    with served(cluster.app) as url:
        yield Lab(service, cluster, url, tmp_path)


def test_the_bill_of_a_pod_that_ended_between_two_servers_ends_when_its_node_was_gone(lab: Lab) -> None:
    service = lab.service
    job = service.submit()
    lab.look()
    (name,) = lab.cluster.pods
    lab.cluster.run(name)
    lab.look()
    lab.cluster.away.add(name)  # its kubelet will not say at once that it has ended
    (worker,) = lab.cluster.created[0]["spec"]["containers"]
    token = next(each["value"] for each in worker["env"] if each["name"] == "GANGLINE_TOKEN")
    node = service.join_with(token).json()["node"]
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    while "deletionTimestamp" not in lab.cluster.pods[name]["metadata"]:
        lab.look()
    leave_pool(service.deployment, node, service.now_ms)
    lab.cluster.collect(name)
    lab.restart()
    lab.look(3)
    assert lab.bill()["billed_to_ms"] is None, "a later list may still show how it ended"
    lab.look(60)
    (gone,) = service.look("SELECT state, joined_ms, meter_ms FROM node")
    bill = lab.bill()
    assert (gone["state"], bill["settled"], bill["billed_to_ms"]) == ("gone", 1, gone["meter_ms"])
    (spent,) = service.look("SELECT SUM(micro_usd) AS micro_usd FROM ledger")
    assert spent["micro_usd"] == round(PRICE * (bill["billed_to_ms"] - bill["billed_from_ms"]) / 3.6)
    causes = {row["cause"] for row in service.look("SELECT cause FROM ledger")}
    assert "start-up" in causes


def test_the_bill_of_a_pod_whose_node_never_joined_ends_when_it_was_given_up(lab: Lab) -> None:
    job = lab.service.submit()
    lab.look()
    (name,) = lab.cluster.pods
    lab.cluster.bind(name)
    lab.look(10)
    lab.service.ask("POST", f"/v1/jobs/{job}/cancel")
    lab.cluster.away.add(name)
    while "deletionTimestamp" not in lab.cluster.pods[name]["metadata"]:
        lab.look()
    given_up_ms = lab.service.now_ms
    lab.cluster.collect(name)
    lab.restart()
    lab.look(60)
    bill = lab.bill()
    assert bill["settled"] == 1 and given_up_ms - 20_000 <= bill["billed_to_ms"] <= given_up_ms


def test_another_pool_has_the_work_of_a_pod_that_waits_too_long_for_a_machine(lab: Lab) -> None:
    lab.service.submit()
    lab.look()
    (name,) = lab.cluster.pods
    till = Till(offers=[LARGE])
    limits = PoolLimits(name="shop", nodes_min=0, nodes_max=1)
    pools = {**lab.service.deployment.pools, "shop": RentedPool(limits, AtOnce(ShopPool(till)))}
    lab.service.deployment = replace(lab.service.deployment, pools=pools)
    lab.look(29)
    assert [*lab.cluster.pods] == [name] and till.started == [], "it waits for ten minutes"
    lab.look(4)
    assert lab.cluster.pods == {} and till.started == ["large"]
    (given_up,) = lab.service.look(f"SELECT state, lost, because FROM node WHERE id = '{name}'")
    assert given_up == {"state": "gone", "lost": 0, "because": "after 10 minutes it still waits for a machine"}
