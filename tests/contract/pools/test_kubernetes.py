"""The `kubernetes` driver over a stand-in of a cluster's API server, which it asks over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.contract.pools.kubernetes import FakeKubernetes, KubernetesProvider
from tests.contract.pools.suite import (
    HandSuite,
    ListSuite,
    LostAnswerSuite,
    PoolSuite,
    RefusalSuite,
    StubbornSuite,
)


@pytest.fixture
def provider(pods: KubernetesProvider) -> KubernetesProvider:
    return pods


class TestKubernetes(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Pods of one namespace have unique names."""
