"""A server behind a real socket, whose streams look often."""

from collections.abc import Iterator

import pytest

from gangline.api.answers import streams
from gangline.api.app import make_app
from gangline.core.server.limits import Limits
from tests.service.conftest import Service
from tests.service.served import Served, serving


@pytest.fixture
def served(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(streams, "POLL_S", 0.02)
    with serving(make_app(service.deployment, service.objects, Limits())) as served:
        yield served
