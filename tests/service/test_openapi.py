"""The OpenAPI document tells the truth: every answer that the server gives is in it, whatever it is asked."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.core.server.limits import Limits
from gangline.core.specs.kinds import KINDS
from tests.service.conftest import JOIN, OPERATOR, Service

EXAMPLES, EXAMPLES_NIGHTLY = 6, 150
ANY_RATE = Limits(key_rate_per_s=1e6, key_burst=10**6, address_rate_per_s=1e6, address_burst=10**6)
REFUSED = ["2xx", "401", "403", "404", "409", "412", "422", "503"]
"""What a request may get that is as the document says: it may name what is not there, and be wrong in what no schema says."""


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


def asked(service: Service, examples: int, *, derandomize: bool) -> dict[str, str]:
    """Ask every operation with what its schema says, and with what it forbids; what came of it that the document does not have."""
    objects = service.objects if isinstance(service.objects, LocalObjects) else None
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(service.at, objects, ANY_RATE))
    schema.config.checks.positive_data_acceptance.expected_statuses = REFUSED
    schema.config.checks.negative_data_rejection.expected_statuses = ["4xx", "503"]  # 413 among them: some are large
    # a parameter that the server does not know is no mistake: a newer client asks an older server, too
    schema.config.generation.allow_extra_parameters = False
    # the hub of these tests is away, which 503 says
    schema.config.checks.not_a_server_error.expected_statuses = ["2xx", "3xx", "4xx", "503"]
    node = service.ask("POST", "/v1/nodes", JOIN, json={"machine": "m", "name": "n"}).json()["token"]
    tokens = {"join token": JOIN, "node token": node, "key": OPERATOR}
    chosen = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    wrong: dict[str, str] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        schemes = [name for one in operation.definition.raw["security"] for name in one]
        headers = {"Authorization": f"Bearer {tokens[schemes[0]]}"} if schemes else {}
        for mode in GenerationMode:
            cases = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # what takes nothing cannot be given something wrong
                chosen(given(case=cases)(asking(headers, wrong)))()
    return wrong


def asking(headers: dict[str, str], wrong: dict[str, str]) -> Callable[[schemathesis.Case], None]:
    def ask(case: schemathesis.Case) -> None:
        without_a_key = headers and "Authorization" not in case.headers  # which is what may be wrong with the request
        try:
            case.call_and_validate(headers=None if without_a_key else headers)
        except FailureGroup as group:
            for failure in group.exceptions:
                wrong[f"{case.operation.label}: {type(failure).__name__}"] = str(failure)[:500]

    return ask


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_every_answer_is_one_that_the_document_has(service: Service) -> None:
    assert asked(service, EXAMPLES, derandomize=True) == {}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_every_answer_is_one_that_the_document_has_by_other_requests_each_night(service: Service) -> None:
    assert asked(service, EXAMPLES_NIGHTLY, derandomize=False) == {}
