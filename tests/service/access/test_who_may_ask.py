"""Every route for every caller: a table that a new route must be in."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from starlette.routing import BaseRoute

from gangline.core.access import KEY_ROLES, permits
from gangline.core.files import PART_BYTES
from gangline.core.jobs.keys import blob_key
from gangline.core.parsing import to_json
from tests.service.conftest import JOIN, PROJECT, Service, _made
from tests.service.test_http import problem

OTHER = "other"


@dataclass(frozen=True)
class Entry:
    """What a route needs: a role, nothing ("anybody"), or a signature. `elsewhere`: what the admin of another project is answered."""

    needs: str
    status: int = 200
    body: Any = None
    query: str = ""
    elsewhere: int | None = None


FILES = [{"path": "weights.safetensors", "bytes": 1, "sha256": "0" * 64}]
BEGINNINGS = [{"path": "weights.safetensors", "bytes": PART_BYTES + 1, "parts": ["0" * 64]}]
ROUTES = {
    "GET /openapi.json": Entry("anybody"),
    "GET /docs": Entry("anybody"),
    "GET /docs/oauth2-redirect": Entry("anybody"),
    "GET /healthz": Entry("anybody"),
    "GET /readyz": Entry("anybody"),
    "GET /metrics": Entry("operator"),
    "GET /worker.sh": Entry("anybody"),
    "GET /wheels/{name}": Entry("anybody", 404),  # of another version
    "GET /worker/constraints.txt": Entry("anybody"),
    "GET /v1/objects/{key}": Entry("signature", 403, query="?expires=99999999999999&signature=00"),
    "PUT /v1/objects/{key}": Entry("signature", 403, query="?expires=99999999999999&signature=00&what=1-aa"),
    "GET /v1/jobs": Entry("viewer"),
    "GET /v1/report": Entry("viewer"),
    "GET /v1/queue": Entry("viewer"),
    "GET /v1/costs": Entry("viewer"),
    "GET /v1/costs/thresholds": Entry("viewer"),
    "PUT /v1/costs/thresholds": Entry("operator", body={"usd": 5, "per": "day", "project": "default"}),
    "DELETE /v1/costs/thresholds/{threshold}": Entry("operator", 204),
    "GET /v1/budgets": Entry("viewer"),
    "GET /v1/fleet": Entry("operator"),
    "GET /v1/jobs/{job}": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/events": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/timeline": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/logs": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/metrics": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/artifacts": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/pictures": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/pictures/{sha256}/thumbnail": Entry("viewer", 404),  # there is none
    "PUT /v1/jobs/{job}/winner": Entry("member", 404, body={"step": 10}),  # it has no weights
    "DELETE /v1/jobs/{job}/winner": Entry("member", elsewhere=404),
    "GET /v1/jobs/{ended}/events/stream": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{ended}/logs/stream": Entry("viewer", elsewhere=404),
    "GET /v1/facts": Entry("viewer"),
    "GET /v1/facts/stream": Entry("viewer", 204, query="?after=end"),
    "GET /v1/machines": Entry("operator"),
    "GET /v1/nodes": Entry("viewer"),
    "GET /v1/nodes/{node}": Entry("viewer"),
    "GET /v1/nodes/{node}/bill": Entry("operator", 422),  # it was not rented
    "GET /v1/nodes/{node}/logs": Entry("operator", 422),  # its machine is nobody's that keeps them
    "POST /v1/nodes/{node}/drain": Entry("operator"),
    "POST /v1/nodes/{node}/quarantine": Entry("operator"),
    "POST /v1/nodes/{node}/release": Entry("operator"),
    "GET /v1/project": Entry("viewer"),
    "POST /v1/blobs": Entry("member", body={"sha256": "0" * 64, "bytes": 1}),
    "POST /v1/plans": Entry("viewer", body="spec"),
    "POST /v1/jobs/plan": Entry("viewer", body="spec"),
    "POST /v1/jobs": Entry("member", 201, body="spec"),
    "POST /v1/jobs/batch": Entry("member", body="spec"),
    "POST /v1/experiments": Entry("member", 201, body="experiment"),
    "POST /v1/experiments/plan": Entry("viewer", body="experiment"),
    "GET /v1/experiments": Entry("viewer"),
    "GET /v1/experiments/{experiment}": Entry("viewer", elsewhere=404),
    "GET /v1/experiments/{experiment}/runs": Entry("viewer", elsewhere=404),
    "POST /v1/experiments/{experiment}/stop": Entry("member", elsewhere=404),
    "POST /v1/experiments/{experiment}/resume": Entry("member", elsewhere=404),
    "PATCH /v1/experiments/{experiment}": Entry("member", body={"at_once": 2}, elsewhere=404),
    "POST /v1/jobs/{job}/cancel": Entry("member", elsewhere=404),
    "POST /v1/jobs/{job}/pause": Entry("member", elsewhere=404),
    "POST /v1/jobs/{job}/resume": Entry("member", elsewhere=404),
    "POST /v1/jobs/{job}/save": Entry("member", 422, elsewhere=404),
    "POST /v1/jobs/{job}/finish": Entry("member", 422, elsewhere=404),
    "POST /v1/jobs/{job}/sample": Entry("member", 422, elsewhere=404),
    "PATCH /v1/jobs/{job}/labels": Entry("member", body={"labels": {"team": "a"}}, elsewhere=404),
    "POST /v1/jobs/{ended}/retry": Entry("member", 201, elsewhere=404),
    "GET /v1/jobs/{ended}/extension": Entry("viewer", 422, elsewhere=404, query="?steps=200"),  # it has no checkpoint
    "POST /v1/jobs/{job}/clone": Entry("member", 201, {"changes": {"seed": 7}}, elsewhere=404),
    "POST /v1/jobs/{job}/clone/plan": Entry("viewer", 200, {"changes": {"seed": 7}}, elsewhere=404),
    "POST /v1/jobs/{ended}/extend": Entry("member", 422, elsewhere=404, query="?steps=200"),
    "DELETE /v1/jobs/{job}": Entry("member", 422, elsewhere=404),  # it has not ended
    "GET /v1/jobs/{ended}/removal": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/checkpoints": Entry("viewer", elsewhere=404),
    "GET /v1/jobs/{job}/checkpoints/{step}": Entry("viewer", 404),  # there is none
    "PUT /v1/jobs/{job}/checkpoints/{step}/pin": Entry("member", 404),  # there is none
    "DELETE /v1/jobs/{job}/checkpoints/{step}/pin": Entry("member", 404),  # there is none
    "GET /v1/storage": Entry("viewer"),
    "POST /v1/bases": Entry("member", 201, body="base"),
    "GET /v1/bases": Entry("viewer"),
    "GET /v1/bases/{base}": Entry("viewer", elsewhere=404),
    "DELETE /v1/bases/{base}": Entry("member", 204),
    "POST /v1/blobs/missing": Entry("member", body={"files": [{"sha256": "0" * 64, "bytes": 1}]}),
    "GET /v1/datasets": Entry("viewer"),
    "POST /v1/datasets/{dataset}/versions": Entry("member", 201, body="set", elsewhere=422),  # its file is not there
    "GET /v1/datasets/{dataset}": Entry("viewer", elsewhere=404),
    "GET /v1/datasets/{dataset}/removal": Entry("viewer", 422, elsewhere=404),  # a job that names it has not ended
    "DELETE /v1/datasets/{dataset}": Entry("member", 422, elsewhere=404),
    "GET /v1/datasets/{dataset}/{version}": Entry("viewer", elsewhere=404),
    "GET /v1/datasets/{dataset}/{version}/files": Entry("viewer", elsewhere=404),
    "GET /v1/datasets/{dataset}/{version}/thumbnails/{sha256}": Entry("viewer", 404),  # it was not checked
    "GET /v1/datasets/{dataset}/{version}/removal": Entry("viewer", 422, elsewhere=404),
    "DELETE /v1/datasets/{dataset}/{version}": Entry("member", 422, elsewhere=404),
    "POST /v1/keys": Entry("admin", 201, body={"name": "a"}),
    "GET /v1/keys": Entry("admin"),
    "DELETE /v1/keys/{key}": Entry("admin", 204, elsewhere=404),
    "POST /v1/sign-in-codes": Entry("viewer", 201),
    "PUT /v1/secrets/{secret}": Entry("member", body={"value": "hf_abcdefgh"}),
    "GET /v1/secrets": Entry("viewer"),
    "DELETE /v1/secrets/{secret}": Entry("member", 204),
    "POST /v1/notices/endpoints": Entry("member", 201, body={"address": "https://hooks.example/"}),
    "GET /v1/notices/endpoints": Entry("viewer"),
    "GET /v1/notices/endpoints/{endpoint}": Entry("viewer", elsewhere=404),
    "PATCH /v1/notices/endpoints/{endpoint}": Entry("member", body={"quiet": ""}, elsewhere=404),
    "DELETE /v1/notices/endpoints/{endpoint}": Entry("member", 204),
    "POST /v1/notices/endpoints/{endpoint}/rotate": Entry("member", elsewhere=404),
    "POST /v1/notices/endpoints/{endpoint}/test": Entry("member", elsewhere=404),
    "GET /v1/notices/endpoints/{endpoint}/log": Entry("viewer", elsewhere=404),
    "POST /v1/notices/endpoints/{endpoint}/replay": Entry("member", body={"after": 0}, elsewhere=404),
    "POST /v1/projects": Entry("operator", 201, body={"project": "new"}),
    "GET /v1/projects": Entry("operator"),
    "PUT /v1/projects/{project}": Entry("operator", body={}),
    "POST /v1/join-tokens": Entry("operator", 201, body={"name": "a"}),
    "GET /v1/join-tokens": Entry("operator"),
    "DELETE /v1/join-tokens/{join_token}": Entry("operator", 204),
    "GET /v1/jobs/{job}/offers": Entry("viewer", elsewhere=404),
    "GET /v1/pools": Entry("operator"),
    "POST /v1/pools": Entry("operator", 201, body={"name": "more", "driver": "shop"}),
    "GET /v1/pools/{pool}": Entry("operator"),
    "PATCH /v1/pools/{pool}": Entry("operator", body={"nodes_max": 2}),
    "POST /v1/pools/{pool}/pause": Entry("operator"),
    "POST /v1/pools/{pool}/resume": Entry("operator"),
    "POST /v1/pools/{pool}/sync": Entry("operator"),
    "GET /v1/pools/{pool}/instances": Entry("operator"),
    "DELETE /v1/pools/{pool}": Entry("operator"),
    "GET /v1/pool-drivers": Entry("operator"),
    "POST /v1/nodes": Entry("join", 201, body={"machine": "m", "name": "n"}),
    "DELETE /v1/nodes/self": Entry("node", 204),
    "POST /v1/nodes/self/notice": Entry("node", 204, body={"because": "b"}),
    "POST /v1/claims": Entry("node"),
    "POST /v1/attempts/{attempt}/heartbeats": Entry("node", body={"phase": "training", "step": 1}),
    "POST /v1/attempts/{attempt}/uploads": Entry("node", body={"folder": "output", "files": FILES}),
    "POST /v1/attempts/{attempt}/beginnings": Entry("node", body={"step": 1, "files": BEGINNINGS}),
    "POST /v1/attempts/{attempt}/downloads": Entry("node", body="downloads"),
    "POST /v1/attempts/{attempt}/checkpoints": Entry("node", 422, body={"manifest": {}}),  # it is none
    "POST /v1/attempts/{attempt}/samples": Entry("node", 422, body={"step": 1, "files": FILES}),  # they are not there
    "POST /v1/attempts/{attempt}/rejections": Entry("node", body={"checkpoint": "c", "because": "b"}),
    "POST /v1/attempts/{attempt}/prepared": Entry("node", 422, body={"manifest": {}}),  # it is none
    "POST /v1/attempts/{attempt}/logs": Entry("node", body={"first_byte": 0, "text": "t"}),
    "POST /v1/attempts/{attempt}/metrics": Entry("node", body={"points": [{"step": 1, "values": {"loss": 0.5}}]}),
    "POST /v1/attempts/{attempt}/end": Entry("node", body={"outcome": "released"}),
}


def routes(found: list[BaseRoute]) -> Iterator[str]:
    """Method and path of each, those of included routers too."""
    for route in found:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from routes(included.routes)
        else:
            methods, path = getattr(route, "methods", {"ANY"}), getattr(route, "path", "?")
            yield from (f"{method} {path}" for method in sorted(methods or ()) if method != "HEAD")


def as_in_the_table(name: str) -> str:
    """A stream is of a job that has ended, so that it ends too."""
    name = name.replace("{key:path}", "{key}").replace("{job}/retry", "{ended}/retry")
    for last in ("removal", "extension", "extend"):
        name = name.replace(f"{{job}}/{last}", f"{{ended}}/{last}")
    return name.replace("{job}", "{ended}") if name.endswith("/stream") else name


def test_every_route_is_in_the_table_of_who_may_use_it(service: Service) -> None:
    app: Any = service.http.app
    assert sorted(as_in_the_table(name) for name in routes(app.routes)) == sorted(ROUTES)


@dataclass
class House:
    """A project with jobs, and one caller of each kind."""

    service: Service
    callers: dict[str, tuple[str, str]] = field(default_factory=dict)  # what they are called: their role, their secret
    ids: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        service = self.service
        service.add_project(OTHER)
        joined = {name: service.join_with(JOIN, name).json() for name in ("node", "another node")}
        running = service.submit(priority=1)
        hold = service.claim(joined["node"]["node"]).hold
        job, ended = service.submit(), service.submit()
        ours = {"name": "ours", "base": asdict(service.spec().base)}
        assert service.ask("POST", "/v1/bases", json=ours).status_code == 201
        assert service.ask("POST", "/v1/pools", json={"name": "rented", "driver": "shop"}).status_code == 201
        service.ask("PUT", "/v1/secrets/HF_TOKEN", json={"value": "hf_abcdefgh"})
        file = service.upload(b"of ours alone", "a.png")
        files = {"files": [asdict(file)]}
        assert service.ask("POST", "/v1/datasets/ours/versions", json=files).status_code == 201
        service.execute("UPDATE dataset_version SET state = 'ready'")
        named = {"base": "ours", "photos": "ours", "prompt": "sks dog"}
        of_set = _made(service.ask("POST", "/v1/jobs", json=named))["summary"]["id"]
        service.ask("POST", f"/v1/jobs/{of_set}/pause")
        service.ask("POST", f"/v1/jobs/{job}/pause")
        service.ask("POST", f"/v1/jobs/{ended}/cancel")
        endpoint = {"name": "ours", "address": "https://hooks.example/"}
        assert service.ask("POST", "/v1/notices/endpoints", json=endpoint).status_code == 201
        revoked, expired = service.make_key("operator"), service.make_key("operator", lasts_s=1)
        service.ask("DELETE", f"/v1/keys/{revoked['key']['id']}")
        service.wait(1)
        self.callers = {
            "nobody": ("none", ""),
            "garbage": ("none", "gl_operator_garbage"),
            "with a revoked key": ("none", revoked["secret"]),
            "with an expired key": ("none", expired["secret"]),
            "another project's admin": ("admin", service.key("admin", OTHER)),
            "another node": ("node", joined["another node"]["token"]),
            "who may join": ("join", JOIN),
            "node": ("node", joined["node"]["token"]),
        } | {role: (role, service.key(role)) for role in KEY_ROLES}
        experiment = {"spec": to_json(service.spec()), "vary": {"rank": [4, 8]}}
        made = _made(service.ask("POST", "/v1/experiments", json=experiment))["id"]
        for run in service.ask("GET", f"/v1/experiments/{made}/runs").json():
            service.ask("POST", f"/v1/jobs/{run['job']}/pause")
        self.hold = f"?fencing={hold.fencing}"
        self.ids = {
            "key": service.make_key("viewer")["key"]["id"],
            "join_token": service.join_token()["join_token"]["id"],
            "threshold": "th-none",
            "project": PROJECT,
            "job": job,
            "ended": ended,
            "attempt": hold.attempt,
            "base": "ours",
            "dataset": "ours",
            "version": "1",
            "sha256": file.sha256,
            "pool": "rented",
            "node": joined["another node"]["node"],
            "step": "10",
            "secret": "HF_TOKEN",
            "endpoint": "ours",
            "experiment": made,
            "name": "gangline-0.0.1-py3-none-any.whl",
        }
        self.bodies = {
            "spec": {"spec": to_json(service.spec())},
            "experiment": experiment,
            "base": {"name": "mine", "base": asdict(service.spec().base)},
            "set": files,
            "downloads": {"keys": [blob_key(PROJECT, service.photo.sha256)]},
        }
        assert service.state(running) == "running"

    def expected(self, entry: Entry, name: str, caller: str) -> int:
        role = self.callers[caller][0]
        if entry.needs in ("anybody", "signature"):
            return entry.status
        if role == "none":
            return 401
        if not permits(role, entry.needs):  # type: ignore[arg-type]
            return 403
        if caller == "another node" and "{attempt}" in name:
            return 409
        return entry.elsewhere or entry.status if caller == "another project's admin" else entry.status


@pytest.mark.parametrize("name", ROUTES)
def test_each_caller_is_answered_as_the_table_says(service: Service, name: str) -> None:
    house, entry = House(service), ROUTES[name]
    method, path = name.split()
    path = path.format(**house.ids) + (entry.query or (house.hold if "{attempt}" in name else ""))
    body = house.bodies.get(entry.body, entry.body) if isinstance(entry.body, str) else entry.body
    answered = {caller: service.ask(method, path, secret, json=body) for caller, (_, secret) in house.callers.items()}
    wanted = {caller: house.expected(entry, name, caller) for caller in house.callers}
    assert {caller: answer.status_code for caller, answer in answered.items()} == wanted
    for answer in answered.values():
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json" and answer.json()["detail"]


@pytest.mark.parametrize(
    ("caller", "code", "says"),
    [
        ("nobody", "denied", "a key is needed, and none was given"),
        ("garbage", "denied", "this server does not know the key"),
        ("with a revoked key", "denied", "this key was revoked"),
        ("with an expired key", "denied", "this key has expired"),
        ("viewer", "forbidden", "this needs an operator's key, and a viewer's key was given"),
        ("node", "forbidden", "this needs an operator's key, and a node's token was given"),
        ("who may join", "forbidden", "this needs an operator's key, and a join token was given"),
    ],
)
def test_a_refusal_says_what_is_needed_and_what_was_given(service: Service, caller: str, code: str, says: str) -> None:
    answer = service.ask("GET", "/v1/projects", House(service).callers[caller][1])
    found = problem(answer, 401 if code == "denied" else 403, code)
    assert found["detail"] == says and found["hint"]
