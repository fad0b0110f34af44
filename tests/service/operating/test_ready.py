"""A server says whether it is ready for requests, and why not."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from gangline.api.app import over_another
from gangline.core.errors import Unreachable
from gangline.service.operating.ready import Readiness
from tests.service.conftest import Service


class Instead:
    """An edge, but its method `name` does something else."""

    def __init__(self, edge: Any, name: str, does: Any) -> None:
        self._edge, self._name, self._does = edge, name, does

    def __getattr__(self, name: str) -> Any:
        return self._does if name == self._name else getattr(self._edge, name)


def refuse(*_: Any, **__: Any) -> None:
    raise Unreachable("the database does not answer: it restarts")


def ask(service: Service, path: str = "/readyz", **edges: Any) -> Any:
    deployment = replace(service.deployment, **edges)
    return TestClient(over_another(service.app, deployment)).get(path)


def failed(answer: Any) -> list[str]:
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"] == "1"
    return [check["name"] for check in answer.json()["checks"] if not check["ok"]]


def test_a_server_whose_database_and_object_store_answer_is_ready(service: Service) -> None:
    answer = service.http.get("/readyz")
    assert answer.status_code == 200
    names = ["stopping", "database", "migrations", "objects"]
    checks = [{"name": name, "ok": True, "because": ""} for name in names]
    assert answer.json() == {"ready": True, "because": "", "checks": checks}


def test_without_its_database_neither_probe_answers_200(service: Service) -> None:
    without = Instead(service.store, "load", refuse)
    answer = ask(service, store=without)
    assert failed(answer) == ["database"]
    assert answer.json()["detail"] == "the database does not answer: it restarts"
    assert ask(service, "/healthz", store=without).status_code == 503


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_schema_that_is_too_old_is_named_and_a_newer_one_is_no_reason_to_stop(service: Service) -> None:
    answer = ask(service, store=Instead(service.store, "schemas", lambda: (30, 39)))
    assert failed(answer) == ["migrations"]
    assert "schema 30" in answer.json()["detail"] and "needs 39" in answer.json()["detail"]
    newer = ask(service, store=Instead(service.store, "schemas", lambda: (40, 39)))
    assert newer.status_code == 200
    assert "upgrade this server too" in newer.json()["checks"][2]["because"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_bucket_that_does_not_answer_makes_it_not_ready(service: Service) -> None:
    objects = Instead(service.objects, "stat", lambda _: (_ for _ in ()).throw(ConnectionError("secret words")))
    answer = ask(service, objects=objects)
    assert failed(answer) == ["objects"]
    assert answer.json()["detail"] == "the object store failed: ConnectionError"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_check_that_hangs_delays_no_answer_and_is_not_begun_again(service: Service) -> None:
    hangs, begun = threading.Event(), list[str]()

    def stat(key: str) -> None:
        begun.append(key)
        hangs.wait()

    readiness = Readiness(replace(service.deployment, objects=Instead(service.objects, "stat", stat)), answers_s=0.05)
    try:
        for _ in range(3):
            found = readiness.check()
            assert found.because == "the object store did not answer within 0.05 s"
        assert len(begun) == 1
    finally:
        hangs.set()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_server_that_stops_is_not_ready_and_stays_alive(service: Service) -> None:
    app = over_another(service.app, service.deployment)
    app.state.readiness.stopping.set()
    asked = TestClient(app)
    assert failed(asked.get("/readyz")) == ["stopping"]
    assert asked.get("/healthz").status_code == 200


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_version_of_the_schema_is_read_each_time(service: Service) -> None:
    found, known = service.store.schemas()
    assert found == known
    service.execute(f"PRAGMA user_version = {known - 1}")
    assert service.store.schemas() == (known - 1, known)
