"""A job of two subjects, from the command line through a server and two workers to its result: the first one is killed on the way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from gangline.cli.admin.box import Box
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_spec
from gangline.train.run.digest import tensors_digest
from tests.conftest import BASE, SUBJECT
from tests.e2e.test_death import LEASE_S, digest_of, has_ended, killed_at_random, until
from tests.train.conftest import finish, lay_out

RECIPE = f"""
base = "{BASE}"
resolution = 64
steps = 90
batch_size = 3
rank = 4
class_images = 3
class_sample_steps = 2
checkpoint_every_steps = 15
sample_steps = 2
sample_seeds = [1]
[[subjects]]
photos = "cat"
prompt = "sks cat"
class_prompt = "a cat"
repeats = 2
[[subjects]]
photos = "dog"
prompt = "zwx dog"
weight = 0.5
hold_out = ["1.png"]
"""


def folder_of_two(root: Path) -> Path:
    """Two folders with photos of equal names, and the recipe beside them."""
    pictures = iter(sorted(SUBJECT.glob("*.png")))
    for name in ("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png", "dog/2.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with Image.open(next(pictures)) as image:
            image.convert("RGB").save(root / name)
    (root / "two.toml").write_text(RECIPE)
    return root


@pytest.mark.tenths
def test_a_recipe_with_two_subjects_becomes_one_lora_though_its_node_is_killed(tmp_path: Path) -> None:
    photos = folder_of_two(tmp_path / "photos")
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as box:
        first = box.start_node("node-a")
        where = ["--server", box.url, "--token", box.client._http.token, "--detach"]
        command = [sys.executable, "-m", "gangline.cli.main", "train", "--recipe", str(photos / "two.toml"), *where]
        typed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert typed.returncode == 0, typed.stderr
        job = typed.stdout.strip()
        killed_at_random(box, job, first)
        box.start_node("node-b")
        ended = until(box, job, has_ended)
        assert [attempt.state for attempt in ended.attempts] == ["interrupted", "succeeded"]
        made = digest_of(box, job, tmp_path / "results")
        spec = parse_spec(ended.spec)
    assert isinstance(spec, LoraSpec)
    assert [file.path for file in spec.photos] == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/2.png"]
    assert ended.summary.name == "sks cat and 1 other subject"
    report = json.loads((tmp_path / "results" / "report.json").read_text())
    assert report["exact"] and [each["prompt"] for each in report["subjects"]] == ["sks cat", "zwx dog"]
    assert [each["photo"] for each in report["held_out"]] == ["dog/1.png"]
    alone = finish(lay_out(tmp_path / "alone", spec, photos=photos))
    assert made == tensors_digest(alone.output / DIFFUSERS_FILE)
