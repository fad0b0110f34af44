"""The main job for real: a server, workers and trainers as processes, and what happens when they die, freeze or are told to go."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gangline.adapters.host.trainer.enclosures import ROOM_TMP
from gangline.adapters.pools.local import LOG, WORKER, LocalNode, start_node
from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.views import JobView
from gangline.train.run.digest import tensors_digest
from tests.conftest import BASE, SUBJECT, file_at
from tests.train.conftest import finish, lay_out, small_spec

LEASE_S = 3.0
SETTINGS: dict[str, Any] = {
    "prompt": "sks cat face, fluent emoji",
    "steps": 90,
    "resolution": 64,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "rank": 4,
    "checkpoint_every_steps": 15,
    "sample_steps": 2,
    "sample_seeds": (1,),
}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as made:
        yield made


def submit(box: Box, **settings: Any) -> str:
    spec = upload_inputs(box.client, SUBJECT, str(BASE), [], SETTINGS | settings)
    return box.client.jobs.submit(spec).summary.id


def until(box: Box, job: str, condition: Callable[[JobView], bool]) -> JobView:
    """Look again and again, as a user would; pytest's time-out ends it."""
    while True:
        found = box.client.jobs.get(job)
        assert found.summary.state != "failed", (found.summary.because, box.client.logs.get(job).text)
        if condition(found):
            return found
        Event().wait(0.05)


def is_safe_and_further(steps: int) -> Callable[[JobView], bool]:
    return lambda job: job.summary.committed_step > 0 and job.summary.step >= job.summary.committed_step + steps


def has_ended(job: JobView) -> bool:
    return job.summary.ended_ms is not None


def trainers_below(home: Path) -> list[int]:
    """Processes at work in a run directory of this node; a zombie works no more."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(home / "runs"):
                found.append(int(process.name))
    return found


def below(folder: Path) -> list[Path]:
    """Return what lies in a folder at any depth; what goes while it is read is passed over, which `rglob` would raise of."""
    return [Path(of, name) for of, folders, files in os.walk(folder) for name in (*folders, *files)]


def left_of_runs(home: Path) -> list[Path]:
    """Return what lies below a node's runs. Left out is one room with what lies in its /tmp: an idle node has it for its next
    run."""
    runs = home / "runs"
    room = max(runs.glob("room-*"), key=lambda path: int(path.name.removeprefix("room-")), default=runs)
    return [path for path in below(runs) if path not in (room, room / ROOM_TMP) and room / ROOM_TMP not in path.parents]


def digest_of(box: Box, job: str, folder: Path) -> str:
    for artifact in box.client.artifacts.list(job):
        box.client.files.download(artifact, folder)
    return tensors_digest(folder / DIFFUSERS_FILE)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the same job, uninterrupted, by the trainer alone."""
    photos = tuple(file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("*.png")))
    run = lay_out(tmp_path_factory.mktemp("expected") / "run", small_spec(**(SETTINGS | {"photos": photos})))
    return tensors_digest(finish(run).output / DIFFUSERS_FILE)


def killed_at_random(box: Box, job: str, node: LocalNode) -> JobView:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    until(box, job, is_safe_and_further(random.Random(seed).randint(2, 12)))
    assert trainers_below(box.home / node.name)
    node.kill()
    while trainers_below(box.home / node.name):
        Event().wait(0.01)
    return box.client.jobs.get(job)


def test_a_job_whose_node_is_killed_ends_with_the_same_bits_on_another(box: Box, tmp_path: Path, expected: str) -> None:
    first = box.start_node("node-a")
    job = submit(box)
    at_death = killed_at_random(box, job, first)
    box.start_node("node-b")
    ended = until(box, job, has_ended)
    assert [(attempt.node_name, attempt.state) for attempt in ended.attempts] == [
        ("node-a", "interrupted"),
        ("node-b", "succeeded"),
    ]
    assert ended.attempts[1].from_step >= at_death.summary.committed_step > 0
    assert ended.steps_redone == at_death.summary.step - ended.attempts[1].from_step
    assert digest_of(box, job, tmp_path / "results") == expected


@pytest.mark.tenths
def test_a_job_that_is_extended_and_whose_node_is_killed_then_ends_with_the_bits_of_one_job_of_all_steps(
    box: Box, tmp_path: Path, expected: str
) -> None:
    first = box.start_node("node-a")
    old = submit(box, steps=60)
    until(box, old, has_ended)
    shown = box.client.jobs.extension(old, SETTINGS["steps"])
    assert 0 < shown.from_step < shown.reached_step == 60
    new = box.client.jobs.extend(old, SETTINGS["steps"]).summary.id
    until(box, new, lambda found: found.summary.committed_step > shown.from_step)
    first.kill()
    box.start_node("node-b")
    ended = until(box, new, has_ended)
    assert ended.attempts[0].from_step == shown.from_step and ended.summary.steps_done == "90/90"
    assert ended.attempts[-1].node_name == "node-b" and ended.attempts[-1].from_step > shown.from_step
    assert digest_of(box, new, tmp_path / "results") == expected


@pytest.mark.tenths
def test_a_checkpoint_that_was_damaged_in_the_store_is_rejected_and_the_one_before_is_used(
    box: Box, tmp_path: Path, expected: str
) -> None:
    first = box.start_node("node-a")
    job = submit(box)
    until(box, job, lambda found: found.summary.committed_step >= 30)
    first.kill()
    newest = box.client.jobs.get(job).summary.committed_step
    (weights,) = (box.home / "server" / "store" / "objects").rglob(
        f"checkpoints/{newest:06d}/weights-00000.safetensors"
    )
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    box.start_node("node-b")
    ended = until(box, job, has_ended)
    rejected = [event.because for event in box.client.events.list(job) if event.kind == "rejected"]
    assert len(rejected) == 1 and f"step {newest} is damaged" in rejected[0]
    assert 0 < ended.attempts[1].from_step < newest
    assert digest_of(box, job, tmp_path / "results") == expected


@pytest.mark.tenths
def test_a_node_that_froze_past_its_lease_and_wakes_changes_nothing(box: Box, tmp_path: Path, expected: str) -> None:
    frozen = box.start_node("node-a")
    job = submit(box)
    until(box, job, is_safe_and_further(3))
    asleep = [frozen.process.pid, *trainers_below(box.home / "node-a")]
    assert len(asleep) == 2
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    box.start_node("node-b")
    ended = until(box, job, has_ended)
    facts = (ended, list(box.client.events.list(job)), box.client.logs.get(job))
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    log = box.home / "node-a" / "worker.log"
    while "the lease is lost" not in log.read_text() and "no longer knows this node" not in log.read_text():
        Event().wait(0.05)
    while trainers_below(box.home / "node-a"):
        Event().wait(0.05)
    assert left_of_runs(box.home / "node-a") == []
    assert (box.client.jobs.get(job), list(box.client.events.list(job)), box.client.logs.get(job)) == facts
    assert [attempt.state for attempt in ended.attempts] == ["interrupted", "succeeded"]
    assert digest_of(box, job, tmp_path / "results") == expected


@pytest.mark.tenths
def test_a_node_that_is_told_to_stop_loses_no_step(box: Box, tmp_path: Path, expected: str) -> None:
    first = box.start_node("node-a")
    job = submit(box, checkpoint_every_steps=None)
    until(box, job, lambda found: found.summary.step >= 10)
    first.process.terminate()
    assert first.process.wait(60) == 0
    handed_back = box.client.jobs.get(job)
    assert handed_back.summary.state == "queued" and handed_back.attempts[0].state == "released"
    assert handed_back.summary.committed_step >= handed_back.attempts[0].step >= 10
    box.start_node("node-b")
    ended = until(box, job, has_ended)
    assert ended.steps_redone == 0
    assert digest_of(box, job, tmp_path / "results") == expected


@pytest.mark.tenths
def test_a_node_whose_provider_gives_notice_hands_its_job_back_and_says_why(box: Box, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    command = (*WORKER, "--notice", str(notice))
    node = box.nodes["node-a"] = start_node(
        name="node-a", home=box.home / "node-a", server=box.url, join_token=box.join_token, command=command
    )
    job = submit(box, steps=100_000, checkpoint_every_steps=None)
    until(box, job, lambda found: found.summary.step >= 5)
    notice.touch()
    assert node.process.wait(60) == 0
    handed_back = box.client.jobs.get(job)
    assert handed_back.summary.state == "queued" and handed_back.attempts[0].state == "released"
    assert handed_back.summary.committed_step >= handed_back.attempts[0].step >= 5
    assert f"{notice} has appeared; saving, and handing back all jobs" in (
        node_log := (box.home / "node-a" / LOG).read_text()
    )
    assert "could not be informed" not in node_log


def test_a_canceled_job_leaves_no_process_and_no_photo_on_its_node(box: Box) -> None:
    box.start_node("node-a")
    job = submit(box, steps=100_000)
    until(box, job, lambda found: found.summary.step > 0)
    assert box.client.jobs.cancel(job).summary.state == "canceled"
    while trainers_below(box.home / "node-a") or left_of_runs(box.home / "node-a"):
        Event().wait(0.05)
    assert box.client.jobs.get(job).summary.state == "canceled"


@pytest.mark.tenths
def test_a_server_that_was_killed_and_comes_back_costs_no_attempt_and_no_step(
    box: Box, tmp_path: Path, expected: str
) -> None:
    box.start_node("node-a")
    job = submit(box)
    before = until(box, job, is_safe_and_further(3))
    box.kill_server()
    while trainers_below(box.home / "node-a"):  # it trains on to its end, for longer than a lease
        Event().wait(0.05)
    box.start_server()
    ended = until(box, job, has_ended)
    assert [attempt.id for attempt in ended.attempts] == [before.attempts[0].id]
    assert (ended.summary.interruptions, ended.steps_redone) == (0, 0)
    assert digest_of(box, job, tmp_path / "results") == expected
