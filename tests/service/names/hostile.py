"""A server and a folder full of what should never have come in: rows written below the door, and files of such names."""

import hashlib
import io
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from gangline.ports.server import Beat, Failed, Hold, Log, Point, Points
from gangline.ports.store import write
from gangline.service.content import bases
from gangline.service.content.bases import BaseStatement
from gangline.service.facts import number_facts
from gangline.service.fleet.fleet import tend
from gangline.service.jobs import metrics, renew
from gangline.service.jobs.finish import finish
from gangline.service.outage import take_turn
from tests.conftest import BASE
from tests.service.conftest import PROJECT, Service

MARK = "[sks]"
FORGED = "forged"
"""Begins a line where the line break in a name is written as it is."""
TYPED = (
    f"[/b] {MARK} [link=http://x.invalid]l[/link] :dog: "
    f"\x1b]8;;http://x.invalid\x1b\\l\x1b[2J\x07\x9b31m\u202e\u2066\u2028\r\n{FORGED}\t\udcff"
)
"""What a command line may hold: no NUL, and bytes that are no UTF-8."""
STORED = TYPED.replace("\udcff", "") + "\x00\x1b]0;owned\x07" + "long " * 2000
FILE = f"{MARK} [b] \x1b[2J\x9b31m\u202e\n{FORGED} \udcff"
TAKEN = f"{MARK} [b] \x9b31m\u202e"
"""A name of a file that may be handed in."""
PATHS = (
    f"{MARK} [b] \x1b[2J\u202e\n{FORGED}.png",
    f"samples/{MARK} [b] \x9b2J\u202e.png",
    "samples/step-000001/prompt-00-seed-1.png",
)
LOG = f"\x1b[31mloss\x1b[0m {STORED}\n\x1b]0;ow"

BELOW_THE_DOOR = (
    "UPDATE job SET name = :text, because = :text, gpu = :text, pool = :text, spec = replace(spec, 'sks dog', :json)",
    "UPDATE job SET state = 'failed', ended_ms = :now WHERE id = :failed",
    "UPDATE node SET name = :text, because = :text, gpu = :text, pool = :text",
    "UPDATE attempt SET because = :text, gpu = :text, pool = :text",
    "UPDATE machine SET because = :text",
    "UPDATE lease SET stop = :text, phase = phase || :text",
    "UPDATE event SET because = :text, kind = kind || :text",
    "UPDATE credential SET name = :text",
    "UPDATE credential SET pool = :text WHERE pool IS NOT NULL AND revoked_ms IS NULL",
    "INSERT INTO label (job, key, value, project, submitted_ms) SELECT id, 'team', :text, project, submitted_ms FROM job",
    "UPDATE base SET family = :text, prediction_type = :text, licence = :text, because = :text",
    "UPDATE base SET name = :text WHERE name = 'other'",
    "UPDATE secret SET name = :text WHERE name = 'OTHER'",
    "UPDATE dataset SET name = :text WHERE name = 'other'",
    "UPDATE dataset_version SET state = 'refused', because = :text, findings = replace(:findings, 'note', :json)",
    "UPDATE dataset_file SET path = :text",
    "UPDATE endpoint SET name = :text, shown = :text, because = :text, made_by = :text",
    "UPDATE notice SET because = :text",
    "UPDATE mirror SET because = :text",
    "UPDATE tracked SET tracker = tracker || :text, because = :text",
    "UPDATE metric SET points = replace(points, 'own', :json)",
    "UPDATE checkpoint SET because = :text",
    "UPDATE experiment SET name = :text, because = :text",
    "UPDATE experiment_run SET settings = replace(settings, 'sks dog', :json)",
    "UPDATE pool SET driver = :text, provider = :text, secret = :text, offers = replace(offers, 'small', :json), "
    "settings = replace(settings, 'Ulm', :json) WHERE name = 'hostile'",
    "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) SELECT node, id, "
    "'training', :now, :now + 1000, job, 'default', 100 FROM attempt",
    "INSERT INTO project (id, share, usage, usage_ms, spent, reserved) VALUES (:text, 1, 0, 0, 0, 0)",
)


def fill(service: Service, folder: Path) -> dict[str, str]:
    """Make a job in each state, what belongs to it, and files; then replace every text that a row holds. The words of the table
    `commands.py`, by their names."""
    words = _jobs(service) | _others(service) | {"node": service.store.load("nodes")[0]["id"]}
    take_turn(service.deployment, service.now_ms)
    number_facts(service.deployment, service.now_ms)
    with closing(sqlite3.connect(service.database)) as rows, rows:
        texts = {
            "text": STORED,
            "json": json.dumps(STORED[:500])[1:-1],
            "failed": words["failed"],
            "findings": FINDINGS,
            "now": service.now_ms,
        }
        for sql in BELOW_THE_DOOR:
            rows.execute(sql, texts)
    return words | _files(folder)


def _jobs(service: Service) -> dict[str, str]:
    jobs = {"failed": service.submit()}
    node = service.join()
    hold = _work(service, node, jobs["failed"])
    _show(service, hold, jobs["failed"])
    finish(service.deployment, node, hold, Failed(kind="crashed", because="it"), service.now_ms)
    jobs["running"] = service.submit()
    _work(service, service.join("node-b"), jobs["running"])
    return jobs | {name: service.submit() for name in ("queued", "paused", "unwanted")}


def _work(service: Service, node: str, job: str) -> Hold:
    hold, deployment = service.claim(node).hold, service.deployment
    renew.renew(deployment, node, hold, Beat(phase="training", step=1, loss=0.5), service.now_ms)
    renew.append_log(deployment, node, hold, Log(first_byte=0, text=LOG), service.now_ms)
    points = Points(points=(Point(step=1, values={"loss": 0.5, "own": 1.0}),))
    metrics.take(deployment, node, hold, points, service.now_ms)
    service.store.apply(write("begin_tracking", job=job, tracker="t"))
    return hold


def _show(service: Service, hold: Hold, job: str) -> None:
    """Artifacts, a picture that says of itself what it shows among them."""
    told, file = PngInfo(), io.BytesIO()
    for name, value in {"prompt": STORED, "seed": "1", "step": "1"}.items():
        told.add_text(name, value)
    Image.new("RGB", (8, 8)).save(file, "PNG", pnginfo=told)
    content = file.getvalue()
    kept = {"step": 1, "verified": 1, "bytes": 2000, "prefix": "checkpoint", "manifest": "{}", "now": service.now_ms}
    service.store.apply(write("add_checkpoint", id="checkpoint-1", job=job, attempt=hold.attempt, **kept))
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "now": service.now_ms}
    for number, path in enumerate(PATHS):
        key = f"artifact-{number}"
        service.objects.write(key, content)
        service.store.apply(write("add_artifact", job=job, path=path, attempt=hold.attempt, key=key, **facts))


def _others(service: Service) -> dict[str, str]:
    for name in ("rented", "leaving", "hostile"):
        body = {"name": name, "driver": "shop", "nodes_max": 0, "offers": ["small"], "settings": {"town": "Ulm"}}
        assert service.ask("POST", "/v1/pools", json=body).status_code == 201
    tend(service.deployment, service.now_ms)
    file = service.upload(b"weights", f"{TAKEN}.safetensors")
    for name in ("plain", "other", "stays"):
        bases.add(
            service.deployment,
            PROJECT,
            name,
            FilesBase(files=(file,)),
            None,
            BaseStatement(because="it"),
            service.now_ms,
        )
    photo = {"files": [{"path": "a.png", "sha256": file.sha256, "bytes": file.bytes}]}
    for name in ("hostile", "other"):
        assert service.ask("POST", f"/v1/datasets/{name}/versions", json=photo).status_code == 201
    endpoint = {"name": "hooks", "address": "https://hooks.example/", "kinds": ["submitted", "failed"]}
    made = service.ask("POST", "/v1/notices/endpoints", json=endpoint)
    assert made.status_code == 201, made.text
    service.wait(0)
    number_facts(service.deployment, service.now_ms)
    service.ask("PUT", "/v1/secrets/OTHER", json={"value": "a-secret-value"})
    key, token = service.make_key("member"), service.join_token()
    spec = to_json(service.spec(prompt="a photo"))
    body = {"name": "prompts", "spec": spec, "vary": {"prompt": ["sks dog", "sks cat"]}}
    experiment = service.ask("POST", "/v1/experiments", json=body)
    assert experiment.status_code == 201, experiment.text
    words = {"endpoint": made.json()["endpoint"]["id"], "experiment": experiment.json()["id"]}
    return words | {
        "key": key["key"]["id"],
        "join_token": token["join_token"]["id"],
        "project": service.add_project("other"),
    }


LIKE = {"first": "note", "second": "note", "distance": 0}
FINDINGS = json.dumps({"duplicates_count": 1, "duplicates": [LIKE], "notes": ["note"]})
CAPTION = STORED[:1500].replace("\x00", "")
TOML = json.dumps(TYPED.replace("\udcff", "\0"))
"""A text of TOML, which escapes as JSON does."""
LINE = json.dumps(TYPED.replace(FORGED, "").replace("\udcff", ""))
"""One whose lines are lines."""
FILES = {
    "lora.toml": f"prompt = {TOML}\nsteps = 1\n",
    "unknown.toml": f"{TOML} = 1\nsteps = {TOML}\n",
    "scratch.toml": f"kind = 'scratch'\ndata = [{TOML}]\nbase = {TOML}\n[[phases]]\nwhere = {TOML}\n",
    "outline.toml": f"""usd_per_gpu_hour = 2.0
[[phases]]
name = {TOML}
samples = 1000
gpus = [8, 16]
images_per_second = [100, 190]
[[phases]]
name = "plain"
samples = 1000
gpus = [8, 16]
images_per_second = [100, 190]
""",
    "scenario.toml": f"""title = {TOML}
says = {LINE}
[[machines]]
count = 1
seconds_per_step = 0.5
[[jobs]]
count = 1
steps = 10
project = {TOML}
""",
    "gangline.toml": f"[pools.{TOML}]\nprice_usd_per_hour = 1\n",
    "unknown/gangline.toml": f"[policy]\n{TOML} = {TOML}\n",
    "script.py": f"""import pathlib, sys
folder = pathlib.Path(sys.argv[1]) / "checkpoint-1"
folder.mkdir(parents=True, exist_ok=True)
(folder / "model.safetensors").write_bytes(b"weights")
(folder / {FILE!a}).write_bytes(b"state")
results = pathlib.Path("runs")
results.mkdir(exist_ok=True)
(results / {FILE!a}).write_bytes(b"picture")
""",
    "failing.py": f"import sys\nsys.stderr.buffer.write({STORED[:500].replace(FORGED, MARK).encode()!r})\nsys.exit(3)\n",
    "whole.toml": f"""kind = 'scratch'
[[phases]]
where = "width < 9999 and '{MARK}' <> '[/b]'"
steps = 1
resolution = 64
batch_size = 1
""",
    "spec.json": json.dumps({"kind": STORED}),
}


def _files(folder: Path) -> dict[str, str]:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for below, name in (("photos", TAKEN), ("refused", FILE)):
        (folder / below).mkdir()
        Image.new("RGB", (64, 64)).save(folder / below / f"{name}.png")
        (folder / below / f"{name}.txt").write_text(CAPTION)
    (folder / "refused" / f"{FILE}.jpg").write_text("no image")
    return {name.replace(".", "_").replace("/", "_"): str(folder / name) for name in FILES} | {
        "folder": str(folder),
        "photos": str(folder / "photos"),
        "refused": str(folder / "refused"),
        "base": str(BASE),
        "python": sys.executable,
        "typed": TYPED,
        "nowhere": str(folder / TYPED.replace("/", "")),
        "lance": str(folder / "sets" / f"{MARK} [b].lance"),
        "bidi": str(folder / "sets" / f"{TAKEN}.lance"),
        "unnameable": str(folder / f"{FILE}.lance"),
    }
