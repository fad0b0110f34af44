"""Other lists of the API are whole, as they were, and come in parts if they are asked for so."""

import re
from typing import Any

import pytest

from tests.service.conftest import Service
from tests.service.test_http import problem
from tests.service.test_rules import succeed


def filled(service: Service) -> str:
    """A job that has ended, with several of everything."""
    job = service.submit()
    for verb in ("pause", "resume", "pause", "resume"):
        service.ask("POST", f"/v1/jobs/{job}/{verb}")
    node = service.join()
    succeed(service, node, service.claim(node).hold)
    (row,) = service.look("SELECT attempt FROM artifact")
    columns = "job, path, attempt, key, bytes, sha256"
    values = ",".join(f"('{job}', 'samples/{number}.png', '{row['attempt']}', 'k', 1, 's')" for number in range(4))
    service.execute(f"INSERT INTO artifact ({columns}) VALUES {values}")
    for number in range(4):
        service.make_key("viewer", name=f"key {number}")
        service.join_token(name=f"token {number}")
        body = {"name": f"base-{number}", "base": {"source": "files", "files": [dict(_file(service))]}}
        assert service.ask("POST", "/v1/bases", json=body).status_code == 201
    return job


def _file(service: Service) -> dict[str, Any]:
    return {"path": service.photo.path, "bytes": service.photo.bytes, "sha256": service.photo.sha256}


PATHS = ("/v1/jobs/{job}/events", "/v1/jobs/{job}/artifacts", "/v1/keys", "/v1/join-tokens", "/v1/bases")


@pytest.mark.parametrize("path", PATHS)
def test_a_list_in_parts_is_the_whole_list(service: Service, path: str) -> None:
    path = path.format(job=filled(service))
    whole = service.ask("GET", path)
    assert len(whole.json()) >= 5 or path == "/v1/bases"
    assert "link" not in whole.headers
    listed, query = list[Any](), "?limit=2"
    while query:
        part = service.ask("GET", path + query)
        assert len(part.json()) <= 2
        listed += part.json()
        link = re.fullmatch(r'<(\?.*)>; rel="next"', part.headers.get("link", ""))
        query = link[1] if link else ""
    assert _without_urls(listed) == _without_urls(whole.json())


def _without_urls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "url"} for item in items]


DELETED = {
    "/v1/jobs/{job}/artifacts": ("path", "DELETE FROM artifact WHERE path = '{last}'"),
    "/v1/bases": ("name", "DELETE FROM base WHERE name = '{last}'"),
}


@pytest.mark.parametrize("path", DELETED)
def test_a_list_continues_after_an_item_that_was_deleted_meanwhile(service: Service, path: str) -> None:
    key, delete = DELETED[path]
    path = path.format(job=filled(service))
    whole = [item[key] for item in service.ask("GET", path).json()]
    part = service.ask("GET", f"{path}?limit=2")
    service.execute(delete.format(last=part.json()[-1][key]))
    rest = service.ask(
        "GET", path + part.headers["link"].partition(">")[0].removeprefix("<").replace("limit=2", "limit=9")
    )
    assert [item[key] for item in rest.json()] == whole[2:]


@pytest.mark.parametrize("path", [path for path in PATHS[1:] if path not in DELETED])
def test_a_part_after_what_is_not_there_is_refused_with_a_sentence(service: Service, path: str) -> None:
    path = path.format(job=filled(service))
    found = problem(service.ask("GET", f"{path}?after=never"), 422, "bad-input")
    assert "not in this list" in found["detail"] and found["hint"]
