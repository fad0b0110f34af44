"""The stand-ins of SaladCloud and of a Kubernetes cluster, for the files of tests that are about them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi import FastAPI

from tests.contract.pools.kubernetes import FakeKubernetes, KubernetesProvider
from tests.contract.pools.salad import FakeSalad
from tests.servers import served


class StandIn(Protocol):
    app: FastAPI


class Door:
    """One address for a file's tests, each with its own stand-in: to start and end a server takes longer than most of them."""

    def __init__(self) -> None:
        self.cloud: StandIn = FakeSalad()
        self.app = FastAPI()
        self.app.mount("/", self._enter)

    async def _enter(self, scope: Any, receive: Any, send: Any) -> None:
        await self.cloud.app(scope, receive, send)


@pytest.fixture(scope="module")
def door() -> Iterator[tuple[Door, str]]:
    door = Door()
    with served(door.app) as url:
        yield door, url


@pytest.fixture
def cloud() -> FakeSalad:
    return FakeSalad()


@pytest.fixture
def url(door: tuple[Door, str], cloud: FakeSalad) -> str:
    door[0].cloud = cloud
    return door[1]


@pytest.fixture
def cluster() -> FakeKubernetes:
    return FakeKubernetes()


@pytest.fixture
def pods(door: tuple[Door, str], cluster: FakeKubernetes, tmp_path: Path) -> KubernetesProvider:
    """The cluster as a provider, with a driver of it."""
    door[0].cloud = cluster
    return KubernetesProvider(cluster, door[1], tmp_path)
