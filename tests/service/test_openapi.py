"""The OpenAPI document tells the truth: every answer that the server gives is in it, whatever it is asked."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.core.specs.kinds import KINDS
from tests.service.asked import asked
from tests.service.conftest import Service

EXAMPLES, EXAMPLES_NIGHTLY = 6, 150
SEED = 0
"""Of `make test`, which asks the same each time; each night has a seed of its own."""


def document(service: Service) -> dict[str, Any]:
    return service.http.get("/openapi.json").json()


def operations(service: Service) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document(service)["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_kinds_of_jobs_are_those_that_are_declared(service: Service) -> None:
    assert document(service)["components"]["schemas"]["JobSummary"]["properties"]["kind"]["enum"] == list(KINDS)


def test_every_refusal_is_documented_as_a_problem(service: Service) -> None:
    for method, path, operation in operations(service):
        refusals = {status: answer for status, answer in operation["responses"].items() if status >= "4"}
        assert "503" in refusals, (method, path)
        for status, answer in refusals.items():
            assert list(answer["content"]) == ["application/problem+json"], (method, path, status)
            assert answer["description"]


def test_a_project_that_only_the_body_names_may_be_missing(service: Service) -> None:
    asked = service.ask("PUT", "/v1/costs/thresholds", json={"usd": 1, "per": "day", "project": "nobody"})
    assert asked.status_code == 404
    assert "404" in document(service)["paths"]["/v1/costs/thresholds"]["put"]["responses"]


def test_a_parameter_may_be_absent_and_never_null(service: Service) -> None:
    parameters = [each for _, _, operation in operations(service) for each in operation.get("parameters", ())]
    assert {"after", "limit", "cursor"} <= {each["name"] for each in parameters}
    assert [each for each in parameters if "null" in str(each["schema"])] == []
    limit = next(each["schema"] for each in parameters if each["name"] == "limit")
    assert limit["type"] == "integer"


def test_what_needs_a_key_says_which_and_the_rest_needs_none(service: Service) -> None:
    needs = {(method, path): operation["security"] for method, path, operation in operations(service)}
    assert needs["GET", "/healthz"] == needs["GET", "/v1/objects/{key}"] == []
    assert needs["POST", "/v1/nodes"] == [{"join token": []}]
    assert needs["POST", "/v1/claims"] == [{"node token": []}]
    assert needs["GET", "/v1/jobs"] == [{"key": []}]
    for (method, path), schemes in needs.items():
        if schemes:
            answer = service.http.request(method, path.replace("{", "").replace("}", ""))
            assert answer.status_code in (401, 422), (
                method,
                path,
            )  # 422: of a heartbeat, what no schema allows is seen first
    known = document(service)["components"]["securitySchemes"]
    assert {name for schemes in needs.values() for scheme in schemes for name in scheme} == set(known)


def test_a_method_that_a_path_has_not_is_refused_with_those_that_it_has(service: Service) -> None:
    answer = service.ask("PATCH", "/v1/storage")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_every_answer_is_one_that_the_document_has(tmp_path: Path, database: str) -> None:
    assert asked(tmp_path, database, EXAMPLES, SEED).wrong == {}


@pytest.mark.tenths
def test_the_same_seed_asks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[str]()
    for order_of_sets in ("0", "1"):
        monkeypatch.setenv("PYTHONHASHSEED", order_of_sets)
        (folder := tmp_path / order_of_sets).mkdir()
        found.append(asked(folder, str(folder / "gangline.db"), 1, SEED).asked)
    assert found[0] == found[1]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_every_answer_is_one_that_the_document_has_by_other_requests_each_night(tmp_path: Path, database: str) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    assert asked(tmp_path, database, EXAMPLES_NIGHTLY, seed).wrong == {}
