"""What is wrong with a request is said in the same words wherever it is found: in the body, the address, a line of a batch, a spec."""

import json
from typing import Any

import pytest

from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.test_http import problem

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
OBJECT = "must be an object"


def send(service: Service, method: str, path: str, content: str | None, token: str = OPERATOR) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return service.http.request(method, f"/v1/{path}", content=content, headers=headers)


def problems_of(answer: Any) -> dict[str, str]:
    body = problem(answer, 422, "invalid-spec")
    return {found["field"]: found["message"] for found in body["problems"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "said"),
    [
        ("PUT", "projects/default", {"share": "x"}, "share", "must be a number, not x"),
        ("PUT", "projects/default", {"share": 0}, "share", "must be more than 0, not 0"),
        ("GET", "jobs?limit=0", None, "limit", "must be 1 or more, not 0"),
        ("GET", "jobs?limit=many", None, "limit", "must be a whole number, not many"),
        ("POST", "plans", {}, "spec", "is missing"),
        ("POST", "plans", {"spec": []}, "spec", OBJECT),
        ("POST", "plans", [], "body", OBJECT),
        ("POST", "jobs", [], "body", OBJECT),
        ("POST", "jobs", {"spec": {"needs": 5}}, "needs", f"{OBJECT}, not 5"),
        ("POST", "jobs", {"needs": 5}, "needs", f"{OBJECT}, not 5"),
        ("POST", "jobs", {"spec": {"preset": "x"}}, "preset", "is not a known field"),
        ("POST", "jobs", {"spec": {"steps": "a\x1b[2J"}}, "steps", r"must be a whole number, not a\x1b[2J"),
        ("POST", "jobs", {"spec": {"steps": "\ud800"}}, "steps", "is not valid Unicode"),
        ("POST", "jobs", {"spec": {"\ud800": 1}}, "spec", "is not valid Unicode"),
        ("POST", "jobs", {"spec": {"sample_prompts": {"\ud800": 1}}}, "sample_prompts", "must be a list"),
    ],
)
def test_a_refusal_says_what_is_wrong_in_a_users_words(
    service: Service, method: str, path: str, body: Any, field: str, said: str
) -> None:
    answer = send(service, method, path, None if body is None else json.dumps(body))
    assert problems_of(answer)[field] == said


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        ("[]", "body", OBJECT),
        ('{"spec": []}', "spec", OBJECT),
        ('{"spec": {}, "name": 5}', "name", "must be a text, not 5"),
    ],
)
def test_a_line_of_a_batch_is_refused_in_the_same_words_as_a_request(
    service: Service, line: str, field: str, said: str
) -> None:
    alone = problems_of(send(service, "POST", "jobs", line))
    answer = send(service, "POST", "jobs/batch", line)
    found = json.loads(answer.text)["problem"]["problems"]
    assert {each["field"]: each["message"] for each in found} == alone == {field: said}


@pytest.mark.parametrize("path", ["plans", "jobs", "jobs/batch"])
def test_what_is_no_json_is_said_to_be_none(service: Service, path: str) -> None:
    answer = send(service, "POST", path, '{"spec": ')
    assert '"message":"is not JSON: ' in answer.text


def test_a_heartbeat_is_refused_in_the_same_words_as_any_request(service: Service) -> None:
    service.submit()
    node = service.ask("POST", "/v1/nodes", JOIN, json={"machine": "m", "name": "n"}).json()["token"]
    hold = service.ask("POST", "/v1/claims", node).json()["hold"]
    path = f"attempts/{hold['attempt']}/heartbeats?fencing="
    assert problems_of(send(service, "POST", f"{path}-1", "{}", node)) == {"fencing": "must be 0 or more, not -1"}
    assert problems_of(send(service, "POST", f"{path}1", "[]", node)) == {"body": OBJECT}
