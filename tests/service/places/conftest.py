"""A site on loopback, and a service that may fetch from it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.places.fetcher import PlacesFetcher
from gangline.adapters.places.web import Web
from gangline.compose.places import LOOK
from gangline.core.places.urls import parse_networks
from gangline.core.server.sources import FetchingSettings
from tests.service.conftest import Service
from tests.service.places.site import Site, a_site


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as site:
        yield site


@pytest.fixture
def fetching(service: Service, site: Site, tmp_path: Path) -> Service:
    """A service that may fetch from loopback."""
    return allow(service, tmp_path)


def allow(service: Service, home: Path, networks: tuple[str, ...] = ("127.0.0.0/8",), **settings: Any) -> Service:
    wanted = FetchingSettings(networks=networks, **settings)
    web = Web(parse_networks(networks))
    fetcher = PlacesFetcher(home / "imports", wanted, {}, web, lambda source, bucket: pytest.fail("no bucket"), LOOK)
    service.deployment = replace(service.deployment, fetcher=fetcher, fetching=wanted)
    service.app.state.deployment = service.deployment
    return service
