"""A model from nothing, for real: a data set handed in, a node that dies, the same bits as without, and pictures of the result."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from diffusers import StableDiffusionPipeline

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.adapters.pools.local import WORKER, LocalNode, start_node
from gangline.cli.admin.box import Box
from gangline.cli.jobs.scratch import plan_scratch
from gangline.core.views import JobView
from gangline.data.dataset import DataSet
from tests.data.made import place_in
from tests.e2e.test_death import has_ended, is_safe_and_further, until
from tests.train.bases import save_tiny
from tests.train.sets import data_set

SHOWN_EVERY = 20
SETTINGS: dict[str, Any] = {
    "kind": "scratch",
    "new": ["unet"],
    "phases": [{"steps": 60, "resolution": 32, "batch_size": 4}],
    "learning_rate": 1e-3,
    "ema_decay": 0.9,
    "held_out": "sha256 < '4'",
    "held_out_rows": 8,
    "checkpoint_every_steps": 10,
    "sample_prompts": ["a red disc"],
    "sample_steps": 2,
    "sample_seeds": [1],
}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=3.0, heartbeat_interval_s=0.3) as made:
        yield made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


def submit(box: Box, data: DataSet, base: Path, **changes: Any) -> str:
    plan = plan_scratch(SETTINGS | {"data": [data.place.uri], "base": str(base)} | changes)
    return box.client.jobs.submit(plan.upload(box.client)).summary.id


def results(box: Box, job: str, folder: Path) -> Path:
    for artifact in box.client.artifacts.list(job):
        box.client.files.download(artifact, folder)
    return folder


def has_shown_what_is_safe(job: JobView) -> bool:
    """Pictures of a step that a node was asked for with its commit go with that node where it dies before it has rendered them."""
    return job.samples.pictures == job.summary.committed_step // SHOWN_EVERY > 0


def start(box: Box, name: str, *, slots: int) -> LocalNode:
    command = (*WORKER, "--slots", str(slots))
    node = start_node(name=name, home=box.home / name, server=box.url, join_token=box.join_token, command=command)
    box.nodes[name] = node
    return node


@pytest.mark.tenths
@pytest.mark.timeout(600)
@pytest.mark.parametrize("slots", [1, 2])
def test_a_node_that_dies_changes_no_bit_of_the_model_and_its_result_is_shown(
    box: Box, data: DataSet, base: Path, tmp_path: Path, slots: int
) -> None:
    first = start(box, "node-a", slots=slots)
    undisturbed = until(box, submit(box, data, base, needs={"slots": slots}), has_ended)
    job = submit(box, data, base, needs={"slots": slots}, sample_every_steps=SHOWN_EVERY)
    until(box, job, lambda found: is_safe_and_further(2)(found) and has_shown_what_is_safe(found))
    first.kill()
    start(box, "node-b", slots=slots)
    ended = until(box, job, has_ended)
    assert [attempt.state for attempt in ended.attempts] == ["interrupted", "succeeded"]
    assert ended.attempts[1].from_step > 0
    until(box, job, lambda found: found.samples.pictures == 3)
    one, other = (results(box, each, tmp_path / each) for each in (undisturbed.summary.id, job))
    reports = [json.loads((folder / "report.json").read_text()) for folder in (one, other)]
    assert reports[1]["exact"]
    assert reports[0]["weights_digest"] == reports[1]["weights_digest"]
    assert [measured["step"] for measured in reports[1]["held_out"]] == [0, 60]
    assert list((other / "samples").rglob("*.png"))
    StableDiffusionPipeline.from_pretrained(other)


@pytest.mark.tenths
@pytest.mark.timeout(300)
def test_a_node_reads_a_bucket_with_a_key_of_its_own_and_keeps_what_it_read(
    box: Box, bucket: S3Bucket, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_set(tmp_path, target=place_in(bucket, f"{tmp_path.name}/shapes.lance"))
    for key, value in (
        ("ACCESS_KEY_ID", bucket.credentials.access_key),
        ("SECRET_ACCESS_KEY", bucket.credentials.secret_key),
        ("ENDPOINT_URL", bucket.endpoint),
    ):
        monkeypatch.setenv(f"AWS_{key}", value)  # of who hands in
        monkeypatch.setenv(f"GANGLINE_DATA_{key}", value)  # of the node
    monkeypatch.setenv("GANGLINE_DATA_CACHE", str(tmp_path / "kept"))
    job = submit(box, data, base, phases=[{"steps": 12, "resolution": 32, "batch_size": 4}], sample_prompts=[])
    monkeypatch.setenv("GANGLINE_DATA_SECRET_ACCESS_KEY", "wrong")
    box.start_node("node-a")
    until(box, job, lambda found: len(found.attempts) > 0 and found.attempts[0].state == "failed")
    assert "an input could not be downloaded: s3://" in box.client.jobs.get(job).attempts[0].because
    box.nodes["node-a"].kill()
    monkeypatch.setenv("GANGLINE_DATA_SECRET_ACCESS_KEY", bucket.credentials.secret_key)
    box.start_node("node-b")
    assert until(box, job, has_ended).summary.state == "succeeded"
    assert list((tmp_path / "kept").glob("*.block"))
