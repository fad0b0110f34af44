"""A project's bound of fetches at once where two servers meet, in every order of their statements, on PostgreSQL."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.service.content.imports import _take_next
from tests.service.conftest import Service
from tests.service.jobs.schedules import Stage, every_order, gates
from tests.service.places.conftest import allow
from tests.service.places.test_imports import ask

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)
HELD = "SELECT server FROM photo_import WHERE server <> ''"


def test_two_servers_that_take_two_fetches_of_a_project_that_may_have_one(
    service: Service, stage: Stage, tmp_path: Path
) -> None:
    allow(service, tmp_path, at_once_per_project_max=1)
    servers = [replace(service.deployment, server=name) for name in ("one", "two")]

    jobs = list[str]()

    def begin(number: int) -> Callable[[], Any]:
        """The second one passes over the first job: two that go for the same one meet at its row."""
        return lambda: _take_next(servers[number], f"{servers[number].server}/1", set(jobs[:number]))

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        service.execute("UPDATE photo_import SET state = 'dropped', server = ''")
        jobs[:] = [ask(service, ["https://a.example/dog.png"]) for _ in servers]
        return begin(0), begin(1)

    found = Counter[str]()
    with gates(stage):
        for _ in every_order(stage, scene):
            held = service.look(HELD)
            assert len(held) == 1, held
            found[held[0]["server"]] += 1
    assert set(found) == {"one/1", "two/1"}
