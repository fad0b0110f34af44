"""A log is read part by part, from its beginning or up to a position."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import AsyncClient, Client
from gangline.core.views import LogView
from tests.service.conftest import OPERATOR, Service
from tests.service.jobs.test_follow import print_log
from tests.service.served import Served

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Read = Callable[..., LogView]


@pytest.fixture(params=["sync", "async"])
def read(request: pytest.FixtureRequest, served: Served) -> Read:
    """`logs.get` of either client."""

    def of_sync(job: str, *where: Any, **options: Any) -> LogView:
        with Client(served.url, OPERATOR) as client:
            return client.logs.get(job, *where, **options)

    async def of_async(job: str, *where: Any, **options: Any) -> LogView:
        async with AsyncClient(served.url, OPERATOR) as client:
            return await client.logs.get(job, *where, **options)

    return of_sync if request.param == "sync" else lambda *given, **options: asyncio.run(of_async(*given, **options))


@on_sqlite
def test_a_part_before_a_position_is_read_without_what_begins_there(service: Service, read: Read) -> None:
    job, node = service.submit(), service.join()
    print_log(service, node, service.claim(node).hold, ["one\n", "two\n", "three\n"])
    assert read(job).text == "one\ntwo\nthree\n"
    assert read(job, before="1.8").text == "one\ntwo\n"
    assert read(job, "1.4", before="1.8").text == "two\n"
    assert read(job, before="1.0").text == ""
