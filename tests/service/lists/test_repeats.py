"""A request with an Idempotency-Key makes what it makes once, however often it is sent."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from gangline.api.answers import repeats
from gangline.api.app import make_app
from gangline.core.parsing import to_json
from gangline.core.server.idempotency import KEPT_S, request_fingerprint
from gangline.service.access.requests import forget_requests
from gangline.service.controller import PRUNE_S
from tests.service.conftest import OPERATOR, Service
from tests.service.test_http import problem

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'


def send(http: Any, path: str, body: Any = None, *, key: str = KEY, token: str = OPERATOR, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = {"Authorization": f"Bearer {token}", "Idempotency-Key": key} | named
    return http.post(path, json=body, headers=asked)


def spec(service: Service, **settings: Any) -> dict[str, Any]:
    return to_json(service.spec(**settings))


def base(service: Service) -> dict[str, Any]:
    return {"source": "files", "files": [to_json(service.photo)]}


MADE: dict[str, tuple[str, Callable[[Service], Any], Callable[[Service], Any], str]] = {
    "job": ("/v1/jobs", lambda s: {"spec": spec(s)}, lambda s: {"spec": spec(s), "name": "other"}, "job"),
    "base": ("/v1/bases", lambda s: {"name": "a", "base": base(s)}, lambda s: {"name": "b", "base": base(s)}, "base"),
    "project": ("/v1/projects", lambda s: {"project": "new"}, lambda s: {"project": "other"}, "project"),
    "pool": (
        "/v1/pools",
        lambda s: {"name": "more", "driver": "shop"},
        lambda s: {"name": "less", "driver": "shop"},
        "pool",
    ),
}


@pytest.mark.parametrize("what", MADE)
def test_a_repeated_request_is_answered_as_the_first_and_makes_nothing(service: Service, what: str) -> None:
    path, body, _, table = MADE[what]
    first = send(service.http, path, body(service))
    assert first.status_code == 201, first.text
    service.wait(5)
    again = send(service.http, path, body(service))
    assert again.status_code == 201 and _named(again.json()) == _named(first.json())
    rows = service.look(f"SELECT COUNT(*) AS rows FROM {table}")[0]["rows"]
    assert send(service.http, path, body(service)).status_code == 201
    assert service.look(f"SELECT COUNT(*) AS rows FROM {table}")[0]["rows"] == rows


def _named(answer: dict[str, Any]) -> Any:
    return answer["summary"]["id"] if "summary" in answer else answer.get("name") or answer["project"]


@pytest.mark.parametrize("what", MADE)
def test_a_key_that_is_reused_for_another_body_is_refused_and_nothing_is_lost(service: Service, what: str) -> None:
    path, body, other, table = MADE[what]
    first = send(service.http, path, body(service)).json()
    before = service.look(f"SELECT * FROM {table}")
    found = problem(send(service.http, path, other(service)), 422, "bad-input")
    assert found["detail"] == "this Idempotency-Key was used for another request" and found["hint"]
    assert service.look(f"SELECT * FROM {table}") == before
    assert _named(send(service.http, path, body(service)).json()) == _named(first)


def test_a_key_may_be_bare_as_it_was_before(service: Service) -> None:
    first = send(service.http, "/v1/jobs", {"spec": spec(service)}, key="8e03978e").json()
    again = send(service.http, "/v1/jobs", {"spec": spec(service)}, key='"8e03978e"').json()
    assert first["summary"]["id"] == again["summary"]["id"]


def test_a_key_is_of_one_endpoint_and_of_one_project(service: Service) -> None:
    service.add_project("other")
    body = {"spec": spec(service)}
    mine = send(service.http, "/v1/jobs", body).json()["summary"]["id"]
    theirs = send(service.http, "/v1/jobs", body, Gangline_Project="other").json()["summary"]["id"]
    service.ask("POST", f"/v1/jobs/{mine}/cancel")
    retried = send(service.http, f"/v1/jobs/{mine}/retry").json()["summary"]["id"]
    headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": KEY}
    line = json.loads(service.http.post("/v1/jobs/batch", content=json.dumps(body), headers=headers).text)
    assert len({mine, theirs, retried, line["job"]}) == 4


def test_a_job_is_retried_once_and_the_labels_of_a_body_count(service: Service) -> None:
    job = send(service.http, "/v1/jobs", {"spec": spec(service), "labels": {"team": "a"}}).json()["summary"]["id"]
    problem(send(service.http, "/v1/jobs", {"spec": spec(service), "labels": {"team": "b"}}), 422, "bad-input")
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    made = {send(service.http, f"/v1/jobs/{job}/retry").json()["summary"]["id"] for _ in range(3)}
    assert len(made) == 1
    other = send(service.http, f"/v1/jobs/{job}/retry?from_step=5")
    problem(other, 422, "bad-input")


def test_a_batch_is_submitted_once_and_another_line_of_its_key_is_refused(service: Service) -> None:
    def submit(*seeds: int) -> list[dict[str, Any]]:
        lines = "\n".join(json.dumps({"spec": spec(service, seed=seed)}) for seed in seeds)
        headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": KEY}
        answer = service.http.post("/v1/jobs/batch", content=lines, headers=headers)
        return [json.loads(line) for line in answer.text.splitlines()]

    first = submit(1, 2)
    assert submit(1, 2) == first
    again = submit(1, 3, 4)
    assert again[0] == first[0] and again[1]["problem"]["status"] == 422 and again[2]["job"]


@pytest.mark.parametrize(("path", "body"), [("/v1/keys", {"name": "a"}), ("/v1/join-tokens", {"name": "a"})])
def test_a_secret_is_in_one_answer_alone_and_a_repeated_request_makes_no_second_one(
    service: Service, path: str, body: dict[str, Any]
) -> None:
    first = send(service.http, path, body).json()
    made = next(value["id"] for value in first.values() if isinstance(value, dict))
    assert first["secret"] not in service.dump()
    found = problem(send(service.http, path, body), 422, "bad-input")
    assert made in found["detail"] and "revoke" in found["hint"] and first["secret"] not in str(found)
    assert len([row for row in service.ask("GET", path).json() if row["name"] == "a"]) == 1


def test_a_refused_request_leaves_its_key_free(service: Service) -> None:
    wrong = send(service.http, "/v1/jobs", {"spec": spec(service) | {"steps": 0}})
    assert wrong.status_code == 422
    assert send(service.http, "/v1/jobs", {"spec": spec(service)}).status_code == 201
    assert send(service.http, "/v1/pools", {"name": "Wrong name", "driver": "shop"}).status_code == 422
    assert send(service.http, "/v1/pools", {"name": "more", "driver": "shop"}).status_code == 201


class HeldApply:
    """The real store; its next write of one kind waits until it is let go."""

    name: str
    writing: threading.Event
    go: threading.Event

    def apply(self, *writes: Any) -> bool:
        if any(write.name == type(self).name for write in writes) and not type(self).writing.is_set():
            type(self).writing.set()
            assert type(self).go.wait(20)
        return super().apply(*writes)  # type: ignore[misc]


def holding(service: Service, name: str) -> type[HeldApply]:
    store: Any = service.store
    facts = {"name": name, "writing": threading.Event(), "go": threading.Event()}
    store.__class__ = type("HeldApply", (HeldApply, type(store)), facts)
    return store.__class__


@pytest.mark.parametrize(
    ("path", "body", "write"),
    [
        ("/v1/jobs", None, "add_job"),
        ("/v1/keys", {"name": "a"}, "add_credential"),
        ("/v1/pools", {"name": "more", "driver": "shop"}, "add_pool"),
    ],
)
def test_a_request_that_is_still_being_answered_is_refused_with_409(
    service: Service, path: str, body: Any, write: str
) -> None:
    body = body or {"spec": spec(service)}
    held, answers = holding(service, write), list[Any]()
    asker = threading.Thread(target=lambda: answers.append(send(service.http, path, body)))
    asker.start()
    assert held.writing.wait(20)
    found = problem(send(service.http, path, body), 409, "in-progress")
    assert "Idempotency-Key" in found["detail"] and found["hint"]
    held.go.set()
    asker.join()
    assert answers[0].status_code == 201


@pytest.mark.parametrize(("path", "write"), [("/v1/jobs", "add_job"), ("/v1/keys", "add_credential")])
def test_two_servers_that_get_the_same_request_make_one_thing(service: Service, path: str, write: str) -> None:
    body = {"spec": spec(service)} if path == "/v1/jobs" else {"name": "a"}
    held, answers = holding(service, write), list[Any]()
    with TestClient(make_app(service.deployment, None), raise_server_exceptions=False) as other:
        asker = threading.Thread(target=lambda: answers.append(send(other, path, body)))
        asker.start()
        assert held.writing.wait(20)
        first = send(service.http, path, body)
        held.go.set()
        asker.join()
    assert first.status_code == 201
    if path == "/v1/jobs":
        assert answers[0].json()["summary"]["id"] == first.json()["summary"]["id"]
    else:
        problem(answers[0], 409, "in-progress")
        assert len([row for row in service.ask("GET", path).json() if row["name"] == "a"]) == 1


def test_what_a_request_has_made_is_known_for_a_week(service: Service) -> None:
    send(service.http, "/v1/projects", {"project": "new"})
    service.wait(KEPT_S - 1)
    service.tick()
    problem(send(service.http, "/v1/projects", {"project": "other"}), 422, "bad-input")
    service.wait(PRUNE_S + 2)
    forget_requests(service.deployment, service.now_ms)
    assert send(service.http, "/v1/projects", {"project": "other"}).status_code == 201


@pytest.mark.parametrize("key", ['"', '"a', '"a"b', "x" * 201])
def test_what_is_no_key_is_refused_and_nothing_is_submitted(service: Service, key: str) -> None:
    found = problem(send(service.http, "/v1/jobs", {"spec": spec(service)}, key=key), 422, "bad-input")
    assert "Idempotency-Key" in found["detail"]
    assert service.ask("GET", "/v1/jobs").json()["jobs"] == []


def test_a_list_knows_no_key(service: Service) -> None:
    service.submit()
    for _ in range(2):
        answer = service.http.get("/v1/jobs", headers={"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": '"'})
        assert len(answer.json()["jobs"]) == 1


RELEASED_KEYS = ["8e03978e", KEY]
"""Servers before fingerprints kept the header as it was sent, with its quotes if it had some."""


@pytest.mark.parametrize("key", RELEASED_KEYS)
def test_a_batch_that_an_older_server_has_submitted_is_not_submitted_again(service: Service, key: str) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": key}
    lines = "\n".join(json.dumps({"spec": spec(service, seed=seed)}) for seed in (1, 2))
    first = [json.loads(line)["job"] for line in service.http.post("/v1/jobs/batch", content=lines, headers=headers)
             .text.splitlines()]  # fmt: skip
    for number, job in enumerate(first, 1):
        released(service, job, f"{key}/{number}")
    again = service.http.post("/v1/jobs/batch", content=lines, headers=headers).text.splitlines()
    assert [json.loads(line)["job"] for line in again] == first
    other = json.dumps({"spec": spec(service, seed=3)})
    (refused,) = service.http.post("/v1/jobs/batch", content=other, headers=headers).text.splitlines()
    assert json.loads(refused)["problem"]["status"] == 422
    assert service.look("SELECT COUNT(*) AS jobs FROM job")[0]["jobs"] == 2


@pytest.mark.parametrize("key", RELEASED_KEYS)
def test_a_job_that_an_older_server_has_submitted_is_not_submitted_again(service: Service, key: str) -> None:
    body = {"spec": spec(service)}
    first = send(service.http, "/v1/jobs", body, key=key).json()["summary"]["id"]
    released(service, first, key)
    assert send(service.http, "/v1/jobs", body, key=key).json()["summary"]["id"] == first
    problem(send(service.http, "/v1/jobs", {"spec": spec(service, seed=3)}, key=key), 422, "bad-input")


def test_a_job_that_looks_like_a_line_of_an_older_batch_is_none(service: Service) -> None:
    send(service.http, "/v1/jobs", {"spec": spec(service)}, key="8e03978e/1")
    headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": "8e03978e"}
    line = json.dumps({"spec": spec(service, seed=3)})
    assert json.loads(service.http.post("/v1/jobs/batch", content=line, headers=headers).text)["job"]


def released(service: Service, job: str, request: str) -> None:
    """Write the request of a job as an older server did."""
    service.execute(f"UPDATE job SET request = '{request}', fingerprint = NULL WHERE id = '{job}'")


def test_the_fingerprint_of_a_long_body_is_not_made_on_the_event_loop(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_in = list[str]()

    def noted(*request: Any) -> str:
        made_in.append(threading.current_thread().name)
        return request_fingerprint(*request)

    monkeypatch.setattr(repeats, "request_fingerprint", noted)
    assert send(service.http, "/v1/jobs", {"spec": spec(service)}).status_code == 201
    assert len(made_in) == 1 and made_in[0].startswith("users")
