"""What one project has is nothing to another: not to be reached, changed, or told from what is not there."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.core.jobs.keys import attempt_prefix, blob_key, folder_prefix, log_key
from gangline.core.parsing import to_json
from tests.service.access.test_who_may_ask import FILES, ROUTES
from tests.service.conftest import JOIN, PROJECT, Service

OTHER = "other"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


BELONGINGS = {
    "project": "id",
    "job": "project",
    "blob": "project",
    "credential": "project",
    "ledger": "project",
    "attempt": "(SELECT project FROM job WHERE job.id = attempt.job)",
    "lease": "(SELECT project FROM attempt JOIN job ON job.id = attempt.job WHERE attempt.id = lease.attempt)",
    "event": "(SELECT project FROM job WHERE job.id = event.job)",
    "checkpoint": "(SELECT project FROM job WHERE job.id = checkpoint.job)",
    "artifact": "(SELECT project FROM job WHERE job.id = artifact.job)",
    "log_chunk": "(SELECT project FROM attempt JOIN job ON job.id = attempt.job WHERE attempt.id = log_chunk.attempt)",
}


@dataclass
class Neighbours:
    """Project `other` has everything that a project can have; the default project's admin and node are curious."""

    service: Service

    def __post_init__(self) -> None:
        service = self.service
        service.add_project(OTHER)
        member = service.key("member", OTHER)
        photo = b"a photo that only they have"
        service.objects.write(blob_key(OTHER, sha256(photo)), photo)
        service.ask("POST", "/v1/blobs", member, json={"sha256": sha256(photo), "bytes": len(photo)})
        job = service.submit(project=OTHER, prompt="their very own prompt")
        node = service.join_with(JOIN, "theirs").json()
        hold = service.claim(node["node"]).hold
        self._train(node["token"], hold.attempt, hold.fencing)
        another = service.submit(project=OTHER)
        live = service.claim(node["node"]).hold
        checkpoint = service.look("SELECT id FROM checkpoint")[0]["id"]
        theirs = service.make_key("viewer", OTHER)
        service.submit()
        curious = service.join_with(JOIN, "curious").json()
        own = service.claim(curious["node"]).hold
        self.fencings = [own.fencing, hold.fencing]
        self.callers = {"admin": service.key("admin"), "member": service.key("member"), "node": curious["token"]}
        self.attempts = [own.attempt, hold.attempt, live.attempt]
        self.ids = [job, hold.attempt, live.attempt, checkpoint, theirs["key"]["id"], OTHER, another]
        self.keys = [row["key"] for row in service.look("SELECT key FROM artifact UNION SELECT key FROM log_chunk")]
        self.keys += [blob_key(OTHER, sha256(photo)), blob_key(OTHER, service.photo.sha256)]
        self.photo = {"sha256": sha256(photo), "bytes": len(photo)}
        self.marks = [
            job,
            hold.attempt,
            live.attempt,
            checkpoint,
            theirs["key"]["id"],
            "their very own",
            "their log",
            *self.keys,
        ]

    def _train(self, token: str, attempt: str, fencing: int) -> None:
        """To the end: a checkpoint, a log, a result."""
        service = self.service
        service.wait(10)

        def post(what: str, body: Any) -> Any:
            answer = service.ask("POST", f"/v1/attempts/{attempt}/{what}?fencing={fencing}", token, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        manifest = service.manifest(50, spec_hash=service.look("SELECT spec_hash FROM job")[0]["spec_hash"])
        files = json.loads(json.dumps([asdict(file) for file in manifest.files]))
        for folder, step in (("checkpoints", 50), ("output", 0)):
            [grant] = post("uploads", {"folder": folder, "step": step, "files": files})["files"]
            [signed] = grant["parts"]
            assert service.http.put(signed["url"], content=b"weights", headers=signed["headers"]).status_code == 201
        post("checkpoints", {"manifest": json.loads(json.dumps(manifest.to_json()))})
        post("logs", {"first_byte": 0, "text": "their log"})
        post("end", {"outcome": "succeeded", "output": files})

    def belongings(self) -> dict[str, list[Any]]:
        return {
            table: self.service.look(f"SELECT * FROM {table} WHERE {whose} = '{OTHER}' ORDER BY 1, 2")
            for table, whose in BELONGINGS.items()
        }


ASKED = [
    name for name, entry in ROUTES.items() if entry.needs not in ("anybody", "operator", "join") and "self" not in name
]


def draw_request(draw: Callable[..., Any], house: Neighbours) -> tuple[str, str, Any, dict[str, str]]:
    """A route that the caller may use, with ids of the other project's in every place where an id can be."""
    name = draw(st.sampled_from(ASKED))
    method, path = name.split()
    of_theirs, keys = st.sampled_from(house.ids), st.sampled_from(house.keys)
    for place in re.findall(r"{(\w+)}", path := path.replace("{ended}", "{job}")):
        harmless = path.endswith(("downloads", "rejections"))
        values = {
            "attempt": st.sampled_from(house.attempts[0 if harmless else 1 :]),
            "job": of_theirs if path.endswith("stream") else st.just(house.ids[0]) | of_theirs,  # one's own goes on
            "key": keys if "objects" in path else st.just(house.ids[4]) | of_theirs,
        }
        path = path.replace(f"{{{place}}}", draw(values.get(place, of_theirs)), 1)
    params = {"fencing": draw(st.sampled_from(house.fencings)), "expires": 10**14, "signature": "0" * 64, "what": "1-a"}
    cursors = [{}, {"cursor": f"{10**15}.{house.ids[0]}"}, {"after": "0.0"}, {"after": "0"}]
    cursor = draw(st.sampled_from(cursors if method == "GET" else cursors[:1]))
    query = "&".join(f"{name}={value}" for name, value in (params | cursor).items())
    query = (
        ROUTES[name].query.removeprefix("?") or query
    )  # a stream without an end is asked for what comes after its end
    bodies: dict[str, Any] = {
        "downloads": {"keys": [draw(keys)]},
        "uploads": {"folder": "output", "files": FILES},
        "checkpoints": {"manifest": {}},
        "rejections": {"checkpoint": house.ids[3], "because": "curious"},
        "heartbeats": {"phase": "training", "step": 1},
        "logs": {"first_byte": 0, "text": "curious"},
        "end": {"outcome": "released"},
        "blobs": house.photo,
        "jobs": {"spec": to_json(house.service.spec())},
        "keys": {"name": "curious"},
    }
    headers = draw(st.sampled_from([{}, {"Gangline-Project": OTHER}]))
    caller = "node" if ROUTES[name].needs == "node" else draw(st.sampled_from(["admin", "member"]))
    bearer = {"Authorization": f"Bearer {house.callers[caller]}"}
    return method, f"{path}?{query}", bodies.get(path.rpartition("/")[2]), headers | bearer


def test_nothing_of_another_project_can_be_reached_or_told_from_what_is_not_there(service: Service) -> None:
    house = Neighbours(service)
    before = house.belongings()
    assert all(before.values()), "a table without a row proves nothing"

    @settings(max_examples=120, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        method, path, body, headers = draw_request(data.draw, house)
        answer = service.http.request(method, path, json=body, headers=headers)
        said = path + json.dumps(body)
        told = [mark for mark in house.marks if mark in answer.text and mark not in said]
        assert not told and house.belongings() == before, (method, path, body, answer.text)
        asked = json.dumps([path, body, headers])
        if asked != (asked_for_nothing := nameless(asked)):
            path, body, headers = json.loads(asked_for_nothing)
            unknown = service.http.request(method, path, json=body, headers=headers)
            assert (answer.status_code, nameless(answer.text)) == (unknown.status_code, nameless(unknown.text))

    def nameless(text: str) -> str:
        return re.sub(rf"\b({'|'.join(house.ids)})\b", "nothing", text)

    ask()


def test_that_another_project_has_a_photo_cannot_be_found_out_by_its_hash(service: Service) -> None:
    house = Neighbours(service)
    absent = {"sha256": "0" * 64, "bytes": house.photo["bytes"]}
    theirs, nobodys = (service.ask("POST", "/v1/blobs", json=blob).json() for blob in (house.photo, absent))
    assert theirs["present"] is nobodys["present"] is False
    assert f"projects/{PROJECT}/" in theirs["grant"]["parts"][0]["url"]


def test_every_object_lies_under_its_project(service: Service) -> None:
    Neighbours(service)
    root = service.objects._objects
    found = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    kinds = {re.sub(r"(?<=/)[\w.-]*\d[\w.-]*", "*", path) for path in found}
    assert kinds >= {"projects/other/blobs/*", "projects/default/blobs/*"}
    assert all(path.startswith((f"projects/{PROJECT}/", f"projects/{OTHER}/")) for path in found)
    attempt = attempt_prefix("p", "j", "a")
    for made in (blob_key("p", "s"), folder_prefix(attempt, "output", 0), log_key(attempt, 0)):
        assert made.startswith("projects/p/")
