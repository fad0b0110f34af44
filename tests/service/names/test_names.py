"""Names are refused at the door where they would steer a terminal; what a node says of a failure is recorded whatever it is."""

from typing import Any

import pytest

from gangline.core.parsing import to_json
from tests.service.conftest import Service
from tests.service.test_http import problem
from tests.unit.test_door import HOSTILE

FILE = {"path": "weights.safetensors", "bytes": 1, "sha256": "0" * 64}
BASE = {"source": "files", "files": [FILE]}


def spec(service: Service, **changes: Any) -> dict[str, Any]:
    return to_json(service.spec()) | changes


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_a_request_with_such_a_name_is_refused_and_the_field_is_named(service: Service, hostile: str) -> None:
    token = service.join_token()["secret"]
    node = {"machine": "m", "name": "n"}
    bodies = [
        ("/v1/jobs", {"spec": spec(service), "name": hostile}, "name"),
        ("/v1/jobs", {"spec": spec(service, prompt=hostile)}, "prompt"),
        ("/v1/jobs", {"spec": spec(service, base_licence=hostile)}, "base_licence"),
        ("/v1/jobs", {"spec": spec(service, needs={"gpu": hostile})}, "needs.gpu"),
        ("/v1/jobs", {"spec": spec(service, needs={"pool": hostile})}, "needs.pool"),
        ("/v1/keys", {"name": hostile}, "name"),
        ("/v1/join-tokens", {"name": hostile}, "name"),
        ("/v1/join-tokens", {"name": "n", "pool": hostile}, "pool"),
        ("/v1/bases", {"name": "b", "base": BASE, "licence": hostile}, "licence"),
        ("/v1/nodes", node | {"name": hostile}, "name"),
        ("/v1/nodes", node | {"machine": hostile}, "machine"),
        ("/v1/nodes", node | {"gpu": hostile}, "gpu"),
        ("/v1/nodes", node | {"capabilities": {"driver": hostile}}, "capabilities.driver"),
    ]
    for path, body, field in bodies:
        secret = {"token": token} if path == "/v1/nodes" else {}
        answer = problem(service.ask("POST", path, json=body, **secret), 422, "invalid-spec")
        assert [found["field"] for found in answer["problems"]] == [field]
    for path, body in (("/v1/bases", {"name": hostile, "base": BASE}), ("/v1/projects", {"project": hostile})):
        assert service.ask("POST", path, json=body).status_code == 422


@pytest.mark.parametrize("name", ["my [sks] dog", "日本語\u3000名前", "👩‍🚀", "می‌خواهم", "*bold* | `code`"])
def test_a_name_of_any_language_is_taken_as_it_is(service: Service, name: str) -> None:
    answer = service.ask("POST", "/v1/jobs", json={"spec": spec(service, prompt=name), "name": name})
    assert answer.status_code == 201, answer.text
    assert answer.json()["summary"]["name"] == name
    joined = service.join_with(service.join_token()["secret"], gpu=name)
    assert joined.status_code == 201, joined.text


def test_the_last_words_of_a_trainer_are_recorded_whatever_they_are(service: Service) -> None:
    job = service.submit()
    joined = service.join_with(service.join_token()["secret"]).json()
    hold = service.claim(joined["node"]).hold
    end = {"outcome": "failed", "kind": "crashed", "because": "".join(HOSTILE[:-1])}
    path = f"/v1/attempts/{hold.attempt}/end?fencing={hold.fencing}"
    answer = service.ask("POST", path, joined["token"], json=end)
    assert answer.status_code == 200, answer.text
    events = service.store.load("events", job=job, after=0)
    [said] = [event["because"] for event in events if event["kind"] == "failed"]
    assert said.isprintable()
    assert "a\\x00ba\\x07ba\\x1b[31mba\\x9b2Jba\\u202eba" in said
    assert service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["because"].isprintable()
