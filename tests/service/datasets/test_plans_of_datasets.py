"""`POST /v1/jobs/plan`: what the command line says of a job, for whoever has no files on a machine of their own."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gangline import Client
from gangline.core.jobs.keys import blob_key
from gangline.types import JobPlanView
from tests.conftest import Typed
from tests.hub import COMMIT, REPO
from tests.service.conftest import OPERATOR, PROJECT
from tests.service.datasets.conftest import Sets, named, picture
from tests.service.served import serving

GPU = "NVIDIA GeForce RTX 4090"
PHOTOS = {
    "10_sks dog/b.png": picture(2, (900, 600)),
    "a.png": picture(1, (24, 16)),
    "a.txt": b"a sks dog on a lawn",
    "c.png": picture(4, (2048, 2048)),
    "d.png": picture(5, (1200, 1200)),
    "masks/a.png": picture(3),
}
SETTINGS: dict[str, Any] = {"base": "known", "prompt": "a photo of sks dog", "photos": "timber@1", "steps": 300}


@pytest.fixture
def ready(sets: Sets) -> Sets:
    """A version of a data set, a base whose family is known, and a node."""
    sets.ready("timber", PHOTOS)
    base = asdict(sets.service.upload_base())
    sets.service.join(gpu=GPU, gpu_memory_gb=24)
    wanted = {"name": "known", "base": base, "family": "sdxl", "licence": "openrail++", "prediction_type": "epsilon"}
    sets.service.ask("DELETE", "/v1/bases/pony")
    assert sets.service.ask("POST", "/v1/bases", json=wanted).status_code == 201
    return sets


@pytest.fixture
def client(ready: Sets, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    with serving(ready.service.app) as at, Client(at.url, OPERATOR) as client:
        monkeypatch.setenv("GANGLINE_SERVER", at.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "client"))
        yield client


def planned(sets: Sets, **settings: Any) -> dict[str, Any]:
    answer = sets.service.ask("POST", "/v1/jobs/plan", json={"spec": SETTINGS | settings})
    assert answer.status_code == 200, answer.text
    return answer.json()


def rows(plan: dict[str, Any]) -> dict[str, str]:
    return {row["label"]: row["text"] for row in plan["rows"] if row["label"]}


def options(settings: dict[str, Any]) -> list[str]:
    words = {name: value for name, value in settings.items() if name != "photos"}
    return [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize(
    "more",
    [{}, {"batch_size": 8, "resolution": 512, "rank": 256}, {"class_prompt": "a photo of a dog", "class_images": 40}],
    ids=["few settings", "settings that deserve advice", "a class"],
)
def test_the_plan_of_a_version_is_the_one_that_the_command_line_makes(
    ready: Sets, client: Client, typed: Typed, more: dict[str, Any]
) -> None:
    settings = SETTINGS | more
    code, out, said = typed("train", "timber@1", *options(settings), "--plan", "-o", "json")
    assert code == 0, said
    plan = planned(ready, **more)
    assert plan == json.loads(out)
    shown = " ".join(said.split())
    assert [row for row in plan["rows"] if " ".join(f"{row['label']} {row['text']}".split()) not in shown] == []
    assert isinstance(client.jobs.plan(settings), JobPlanView)


def test_a_plan_says_what_is_known_of_photos_time_price_and_memory(ready: Sets) -> None:
    plan = planned(ready, held_out=["d.png"], batch_size=2)
    said = rows(plan)
    assert said["photos"] == "timber@1: 3 to train on, 1 held out"
    assert said["captions"] == "their own for 2 photos and the prompt for 1 photo"
    assert said["steps"] == "300 steps, batch size 2 (photos are seen 50 to 500 times)"
    assert "SDXL" in said["base"] and "licence openrail++" in said["base"]
    assert (plan["photos"], plan["trained_on"], plan["seen_least"], plan["seen_most"]) == (["timber@1"], 3, 50, 500)
    (card,) = plan["estimates"]
    assert card["gpu"] == "RTX 4090" and card["nodes"] == 1
    assert 0 < card["time"]["low_s"] < card["time"]["high_s"] and card["usd"]["low"] > 0
    assert card["memory"]["fits"] in ("yes", "perhaps") and [node["name"] for node in plan["nodes"]] == ["node-a"]
    small = next(tip for tip in plan["tips"] if tip["setting"] == "resolution")
    assert "a.png" in small["message"] and "c.png" not in small["message"], "their sizes are those of the check"


def test_a_plan_changes_nothing_and_reads_no_photo(ready: Sets) -> None:
    before, stored = planned(ready), ready.service.dump()
    photos = [named("x", content)["sha256"] for path, content in PHOTOS.items() if not path.startswith("masks/")]
    ready.service.objects.delete([blob_key(PROJECT, sha256) for sha256 in photos])
    assert planned(ready) == before and ready.service.dump() == stored


def test_the_plan_of_uploaded_files_knows_the_sizes_of_those_that_were_looked_at(ready: Sets) -> None:
    files = [named(path, PHOTOS[path]) for path in ("a.png", "c.png", "d.png")]
    plan = planned(
        ready, photos=[*files, named("never-seen.png", b"bytes")], captions=[named("a.txt", PHOTOS["a.txt"])]
    )
    assert rows(plan)["photos"] == "4 to train on" and plan["photos"] == []
    assert plan["captions"] == {"own": 1, "prompt": 3}
    small = next(tip for tip in plan["tips"] if tip["setting"] == "resolution")
    assert small["message"].startswith("replace a.png with"), "of a photo of unknown size nothing is advised"


def test_each_of_several_subjects_has_a_row(ready: Sets) -> None:
    photos = [
        named(f"{folder}/{n}.png", PHOTOS[n + ".png"]) for folder, n in (("dog", "a"), ("dog", "c"), ("cat", "d"))
    ]
    subjects = [
        {"folder": "dog", "prompt": "a photo of sks dog", "class_prompt": "a photo of a dog"},
        {"folder": "cat", "prompt": "a photo of xyz cat", "repeats": 2},
    ]
    value = {"base": "known", "photos": photos, "subjects": subjects, "steps": 100}
    answer = ready.service.ask("POST", "/v1/jobs/plan", json={"spec": value})
    assert answer.status_code == 200, answer.text
    said = rows(answer.json())
    assert said["subjects.0"].startswith("'a photo of sks dog': 2 photos in dog, each photo is seen 25 times")
    assert said["subjects.1"] == "'a photo of xyz cat': 1 photo in cat, each photo is seen 50 times"


def test_a_base_on_the_hub_is_known_by_the_list_or_by_its_authors_and_else_asked_later(ready: Sets) -> None:
    published = planned(ready, base="stabilityai/stable-diffusion-xl-base-1.0")
    assert published["base"]["family"] == "sdxl" and published["time"] is not None
    unlisted = planned(ready, base=f"{REPO}@{COMMIT}")
    assert "the hub is asked when the job is submitted" in rows(unlisted)["base"] and unlisted["time"] is None
    ready.service.execute(
        f"""UPDATE base SET base_id = 'hub:{REPO}@{COMMIT}', base = '{{"source":"hub","repo":"{REPO}","revision":"{COMMIT}"}}'"""
    )
    listed = planned(ready, base=f"{REPO}@{COMMIT}")
    assert rows(listed)["base"].startswith(f"{REPO} at {COMMIT} ({COMMIT[:10]}), SDXL") and listed["time"] is not None


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"rank": 0, "steps": 0}, {"rank", "steps"}),
        ({"needs": {"gpu_memory_gb": -1}}, {"needs.gpu_memory_gb"}),
        ({"stepps": 3}, {"stepps"}),
        ({"needs": {"slots": 2}}, {"needs.slots"}),
    ],
)
def test_a_wrong_setting_is_named(ready: Sets, settings: dict[str, Any], fields: set[str]) -> None:
    answer = ready.service.ask("POST", "/v1/jobs/plan", json={"spec": SETTINGS | settings})
    assert answer.status_code == 422
    assert {problem["field"] for problem in answer.json()["problems"]} == fields


def test_what_is_not_there_not_ready_or_no_lora_is_refused_with_a_sentence(ready: Sets) -> None:
    def refused(**settings: Any) -> tuple[int, str]:
        answer = ready.service.ask("POST", "/v1/jobs/plan", json={"spec": SETTINGS | settings})
        return answer.status_code, answer.json()["detail"]

    assert refused(photos="limber") == (404, "there is no data set limber")
    assert refused(base="nobody") == (404, "there is no base nobody")
    assert refused(held_out=["z.png"]) == (422, "held_out: z.png is not a photo of timber@1")
    assert refused(prediction_type="epsilon", zero_terminal_snr=True)[0] == 422
    ready.add("timber", {"z.png": picture(9)})
    assert refused(photos="timber@2") == (422, "timber@2 is not ready yet: 0 of 1 pictures are checked")
    command = {"kind": "command", "command": ["true"]}
    answer = ready.service.ask("POST", "/v1/jobs/plan", json={"spec": command})
    assert answer.status_code == 422 and "kind: jobs of kind command have no such plan" in answer.json()["detail"]


def test_a_viewer_plans_for_its_own_project_alone(ready: Sets) -> None:
    ready.service.add_project("other")
    asked = {"json": {"spec": SETTINGS}}
    assert ready.service.ask("POST", "/v1/jobs/plan", ready.service.key("viewer"), **asked).status_code == 200
    assert ready.service.ask("POST", "/v1/jobs/plan", ready.service.key("viewer", "other"), **asked).status_code == 404
