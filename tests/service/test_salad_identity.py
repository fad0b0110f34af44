"""A pool of SaladCloud whose nodes prove which machine they are on: who joins, who is refused, and what quarantines follow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Response
from joserfc.jwk import ECKey

from gangline.adapters.pools.salad.settings import SaladSettings
from gangline.core.fleet.autoscale import PoolLimits
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.renting import Unopened
from tests.contract.pools.salad import FakeSalad, SaladProvider
from tests.contract.pools.test_salad_identity import FakeMetadata
from tests.servers import served
from tests.service.conftest import Service
from tests.service.test_http import problem
from tests.service.test_salad import POOL, look, quarantine, start_of


@pytest.fixture
def keys() -> Iterator[tuple[FakeMetadata, str]]:
    metadata = FakeMetadata()
    with served(metadata.app) as url:
        yield metadata, f"{url}/jwks.json"


@pytest.fixture
def metadata(keys: tuple[FakeMetadata, str]) -> FakeMetadata:
    return keys[0]


@pytest.fixture
def cloud(service: Service, keys: tuple[FakeMetadata, str]) -> Iterator[FakeSalad]:
    """The cloud, with a group on a machine that the service has seen."""
    cloud = FakeSalad()
    with served(cloud.app) as url:
        driver = SaladProvider(cloud, url, SaladSettings(prove_machines=True), keys[1]).driver
        pools = {POOL: RentedPool(PoolLimits(name=POOL, nodes_min=0, nodes_max=1), AtOnce(driver))}
        serve(service, pools)
        service.submit()
        look(service, cloud)
        run(service, cloud)
        yield cloud


def serve(service: Service, pools: dict[str, RentedPool]) -> None:
    """Let the service have these pools, those who ask over HTTP too."""
    service.deployment = replace(service.deployment, pools=pools, url="https://gangline.example.org")
    service.app.state.deployment = service.deployment


def run(service: Service, cloud: FakeSalad) -> None:
    cloud.run(start_of(cloud)[0])
    look(service, cloud)


def sign(metadata: FakeMetadata, cloud: FakeSalad, key: ECKey | None = None, **claims: Any) -> str:
    """Return a token of the machine where the group is, as it says now."""
    group, _ = start_of(cloud)
    machine = cloud.instances[group][-1]["machine_id"]
    now_s = cloud.now_ms // 1000
    known = {"salad_machine_id": machine, "salad_workload_name": group, "iat": now_s, "nbf": now_s, "exp": now_s + 600}
    return metadata.sign(key, **(known | claims))


def join(service: Service, cloud: FakeSalad, token: str) -> Any:
    """As a worker does that asks again where the server cannot tell yet."""
    group, environment = start_of(cloud)
    at = {"place": cloud.instances[group][-1]["id"], "identity": token}
    answer = service.join_with(environment["GANGLINE_TOKEN"], "what it says itself", **at)
    return (
        answer if answer.status_code != 503 else service.join_with(environment["GANGLINE_TOKEN"], "says itself", **at)
    )


def refusal(answer: Any) -> str:
    return problem(answer, 401, "denied")["detail"]


def machine_of(service: Service, node: str) -> str:
    return service.look(f"SELECT machine FROM node WHERE id = '{node}'")[0]["machine"]


def test_a_node_that_proves_its_machine_joins_as_that_machine(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    node = join(service, cloud, sign(metadata, cloud)).json()["node"]
    group, _ = start_of(cloud)
    assert machine_of(service, node) == cloud.instances[group][-1]["machine_id"]
    assert service.claim(node).job


def test_without_a_token_nobody_joins(service: Service, cloud: FakeSalad) -> None:
    _, environment = start_of(cloud)
    said = f"a node of the pool {POOL} proves which machine it is on, and {environment['GANGLINE_NODE']} sent no token"
    assert refusal(join(service, cloud, "")) == said


def test_a_token_that_salad_did_not_sign_or_that_is_not_of_this_node_lets_nobody_join(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    _, environment = start_of(cloud)
    name = environment["GANGLINE_NODE"]
    stranger = ECKey.generate_key("P-256")
    not_signed = "the node does not prove which machine of Salad's it is: its token is not signed with a key of Salad's"
    assert refusal(join(service, cloud, sign(metadata, cloud, stranger))) == not_signed
    others = f"the token of this machine is not of {name}"
    assert refusal(join(service, cloud, sign(metadata, cloud, salad_workload_name="gl-another"))) == others
    elsewhere = f"the provider shows {name} on another machine than the one that its token names"
    assert refusal(join(service, cloud, sign(metadata, cloud, salad_machine_id="another"))) == elsewhere
    assert service.look("SELECT COUNT(*) AS n FROM node WHERE state = 'ready'")[0]["n"] == 0
    assert join(service, cloud, sign(metadata, cloud)).status_code == 201


def test_a_node_waits_until_the_providers_list_shows_its_machine(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    assert join(service, cloud, sign(metadata, cloud)).status_code == 201
    group, _ = start_of(cloud)
    cloud.place_anew(group, "Instance Interrupted (Priority)", "creating")
    token = sign(metadata, cloud)
    assert refusal(join(service, cloud, token)).startswith("the provider does not show")
    look(service, cloud)
    second = join(service, cloud, token).json()["node"]
    assert machine_of(service, second) == cloud.instances[group][-1]["machine_id"]


def test_a_group_that_is_not_listed_on_a_machine_yet_is_asked_to_try_again(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    service.execute("UPDATE node SET place = '', shown_machine = ''")
    answer = problem(join(service, cloud, sign(metadata, cloud)), 503, "unreachable")
    assert answer["detail"].startswith("the provider's list does not show yet on which machine")
    look(service, cloud)
    assert join(service, cloud, sign(metadata, cloud)).status_code == 201


def test_a_machine_in_quarantine_is_known_again_whatever_it_says(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    first = join(service, cloud, sign(metadata, cloud)).json()["node"]
    group, _ = start_of(cloud)
    bad = cloud.instances[group][-1]["machine_id"]
    look(service, cloud)
    quarantine(service, first)
    look(service, cloud)
    cloud.change(group, -1, state="running", machine_id=bad)
    cloud.groups[group]["current_state"]["status"] = "running"
    look(service, cloud)
    second = join(service, cloud, sign(metadata, cloud)).json()["node"]
    assert second != first and machine_of(service, second) == bad
    assert service.look(f"SELECT state FROM node WHERE id = '{second}'")[0]["state"] == "quarantined"


def test_while_keys_cannot_be_fetched_nobody_joins_and_the_worker_is_told(
    service: Service, cloud: FakeSalad, metadata: FakeMetadata
) -> None:
    metadata.answer = Response("<html>", 502)
    token = sign(metadata, cloud)
    said = problem(join(service, cloud, token), 503, "unreachable")["detail"]
    assert said.startswith("the keys of Salad at http://127.0.0.1:") and said.endswith("cannot be fetched (HTTP 502)")
    metadata.answer = None
    assert join(service, cloud, token).status_code == 201


def test_a_server_that_cannot_open_the_driver_lets_nobody_in_unproven(service: Service, cloud: FakeSalad) -> None:
    (pool,) = service.deployment.pools.values()
    pools = {POOL: replace(pool, driving=Unopened("the secret SALAD is not known to this server"))}
    serve(service, pools)
    answer = problem(join(service, cloud, ""), 503, "unreachable")
    assert answer["detail"] == f"this server cannot ask the provider of the pool {POOL} about its machines"
