"""The `salad` driver against a stand-in for SaladCloud: the contract, and what is Salad's own."""

from collections.abc import Iterator

import pytest

from tests.contract.pools.salad import FakeSalad, SaladProvider
from tests.contract.pools.suite import (
    HandSuite,
    ListSuite,
    LostAnswerSuite,
    PoolSuite,
    RefusalSuite,
    StubbornSuite,
)
from tests.servers import served


@pytest.fixture
def cloud() -> FakeSalad:
    return FakeSalad()


@pytest.fixture
def provider(cloud: FakeSalad) -> Iterator[SaladProvider]:
    with served(cloud.app) as url:
        yield SaladProvider(cloud, url)


class TestSalad(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Names are unique at Salad: no two groups have one."""
