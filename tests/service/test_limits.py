"""No client holds up the others: what a request may bring, how long it may take, and how often it may come."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.app import make_app
from gangline.api.limits.rates import SENDERS_MAX, RateLimiter
from gangline.compose.client import Client
from gangline.core.parsing import to_json
from gangline.core.server.limits import Limits
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.served import Served, serving
from tests.service.test_http import problem

SMALL = Limits(json_bytes_max=2_000, worker_json_bytes_max=3_000, batch_bytes_max=20_000, batch_lines_max=4)
IMPATIENT = Limits(headers_s=0.2, body_s=0.2, body_idle_s=0.2)
SELDOM = Limits(key_rate_per_s=0.5, key_burst=2, address_rate_per_s=0.25, address_burst=3)


@pytest.fixture
def served(service: Service, request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(make_app(service.deployment, service.objects, request.param)) as served:
        yield served


def ask(served: Served, method: str, path: str, token: str = OPERATOR, **rest: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} | rest.pop("headers", {})
    return httpx.request(method, served.url + path, headers=headers, timeout=20, **rest)


def in_pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 500):
        yield b" " * 500


@pytest.mark.parametrize("served", [SMALL], indirect=True)
@pytest.mark.parametrize(
    ("path", "bytes_max"), [("/v1/jobs", 2_000), ("/v1/nothing", 2_000), ("/v1/attempts/a/end?fencing=1", 3_000)]
)
def test_a_body_that_is_too_large_is_refused_before_it_is_read(served: Served, path: str, bytes_max: int) -> None:
    announced = ask(served, "POST", path, content=b"x" * (bytes_max + 1))
    assert str(f"{bytes_max:,}") in problem(announced, 413, "too-large")["detail"]
    assert announced.headers["connection"] == "close"


@pytest.mark.parametrize("served", [SMALL], indirect=True)
def test_a_body_of_unknown_length_is_refused_where_it_grows_too_large(served: Served) -> None:
    problem(ask(served, "POST", "/v1/jobs", content=in_pieces(100_000)), 413, "too-large")


@pytest.mark.parametrize("served", [Limits()], indirect=True)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch", "/v1/nodes", "/v1/attempts/a/uploads?fencing=1"])
def test_without_a_key_a_body_is_refused_before_it_has_come(served: Served, path: str) -> None:
    """The rest of the body is never sent: who reads it before the key would wait for ever."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{{".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("served", [IMPATIENT], indirect=True)
def test_headers_that_do_not_come_to_an_end_lose_their_connection(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        for half in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
            connection.sendall(half)
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert connection.recv(1000) == b""


@pytest.mark.parametrize("served", [IMPATIENT], indirect=True)
def test_a_connection_that_asks_again_has_the_whole_time_again(served: Served) -> None:
    whole, half = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz HTTP/1.1\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        for _ in range(3):
            connection.sendall(whole)
            answer = connection.recv(1000)
            while not answer.endswith(b"}"):
                answer += connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200 ")
        connection.sendall(half)
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("served", [IMPATIENT], indirect=True)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
def test_a_body_that_does_not_come_to_an_end_loses_its_connection(served: Served, path: str) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OPERATOR}\r\nContent-Length: 900\r\n\r\n"
        connection.sendall(head.encode() + b'{"spec":')
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("served", [SELDOM], indirect=True)
def test_a_key_that_asks_too_often_is_told_when_to_ask_again_and_others_are_not(
    service: Service, served: Served
) -> None:
    other = service.ask("POST", "/v1/keys", json={"role": "viewer", "name": "other"}).json()["secret"]
    answers = [ask(served, "GET", "/v1/jobs") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) == 2
    assert "2 s" in problem(answers[-1], 429, "too-many")["hint"]
    assert ask(served, "GET", "/v1/jobs", other).status_code == 200


@pytest.mark.parametrize("served", [Limits(key_rate_per_s=2, key_burst=1)], indirect=True)
def test_a_client_that_asks_too_often_waits_and_asks_again(served: Served) -> None:
    client = Client(served.url, OPERATOR)
    assert [list(client.jobs.list()) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("served", [SELDOM], indirect=True)
def test_guesses_of_keys_count_for_the_address_that_makes_them(served: Served) -> None:
    statuses = [ask(served, "GET", "/v1/jobs", f"guess-{number}").status_code for number in range(4)]
    assert statuses == [401, 401, 401, 429]


@pytest.mark.parametrize("served", [SELDOM], indirect=True)
def test_heartbeats_have_no_rate(service: Service, served: Served) -> None:
    service.submit()
    token = service.join_with(JOIN).json()["token"]
    hold = service.ask("POST", "/v1/claims", token).json()["hold"]
    path = f"/v1/attempts/{hold['attempt']}/heartbeats?fencing={hold['fencing']}"
    beat = {"phase": "training", "step": 1}
    assert {ask(served, "POST", path, token, json=beat).status_code for _ in range(20)} == {200}


@pytest.mark.parametrize("served", [Limits(batch_lines_max=4)], indirect=True)
def test_many_jobs_come_as_lines_and_one_that_is_wrong_leaves_the_others(service: Service, served: Served) -> None:
    good = json.dumps({"spec": to_json(service.spec()), "name": "good"})
    lines = [good, "{", "", json.dumps({"spec": to_json(service.spec()) | {"steps": 0}}), good]
    headers = {"Content-Type": "application/jsonl", "Idempotency-Key": "night"}
    for _ in range(2):  # the second time nothing is new
        answer = ask(served, "POST", "/v1/jobs/batch", content="\n".join(lines), headers=headers)
        first, broken, wrong, last = (json.loads(line) for line in answer.text.splitlines())
        assert [first["line"], broken["line"], wrong["line"], last["line"]] == [1, 2, 3, 4]
        assert broken["problem"]["status"] == 422 and wrong["problem"]["problems"][0]["field"] == "steps"
        listed = service.ask("GET", "/v1/jobs").json()["jobs"]
        assert {job["id"] for job in listed} == {first["job"], last["job"]} and len(listed) == 2
    five = ask(served, "POST", "/v1/jobs/batch", content="\n".join([good] * 5))
    assert "more than 4 lines" in problem(five, 413, "too-large")["detail"]


@pytest.mark.parametrize("served", [SMALL], indirect=True)
def test_a_line_is_no_longer_than_a_request_may_be(served: Served) -> None:
    answer = ask(served, "POST", "/v1/jobs/batch", content=b" " * 2_001)
    assert "line 0" in problem(answer, 413, "too-large")["detail"]


@pytest.mark.parametrize("served", [Limits()], indirect=True)
def test_a_client_submits_a_batch_in_one_request(service: Service, served: Served) -> None:
    specs = [service.spec(seed=seed) for seed in range(3)]
    submitted = Client(served.url, OPERATOR).jobs.submit_batch(specs)
    assert [line.line for line in submitted] == [1, 2, 3] and len({line.job for line in submitted}) == 3


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 20), st.integers(1, 20))
def test_in_any_time_no_sender_is_served_more_than_its_burst_and_its_rate(
    pauses: list[float], per_s: float, burst: int
) -> None:
    rates, now_s, served = RateLimiter(per_s, burst), 0.0, 0
    for pause in pauses:
        now_s += pause
        wait_s = rates.take("a", now_s)
        served += wait_s == 0
        assert served <= burst + now_s * per_s + 1e-6
        if wait_s:
            assert rates.wait_s("a", now_s + wait_s + 1e-9) == 0


def test_the_memory_of_senders_is_bounded() -> None:
    rates = RateLimiter(1, 1)
    for number in range(SENDERS_MAX + 100):
        rates.take(str(number), 0)
    assert len(rates._buckets) == SENDERS_MAX
