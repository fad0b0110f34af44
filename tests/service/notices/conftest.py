"""A service that may send to this machine, and a sender that the test moves."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from gangline.adapters.notifiers.poster import GuardedPoster
from gangline.core.places.urls import parse_networks
from gangline.service.notices.send import NoticeSender
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.notices.receivers import Site, receiving

LOOPBACK = parse_networks(["127.0.0.0/8"])
ENDPOINTS = "/v1/notices/endpoints"
TURNS_MAX = 200


@dataclass
class Notifying:
    """What tests of notices do: `to` adds an endpoint for a path of the site, `send` delivers all that is due now."""

    service: Service
    site: Site
    sender: NoticeSender
    secrets: dict[str, str] = field(default_factory=dict)

    def to(self, path: str, *kinds: str, project: str = PROJECT, **wanted: Any) -> str:
        body = {"channel": "webhook", "address": f"{self.site.url}{path}", "name": path.strip("/")} | wanted
        headers = {"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": project}
        answer = self.service.http.post(ENDPOINTS, json=body | {"kinds": list(kinds)}, headers=headers)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        self.secrets[made["endpoint"]["id"]] = made["secret"]
        return made["endpoint"]["id"]

    def submit(self, project: str = PROJECT, **settings: Any) -> str:
        """However long after the photo was uploaded."""
        self.service._keep_photo(project)
        return self.service.submit(project, **settings)

    def ask(self, method: str, path: str = "", **rest: Any) -> Any:
        answer = self.service.ask(method, f"{ENDPOINTS}{path}", **rest)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def log(self, endpoint: str) -> list[dict[str, Any]]:
        return self.ask("GET", f"/{endpoint}/log")["notices"]

    def restart(self) -> None:
        """Another server, which remembers nothing."""
        self.sender = NoticeSender(self.service.deployment, Random(0))

    def send(self) -> None:
        """Turn until nothing is due; what is on its way at the same time is sent at the same time."""
        asyncio.run(send_all(self.sender, self.service))

    def tell(self) -> None:
        """Number what happened, and send it."""
        self.service.tick()
        self.send()

    def wait(self, seconds: float) -> None:
        self.service.wait(seconds)


async def send_all(sender: NoticeSender, service: Service) -> None:
    for _ in range(TURNS_MAX):
        sending = sender.turn(service.now_ms)
        if not sending:
            return
        await asyncio.gather(*(sender.send(each) for each in sending))
    raise AssertionError("there is always something to send")


@pytest.fixture
def site() -> Iterator[Site]:
    with receiving() as site:
        yield site


@pytest.fixture
def notifying(service: Service, site: Site) -> Notifying:
    """On each engine. Its clock begins at the time of now, as receivers refuse signatures that are old."""
    service.store.time_ms = time.time_ns() // 1_000_000
    service.wait(0)
    poster = GuardedPoster(LOOPBACK, answer_s=5)
    service.deployment = replace(service.deployment, poster=poster)
    service.app.state.deployment = service.deployment
    return Notifying(service, site, NoticeSender(service.deployment, Random(0)))
