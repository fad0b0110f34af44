"""Pictures of a job while it trains, for real: by another node, or by the one that trains."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from gangline.cli.admin.box import Box
from gangline.cli.main import app
from gangline.compose.access import read_access
from gangline.core.runs.contract import PICTURES
from tests.conftest import SUBJECT, file_at
from tests.e2e.test_death import SETTINGS, digest_of, has_ended, submit, until
from tests.train.conftest import finish, lay_out, report_of, small_spec

EVERY = 20
SHOWN = re.compile(r"samples/step-(\d{6})/prompt-\d\d-seed-\d+\.png")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """Leases long enough for two trainers that load their libraries on one core."""
    with Box(tmp_path / "box", lease_s=20, heartbeat_interval_s=0.5) as made:
        yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the same job, by the trainer alone, without any pictures of its steps."""
    photos = tuple(file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("*.png")))
    run = lay_out(tmp_path_factory.mktemp("expected") / "run", small_spec(**(SETTINGS | {"photos": photos})))
    return report_of(finish(run))["weights_digest"]


def steps_shown(box: Box, job: str) -> list[int]:
    found = (SHOWN.fullmatch(artifact.path) for artifact in box.client.artifacts.list(job))
    return sorted({int(match[1]) for match in found if match})


def has_pictures(box: Box, job: str) -> bool:
    return bool(steps_shown(box, job))


def test_one_node_renders_between_its_steps_and_ends_with_the_same_bits(
    box: Box, tmp_path: Path, expected: str
) -> None:
    box.start_node("node-a")
    job = submit(box, sample_every_steps=EVERY)
    until(box, job, lambda found: has_pictures(box, job) and found.summary.ended_ms is None)
    ended = until(box, job, has_ended)
    assert [each.because for each in ended.attempts if each.state != "succeeded"] == []
    assert len(ended.attempts) == 1 and ended.samples.cost_usd == 0
    shown = steps_shown(box, job)
    assert shown and (ended.samples.pictures, ended.samples.waiting) == (len(shown), 1)
    assert digest_of(box, job, tmp_path / "results") == expected
    grid = asked_for(box, job, tmp_path / "pictures")
    after = box.client.jobs.get(job)
    assert (after.summary, after.samples.pictures, after.samples.waiting) == (ended.summary, len(shown) + 2, 0)
    assert grid.width > 256 * (len(shown) + 1), "the base, each step, the end"
    for step in shown:
        told = json.loads((tmp_path / "pictures" / "samples" / f"step-{step:06d}" / PICTURES).read_text())
        assert told["step"] == step and told["pictures"][0]["prompt"] == SETTINGS["prompt"]


def asked_for(box: Box, job: str, folder: Path) -> Image.Image:
    """As a user asks: `gangline samples JOB --wait --to FOLDER`."""
    access = read_access(box.home / "server")
    assert access is not None
    options = ["--wait", "--to", str(folder), "--server", box.url, "--token", access.operator_key]
    answer = CliRunner().invoke(app, ["samples", job, *options])
    assert answer.exit_code == 0, answer.output
    return Image.open(folder / "grid.png")


@pytest.mark.tenths
def test_another_node_renders_while_training_goes_on(box: Box) -> None:
    box.start_node("node-a")
    box.start_node("node-b")
    job = submit(box, steps=100_000, sample_every_steps=EVERY)
    shown = until(box, job, lambda found: found.samples.pictures > 0)
    assert shown.summary.state == "running" and has_pictures(box, job)
    assert len(shown.attempts) == 1, "nobody took the training away"
    rendered = [event.because for event in box.client.events.list(job) if event.kind == "rendered"]
    assert rendered[0].endswith("by node-b") or rendered[0].endswith("by node-a")
    box.client.jobs.cancel(job)


@pytest.mark.tenths
def test_a_job_succeeds_while_pictures_of_it_are_still_to_come(box: Box, tmp_path: Path, expected: str) -> None:
    """They are of its last steps: whoever renders them has not even loaded the base when training ends."""
    box.start_node("node-a")
    box.start_node("node-b")
    job = submit(box, sample_every_steps=SETTINGS["steps"] - 5)
    ended = until(box, job, has_ended)
    assert (ended.summary.state, ended.samples.pictures, ended.samples.waiting) == ("succeeded", 0, 2)
    after = until(box, job, lambda found: found.samples.waiting == 0)
    assert (after.summary, after.samples.pictures) == (ended.summary, 3) and has_pictures(box, job)
    assert digest_of(box, job, tmp_path / "results") == expected
