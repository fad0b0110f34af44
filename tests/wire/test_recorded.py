"""Programs of every protocol version that was ever out are still understood: their recorded requests, asked again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.core.specs.spec import with_defaults
from gangline.wire import protocol
from tests.service.conftest import OPERATOR, Service
from tests.wire.record import RECORDED, Exchange, meant, record

VERSIONS = sorted(RECORDED.iterdir())


def exchanges(version: Path) -> list[Exchange]:
    return [Exchange(**json.loads(path.read_text())) for path in sorted(version.glob("*.json"))]


class Names:
    """What stands now for what was recorded: ids, tokens, signed URLs."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def learn(self, recorded: Any, now: Any) -> None:
        if isinstance(recorded, dict):
            for name in recorded:
                self.learn(recorded[name], now[name])
        elif isinstance(recorded, list):
            for one, other in zip(recorded, now, strict=True):
                self.learn(one, other)
        elif isinstance(recorded, str) and recorded != now:
            self._now[recorded] = now

    def translate(self, text: str) -> str:
        for recorded in sorted(self._now, key=len, reverse=True):
            text = text.replace(recorded, self._now[recorded])
        return text


def lacking(recorded: Any, now: Any, where: str = "answer") -> list[str]:
    """What was told then and is not any more, or is of another type. New fields may come."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        gone = [f"{where}.{name}" for name in recorded if name not in now]
        return gone + [
            found for name in recorded if name in now for found in lacking(recorded[name], now[name], f"{where}.{name}")
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [found for number, (one, other) in pairs for found in lacking(one, other, f"{where}[{number}]")]
    return [] if kind(recorded) == kind(now) and not isinstance(recorded, list) else [where]


def kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def as_understood(answer: Any) -> Any:
    """With the settings that a node fills in by itself: they are told where they are not as by default."""
    if isinstance(answer, dict) and isinstance(answer.get("spec"), dict):
        return answer | {"spec": with_defaults(answer["spec"])}
    return answer


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_recorded_requests_are_answered_as_they_were(service: Service, version: Path) -> None:
    names = Names()
    for number, then in enumerate(exchanges(version)):
        service.wait(then.waited_s)
        body = then.body if isinstance(then.body, str) else json.dumps(then.body)
        headers = {name: names.translate(value) for name, value in then.headers.items()}
        now = service.http.request(
            then.method, names.translate(then.path), headers=headers, content=names.translate(body).encode()
        )
        asked = f"{number}: {then.method} {then.path}"
        assert now.status_code == then.status, f"{asked}: {now.text}"
        answer = as_understood(meant(now.text))
        assert lacking(then.answer, answer) == [], asked
        names.learn(then.answer, answer)


OF_ONE_VERSION = ("/worker.sh", "/wheels/{name}", "/worker/constraints.txt")
"""Routes that are asked by a script of the same server, which names the wheel's hash: no other version speaks with them."""

OF_PROBES = ("/readyz", "/metrics")
"""Routes that no worker and no client of ours asks."""


def test_every_route_is_recorded(service: Service) -> None:
    routes = service.http.get("/openapi.json").json()["paths"]
    recorded = {
        (one.method.lower(), one.path.partition("?")[0]) for one in exchanges(RECORDED / f"v{protocol.VERSION}")
    }
    missing = {
        (method, route)
        for route, methods in routes.items()
        for method in methods
        if route not in (*OF_ONE_VERSION, *OF_PROBES)
        and not any(method == asked and matches(route, path) for asked, path in recorded)
    }
    assert not missing, "record them: python -m tests.wire.record"


def matches(route: str, path: str) -> bool:
    names, parts = route.split("/"), path.split("/")
    length = len(names) == len(parts) or names[-1].startswith("{key")
    return length and all(name == part or name.startswith("{") for name, part in zip(names, parts, strict=False))


def test_the_recording_is_of_this_versions_clients() -> None:
    def asked(all_: list[Exchange]) -> list[tuple[str, str, Any]]:
        return [(one.method, one.path.partition("?")[0], one.body) for one in all_]

    assert asked(record()) == asked(exchanges(RECORDED / f"v{protocol.VERSION}")), "python -m tests.wire.record"


def test_what_is_lacking_is_found() -> None:
    then = {"a": 1, "b": [{"c": "x"}], "d": None}
    assert lacking(then, {"a": 2.5, "b": [{"c": "y", "new": 1}], "d": None, "more": True}) == []
    assert lacking(then, {"a": "1", "b": [{}], "d": None}) == ["answer.a", "answer.b[0].c"]
    assert lacking(then, {"a": True, "b": []}) == ["answer.d", "answer.a", "answer.b"]


@pytest.mark.parametrize("version", [protocol.VERSION + 1, 99])
def test_a_newer_program_is_told_to_wait_for_a_newer_server(service: Service, version: int) -> None:
    headers = {protocol.HEADER: str(version), "Authorization": f"Bearer {OPERATOR}"}
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/claims"), ("POST", "/v1/attempts/x/heartbeats?fencing=1")):
        answer = service.http.request(method, path, headers=headers)
        assert answer.status_code == 400, path
        assert answer.json()["detail"] == (
            f"this server speaks version {protocol.VERSION} of the protocol, and the request has version {version}"
        )
    assert service.http.get("/healthz").json()["protocol"] == protocol.VERSION


@pytest.mark.parametrize("version", ["", "0", "1", "x", "1e9"])
def test_an_older_or_odd_version_is_no_reason_to_refuse(service: Service, version: str) -> None:
    headers = {protocol.HEADER: version, "Authorization": f"Bearer {OPERATOR}"}
    assert service.http.get("/v1/jobs", headers=headers).status_code == 200


def with_other_values(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield a body again and again, with a truth value or a text in the place of one number; of a list, the first counts. Gauges are left
    out: those that make no sense are dropped, and the message counts."""
    if isinstance(body, int | float) and not isinstance(body, bool):
        yield from (("", True), ("", str(body)))
    parts: Any = body.items() if isinstance(body, dict) else list(enumerate(body))[:1] if isinstance(body, list) else ()
    for name, part in parts:
        for place, other in () if name == "gauges" else with_other_values(part):
            whole = body | {name: other} if isinstance(body, dict) else [other, *body[1:]]
            yield f".{name}{place}", whole


def test_a_number_of_no_message_may_be_a_truth_value_or_a_text(service: Service) -> None:
    names, seen = Names(), set[str]()
    for then in exchanges(VERSIONS[-1]):
        service.wait(then.waited_s)
        path = names.translate(then.path)
        headers = {name: names.translate(value) for name, value in then.headers.items()}
        body = then.body if isinstance(then.body, str) else json.dumps(then.body)
        for place, changed in with_other_values({} if isinstance(then.body, str) else then.body):
            content = names.translate(json.dumps(changed)).encode()
            route = f"{then.method} {re.sub('[^/]*[0-9][^/]*', '', then.path)} {place} {type(changed)}"
            asked = f"{route}: {changed}"
            answer = service.http.request(then.method, path, headers=headers, content=content)
            refused = answer.json()["problem"] or {} if then.path.endswith("/batch") else answer.json()
            assert refused.get("status") == 422, f"{asked}: {answer.text}"
            seen.add(route)
        now = service.http.request(then.method, path, headers=headers, content=names.translate(body).encode())
        names.learn(then.answer, as_understood(meant(now.text)))
    assert len(seen) > 20
