"""Every refusal over HTTP is a problem+json 4xx; garbage never makes a 5xx."""

import json
from typing import Any

import pytest

from gangline.core.parsing import to_json
from gangline.service.jobs.submit import submit
from tests.service.conftest import JOIN, OPERATOR, PROJECT, Service


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == f"urn:gangline:problem:{code}"
    assert body["status"] == status and body["title"] and body["detail"]
    return body


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_a_key_that_is_known_nothing_is_told(service: Service, token: str) -> None:
    answer = service.ask("GET", "/v1/jobs", token=token)
    assert problem(answer, 401, "denied")["hint"]
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_invalid_spec_names_every_field(service: Service) -> None:
    spec = to_json(service.spec()) | {"steps": -1, "resolution": 0}
    body = problem(service.ask("POST", "/v1/jobs", json={"spec": spec}), 422, "invalid-spec")
    assert {found["field"] for found in body["problems"]} == {"steps", "resolution"}


def test_a_spec_whose_photos_were_not_uploaded_is_refused(service: Service) -> None:
    spec = to_json(service.spec())
    spec["photos"][0]["sha256"] = "0" * 64
    assert "photos/a.png" in problem(service.ask("POST", "/v1/jobs", json={"spec": spec}), 422, "bad-input")["detail"]
    assert service.ask("GET", "/v1/jobs").json()["jobs"] == []


def test_the_same_request_twice_is_one_job(service: Service) -> None:
    body = {"spec": to_json(service.spec())}
    headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": "once"}
    first = service.http.post("/v1/jobs", json=body, headers=headers)
    again = service.http.post("/v1/jobs", json=body, headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.json()["summary"]["id"] == again.json()["summary"]["id"]
    other = {"spec": to_json(service.spec(seed=5))}
    problem(service.http.post("/v1/jobs", json=other, headers=headers), 422, "bad-input")


def test_jobs_come_in_pages_newest_first(service: Service) -> None:
    submitted = []
    for _ in range(5):
        service.wait(1)
        submitted.append(service.submit())
    listed: list[str] = []
    cursor = ""
    while True:
        page = service.ask("GET", f"/v1/jobs?limit=2{cursor}").json()
        listed += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert listed == submitted[::-1]


def test_a_job_is_found_by_its_name_and_by_each_end_of_its_id(service: Service) -> None:
    spec = to_json(service.spec())
    jobs = [
        submit(service.deployment, PROJECT, spec, name=name, request=None, now_ms=service.now_ms)
        for name in ("a dog", "a cat", "a dog", "100%")
    ]

    def found(named: str) -> list[str]:
        return [job["id"] for job in service.ask("GET", "/v1/jobs", params={"named": named}).json()["jobs"]]

    assert found("a cat") == [jobs[1]]
    assert set(found("a dog")) == {jobs[0], jobs[2]}
    for job in jobs:
        assert job in found(job) and job in found(job[:-1]) and job in found(job[4:]) and job in found(job[-1:])
    assert found("100%") == [jobs[3]]
    assert found("%") == found("_") == found("no such job") == found("job-" + "9" * 100) == []
    assert service.ask("GET", "/v1/jobs?named=").status_code == 422


@pytest.mark.parametrize(
    "path",
    ["/v1/jobs/none", "/v1/jobs/none/events", "/v1/jobs/none/logs", "/v1/jobs/none/artifacts", "/v1/no-such-route"],
)
def test_what_is_not_there_is_a_404(service: Service, path: str) -> None:
    problem(service.ask("GET", path), 404, "not-found")


GARBAGE = [b"", b"null", b"[]", b"{", b'"x"', b'{"spec": 3}', b'{"spec": {"kind": []}}', b"\xff\xfe", b"[" * 5000]


@pytest.mark.parametrize("body", GARBAGE)
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs"), ("POST", "/v1/blobs"), ("POST", "/v1/nodes")])
def test_garbage_is_a_4xx(service: Service, method: str, path: str, body: bytes) -> None:
    token = JOIN if path == "/v1/nodes" else OPERATOR
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    answer = service.http.request(method, path, content=body, headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?expires=x&signature=y",
        "?expires=99999999999999&signature=00&what=1-aa",
        "?expires=99999999999999&signature=%C3%A9%FF&what=%C3%A9",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_object_without_a_good_signature_is_refused(service: Service, method: str, query: str) -> None:
    answer = service.http.request(method, f"/v1/objects/projects/default/blobs/{service.photo.sha256}{query}")
    assert answer.status_code in (403, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def summary(answer: Any, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return answer.json()["summary"]


def test_a_job_is_paused_resumed_canceled_and_tried_again_as_a_new_one(service: Service) -> None:
    job = service.submit()
    assert summary(service.ask("POST", f"/v1/jobs/{job}/pause"))["state"] == "paused"
    assert summary(service.ask("POST", f"/v1/jobs/{job}/resume"))["state"] == "queued"
    body = problem(service.ask("POST", f"/v1/jobs/{job}/retry"), 422, "bad-input")
    assert "may still succeed" in body["detail"] and body["hint"] == "cancel it first"
    assert summary(service.ask("POST", f"/v1/jobs/{job}/cancel"))["state"] == "canceled"
    assert summary(service.ask("POST", f"/v1/jobs/{job}/cancel"))["state"] == "canceled"
    for verb in ("pause", "resume"):
        body = problem(service.ask("POST", f"/v1/jobs/{job}/{verb}"), 422, "bad-input")
        assert body["detail"].startswith(f"{job} has been canceled and cannot be {verb}")
    again = summary(service.ask("POST", f"/v1/jobs/{job}/retry"), 201)
    assert again["id"] != job and again["state"] == "queued"


@pytest.mark.parametrize("number", [2**63, 2**65])
def test_a_number_that_no_store_holds_is_a_4xx(service: Service, number: int) -> None:
    job, text = service.submit(), "9" * 5000 if number > 2**64 else str(number)
    for path in (f"jobs/{job}/events?after={text}", f"jobs?cursor={text}.x", f"jobs/{job}/logs?after={text}.0"):
        assert 400 <= service.ask("GET", f"/v1/{path}").status_code < 500, path


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "retry"])
def test_another_projects_job_cannot_be_steered_nor_told_from_none(service: Service, verb: str) -> None:
    job = service.submit(project=service.add_project("other"))
    body = problem(service.ask("POST", f"/v1/jobs/{job}/{verb}"), 404, "not-found")
    unknown = problem(service.ask("POST", f"/v1/jobs/none/{verb}"), 404, "not-found")
    assert body["detail"].replace(job, "none") == unknown["detail"]
    assert service.state(job) == "queued"


def test_a_project_shows_its_money_and_takes_a_share_and_a_budget(service: Service) -> None:
    money = {"budget_usd": None, "spent_usd": 0.0, "reserved_usd": 0.0, "cost_lacks": ["storage", "egress"]}
    first = {"project": "default", "share": 1.0} | money
    assert service.ask("GET", "/v1/project").json() == first
    changed = service.ask("PUT", "/v1/projects/default", json={"share": 2.5, "budget_usd": 12.345678})
    assert changed.json() == service.ask("GET", "/v1/project").json()
    assert changed.json() == first | {"share": 2.5, "budget_usd": 12.345678}
    service.submit()
    service.claim(service.join())
    assert service.ask("GET", "/v1/project").json()["reserved_usd"] == 0.09
    assert service.ask("PUT", "/v1/projects/default", json={}).json()["budget_usd"] is None


@pytest.mark.parametrize(
    "wrong",
    [{"share": 0}, {"share": -1}, {"budget_usd": -0.01}, {"share": "x"}, {"budget_usd": 1e300}, {"share": None}],
)
def test_a_wrong_share_or_budget_is_refused_with_the_field_named(service: Service, wrong: dict[str, Any]) -> None:
    body = problem(service.ask("PUT", "/v1/projects/default", json=wrong), 422, "invalid-spec")
    assert next(iter(wrong)) in body["problems"][0]["field"]
    assert service.ask("GET", "/v1/project").json()["share"] == 1.0


@pytest.mark.parametrize("value", [False, True, "5", "inf", float("nan")])
@pytest.mark.parametrize("name", ["budget_usd", "share"])
def test_what_is_no_number_is_no_budget_and_no_share(service: Service, name: str, value: Any) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
    body = problem(
        service.http.put("/v1/projects/default", content=json.dumps({name: value}), headers=headers),
        422,
        "invalid-spec",
    )
    assert name in body["problems"][0]["field"]


def test_a_heartbeat_over_http_is_told_to_stop_and_a_late_one_that_the_lease_is_lost(service: Service) -> None:
    join = {"machine": "m", "name": "n", "gpu": "T4", "gpu_memory_gb": 16}
    joined = service.ask("POST", "/v1/nodes", JOIN, json=join).json()
    job = service.submit()
    hold = service.ask("POST", "/v1/claims", joined["token"]).json()["hold"]
    path = f"/v1/attempts/{hold['attempt']}/heartbeats?fencing={hold['fencing']}"
    beat = {"phase": "training", "step": 1}
    assert service.ask("POST", path, joined["token"], json=beat).json() == {"stop": "", "save": False, "finish": False}
    service.ask("POST", f"/v1/jobs/{job}/pause")
    assert service.ask("POST", path, joined["token"], json=beat).json() == {
        "stop": "paused by first operator",
        "save": False,
        "finish": False,
    }
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    problem(service.ask("POST", path, joined["token"], json=beat), 409, "stale")
    shown = service.ask("GET", "/v1/nodes").json()[0]
    assert (shown["gpu"], shown["state"], shown["jobs"]) == ("T4", "ready", [])


def test_a_blob_is_put_once_and_read_never_by_its_hash_alone(service: Service) -> None:
    answer = service.ask("POST", "/v1/blobs", json={"sha256": service.photo.sha256, "bytes": service.photo.bytes})
    assert answer.json() == {"present": True, "grant": None}
    wrong_size = service.ask("POST", "/v1/blobs", json={"sha256": service.photo.sha256, "bytes": 999})
    assert wrong_size.json()["present"] is False
