"""SaladCloud's stand-in, for the files of tests that are about it."""

from collections.abc import Iterator

import pytest

from tests.contract.pools.salad import FakeSalad
from tests.servers import served


@pytest.fixture
def cloud() -> FakeSalad:
    return FakeSalad()


@pytest.fixture
def url(cloud: FakeSalad) -> Iterator[str]:
    with served(cloud.app) as url:
        yield url
