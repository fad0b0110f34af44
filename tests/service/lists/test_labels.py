"""A job has the labels that it was submitted with, until somebody changes them, and the key that asked for it is its owner."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import NotFound
from gangline.core.jobs.lists.labels import LABELS_MAX
from gangline.core.parsing import to_json
from gangline.service.jobs.lists.labels import change_labels
from gangline.service.retention.removal import remove
from tests.service.conftest import OPERATOR, Before, Service
from tests.service.jobs.test_samples import commit, train
from tests.service.test_http import problem


def submit(service: Service, token: str = OPERATOR, **more: Any) -> dict[str, Any]:
    answer = service.ask("POST", "/v1/jobs", token, json={"spec": to_json(service.spec())} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["summary"]


def label(service: Service, job: str, changes: dict[str, Any], **headers: str) -> Any:
    asked = {"Authorization": f"Bearer {OPERATOR}"} | headers
    return service.http.patch(f"/v1/jobs/{job}/labels", json={"labels": changes}, headers=asked)


def test_labels_are_given_at_submission_and_shown(service: Service) -> None:
    job = submit(service, labels={"team": "vision", "a/b": ""})
    assert job["labels"] == {"team": "vision", "a/b": ""}
    (listed,) = service.ask("GET", "/v1/jobs").json()["jobs"]
    assert listed["labels"] == job["labels"]


def test_labels_stand_beside_the_settings_of_a_body_that_is_typed_by_hand(service: Service) -> None:
    body = to_json(service.spec()) | {"name": "timber", "labels": {"team": "vision"}}
    job = service.ask("POST", "/v1/jobs", json=body).json()
    assert job["summary"]["labels"] == {"team": "vision"} and "labels" not in job["spec"]


def test_the_lines_of_a_batch_have_labels(service: Service) -> None:
    spec = to_json(service.spec())
    lines = [json.dumps({"spec": spec, "labels": {"line": str(number)}}) for number in range(2)]
    wrong = json.dumps({"spec": spec, "labels": {"Line": "x"}})
    answer = service.ask("POST", "/v1/jobs/batch", content="\n".join([*lines, wrong]))
    first, second, refused = (json.loads(line) for line in answer.text.splitlines())
    for number, line in enumerate((first, second)):
        shown = service.ask("GET", f"/v1/jobs/{line['job']}").json()["summary"]
        assert shown["labels"] == {"line": str(number)}
    assert refused["job"] is None and refused["problem"]["status"] == 422 and "key" in str(refused["problem"])


@pytest.mark.parametrize(
    "labels",
    [
        {"Team": "a"},
        {"": "a"},
        {"t" * 64: "a"},
        {"team": "v" * 64},
        {"team": "\x1b[2J"},
        {"team": 5},
        {"team": None},
        {f"key-{number}": "" for number in range(LABELS_MAX + 1)},
        ["team"],
        "team=a",
    ],
)
def test_what_can_be_no_label_is_refused_and_nothing_is_submitted(service: Service, labels: Any) -> None:
    body = {"spec": to_json(service.spec()), "labels": labels}
    found = problem(service.ask("POST", "/v1/jobs", json=body), 422, "invalid-spec")
    assert all(each["field"].startswith("labels") for each in found["problems"])
    assert service.ask("GET", "/v1/jobs").json()["jobs"] == []


def test_labels_are_changed_later_and_the_spec_never(service: Service) -> None:
    job = submit(service, labels={"team": "vision", "old": "x"})["id"]
    before = service.ask("GET", f"/v1/jobs/{job}").json()
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    after = label(service, job, {"team": "audio", "old": None, "new": "", "never": None}).json()
    assert after["summary"]["labels"] == {"team": "audio", "new": ""}
    assert after["spec"] == before["spec"]
    assert [found["id"] for found in service.ask("GET", "/v1/jobs?label=team%3Daudio").json()["jobs"]] == [job]
    assert service.ask("GET", "/v1/jobs?label=team%3Dvision").json()["jobs"] == []


def test_a_job_never_has_more_labels_than_it_may(service: Service) -> None:
    job = submit(service, labels={f"key-{number}": "" for number in range(LABELS_MAX)})["id"]
    found = problem(label(service, job, {"one-more": ""}), 422, "bad-input")
    assert str(LABELS_MAX) in found["detail"]
    assert label(service, job, {"one-more": "", "key-0": None}).status_code == 200


def test_the_owner_is_the_key_that_asked_also_when_it_was_revoked(service: Service) -> None:
    made = service.make_key("member", name="ada")
    job = submit(service, made["secret"])
    assert job["owner"] == {"id": made["key"]["id"], "name": "ada"}
    service.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    (listed,) = service.ask("GET", "/v1/jobs?owner=ada").json()["jobs"]
    assert listed["owner"] == job["owner"]


def test_a_job_that_is_submitted_again_belongs_to_whom_asks_and_keeps_its_labels(service: Service) -> None:
    job = submit(service, labels={"team": "vision"})["id"]
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    other = service.make_key("member", name="grace")
    again = service.ask("POST", f"/v1/jobs/{job}/retry", other["secret"]).json()["summary"]
    assert again["owner"]["name"] == "grace" and again["labels"] == {"team": "vision"}


def test_a_job_that_renders_belongs_to_whom_the_job_belongs_that_it_shows(service: Service) -> None:
    first, _ = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    service.execute(f"UPDATE job SET owner = 'key-1' WHERE id = '{training.job}'")
    commit(service, first, training, 10)
    assert [row["owner"] for row in service.look("SELECT owner FROM job WHERE kind = 'sample'")] == ["key-1"]


def test_a_job_of_an_older_version_has_no_owner_and_says_so(service: Service) -> None:
    job = service.submit()
    assert service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["owner"] is None
    assert service.ask("GET", "/v1/jobs?owner=me").json()["jobs"] == []


def test_a_job_that_is_deleted_while_it_is_labelled_gets_no_label(service: Service) -> None:
    job = submit(service, labels={"team": "a"})["id"]
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    store = Before(service.store, "apply", lambda: remove(service.deployment, job, service.now_ms))
    with pytest.raises(NotFound, match=f"{job} was deleted"):
        change_labels(replace(service.deployment, store=store), job, {"team": "b"})
    assert service.look("SELECT * FROM label") == []
