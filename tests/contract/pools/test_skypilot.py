"""The `skypilot` driver against a stand-in for SkyPilot's API server: the contract, and what is SkyPilot's own about nodes."""

import pytest

from tests.contract.pools.skypilot import FakeSkyPilot, SkyPilotProvider
from tests.contract.pools.suite import HandSuite, ListSuite, LostAnswerSuite, PoolSuite, RefusalSuite, StubbornSuite


@pytest.fixture
def cloud() -> FakeSkyPilot:
    return FakeSkyPilot()


@pytest.fixture
def provider(cloud: FakeSkyPilot, url: str) -> SkyPilotProvider:
    return SkyPilotProvider(cloud, url)


class TestSkyPilot(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Names are unique at SkyPilot: no two clusters have one."""
