"""JSON lines: a list of any length in one answer, and a batch that is answered line by line."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gangline.api.app import make_app
from gangline.compose.client import Client
from gangline.core.parsing import to_json
from gangline.core.server.limits import Limits
from tests.service.conftest import OPERATOR, Service
from tests.service.lists.many import write_many
from tests.service.served import Served, serving

HEADERS = {"Authorization": f"Bearer {OPERATOR}", "Accept": "application/jsonl"}


@pytest.fixture
def served(service: Service) -> Iterator[Served]:
    with serving(make_app(service.deployment, service.objects, Limits())) as served:  # type: ignore[arg-type]
        yield served


def test_a_list_as_lines_has_all_pages(service: Service) -> None:
    made = write_many(service, 450, ("key-1", "key-2"))
    answer = service.http.get("/v1/jobs", headers=HEADERS)
    assert answer.headers["content-type"] == "application/jsonl" and answer.headers["vary"] == "Accept"
    assert [json.loads(line)["id"] for line in answer.text.splitlines()] == [job.id for job in made]
    failed = service.http.get("/v1/jobs?state=failed&limit=77", headers=HEADERS)
    wanted = [job.id for job in made if job.state == "failed"]
    assert [json.loads(line)["id"] for line in failed.text.splitlines()] == wanted[:77]


def test_a_line_is_what_a_page_has(service: Service) -> None:
    service.submit()
    (line,) = service.http.get("/v1/jobs", headers=HEADERS).text.splitlines()
    assert json.loads(line) == service.ask("GET", "/v1/jobs").json()["jobs"][0]


def test_a_wrong_filter_of_lines_is_a_problem_and_no_line(service: Service) -> None:
    answer = service.http.get("/v1/jobs?owner=nobody", headers=HEADERS)
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "application/jsonl;q=0, application/json",
        "text/html",
        "application/jsonl;q=0.00, */*;q=0.1",
        "application/jsonl;q=0.5, application/json;q=0.50",
        "application/json, application/jsonl",
        "application/jsonl;q=0.9, */*",
    ],
)
def test_a_page_is_the_answer_where_no_lines_are_asked_for(service: Service, accept: str) -> None:
    answer = service.http.get("/v1/jobs", headers=HEADERS | {"Accept": accept})
    assert answer.json() == {"jobs": [], "next": None} and answer.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    "accept",
    [
        "application/jsonl",
        "Application/JSONL ; q=0.510, application/json;q=0.5, */*;q=0.4",
        "application/json;q=0.2, */*",
    ],
)
def test_lines_are_the_answer_where_they_are_liked_better(service: Service, accept: str) -> None:
    service.submit()
    answer = service.http.get("/v1/jobs", headers=HEADERS | {"Accept": accept})
    assert answer.headers["content-type"] == "application/jsonl"


def test_a_batch_is_answered_while_it_is_sent(service: Service, served: Served) -> None:
    line = json.dumps({"spec": to_json(service.spec())}).encode() + b"\n"
    head = f"POST /v1/jobs/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OPERATOR}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = f"{len(line):x}\r\n".encode() + line + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(head.encode() + chunk)
        _read_until(connection, b'"line":1')
        connection.sendall(chunk)
        _read_until(connection, b'"line":2')
        connection.sendall(b"0\r\n\r\n")
        _read_until(connection, b"0\r\n\r\n")
    assert len(service.ask("GET", "/v1/jobs").json()["jobs"]) == 2


def _read_until(connection: socket.socket, wanted: bytes) -> None:
    found = b""
    while wanted not in found:
        piece = connection.recv(65_536)
        assert piece, found
        found += piece


def test_a_client_that_reads_no_answer_before_it_has_sent_all_is_answered(service: Service, served: Served) -> None:
    """More answers than the sockets and the server's buffer take: who waited for a reader would never read the rest."""
    wrong = json.dumps({"spec": {"kind": "x" * 300}})
    lines = "\n".join([wrong] * 9_000) + "\n"
    answer = httpx.post(f"{served.url}/v1/jobs/batch", content=lines, headers=HEADERS, timeout=120)
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["line"] for line in found] == list(range(1, 9_001))
    assert len(answer.content) > 2_000_000


def test_a_fault_in_the_middle_of_a_batch_is_its_last_line_and_the_jobs_before_it_are_told(service: Service) -> None:
    good = json.dumps({"spec": to_json(service.spec())}).encode() + b"\n"

    def pieces() -> Iterator[bytes]:
        yield good
        yield b"x" * 1_000_001

    with serving(make_app(service.deployment, None, Limits())) as served:
        answer = httpx.post(f"{served.url}/v1/jobs/batch", content=pieces(), headers=HEADERS, timeout=20)
    first, fault = (json.loads(line) for line in answer.text.splitlines())
    assert first["job"] and fault["problem"]["status"] == 413 and fault["line"] == 2
    assert len(service.ask("GET", "/v1/jobs").json()["jobs"]) == 1


def test_a_client_lists_and_labels(service: Service, served: Served) -> None:
    client = Client(served.url, OPERATOR)
    job = client.jobs.submit(service.spec(), name="timber", labels={"team": "a"}).summary
    client.jobs.submit(service.spec(seed=2))
    assert job.labels == {"team": "a"} and job.owner
    for found in (
        list(client.jobs.list(label=["team=a"])),
        list(client.jobs.list(state=["queued"], named="timber")),
        list(client.jobs.list(owner=job.owner.id, label=["team"], since="1970-01-01T00:00:00Z")),
    ):
        assert [each.id for each in found] == [job.id]
    assert len(list(client.jobs.list(owner="me", kind="lora", limit=1))) == 1
    assert list(client.jobs.list(until="1970-01-01T00:00:00Z")) == []
    assert client.jobs.label(job.id, {"team": None, "other": "b"}).summary.labels == {"other": "b"}


def test_readers_of_lines_do_not_hold_the_threads_of_users(service: Service) -> None:
    write_many(service, 300, ("key-1",))
    answers = list[Any]()
    askers = [
        threading.Thread(target=lambda: answers.append(service.http.get("/v1/jobs", headers=HEADERS))) for _ in range(6)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert [len(answer.text.splitlines()) for answer in answers] == [300] * 6
