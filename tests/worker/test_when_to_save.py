"""A node saves as often as interruptions, its policy and the job's owner say, and tells what it does and why."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gangline.core.specs.command import command_hash
from gangline.ports.trainer import RunAccess
from gangline.worker.agent import Agent
from tests.service.conftest import POLICY, Service
from tests.worker.test_agent import (
    COMMAND,
    LONG_STEPS,
    SCRIPT,
    Node,
    SavingRun,
    SavingTrainer,
    ScriptedRun,
    SlowTransfer,
    give_command,
    make_node,
    node,  # noqa: F401
    training,
)

INTERRUPTED = 30
WEIGHTS = b"weights"
PAUSE_S = 40
HELD_BACK = replace(POLICY, save_gb_per_hour=len(WEIGHTS) / 1e9 * 3600 / PAUSE_S)


def pauses_s(at: Node, run: SavingRun) -> list[int]:
    """Return the pauses between the first saves that the run was asked for, in seconds."""
    at.agent._edges.transfer.looks = 1  # type: ignore[attr-defined]
    while len(run.asked_at) < 4:
        at.step()
    return run.pauses_s()[1:]  # what a save costs is known from the first one on


def test_a_pool_that_was_never_tried_is_taken_for_one_that_is_interrupted_in_twenty_hours(node: Node) -> None:  # noqa: F811
    assert all(38 <= pause_s <= 40 for pause_s in pauses_s(node, training(node, save_s=0.01)))


def test_where_runs_were_interrupted_often_a_node_saves_more_often(node: Node, service: Service) -> None:  # noqa: F811
    for number in range(INTERRUPTED):
        job, other = service.submit(seed=number), service.join(f"lost-{number}")
        service.claim(other)
        service.ask("POST", f"/v1/jobs/{job}/cancel")
    service.execute("UPDATE attempt SET state = 'interrupted'")
    service.wait(60)
    run = training(node, save_s=0.2)
    assert all(pause_s < 30 for pause_s in pauses_s(node, run)), run.pauses_s()


def test_the_owners_wish_for_a_checkpoint_a_minute_is_kept_however_rare_interruptions_are(node: Node) -> None:  # noqa: F811
    assert all(60 <= pause_s <= 61 for pause_s in pauses_s(node, training(node, save_s=0.5)))


def test_what_a_run_does_and_why_is_in_its_log_in_the_nodes_and_in_the_api(node: Node) -> None:  # noqa: F811
    run = training(node, save_s=0.5)
    while len(run.asked_at) < 4:
        node.step()
    said = "saves every 60 s: an interruption is expected every "
    (noted,) = [line for line in run.noted if "0.5 s" in line]
    assert noted.startswith(said) and noted.endswith("; no later, by the job's checkpoint_every_s")
    assert sum(noted in line for line in node.agent.news) == 1
    job = node.service.ask("GET", "/v1/jobs").json()["jobs"][0]["id"]
    (attempt,) = node.service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]
    saving = attempt["saving"]
    assert saving["because"].startswith(said)
    assert (saving["every_s"], saving["bound"], saving["bytes"]) == (60, "checkpoint_every_s", len(WEIGHTS))


@dataclass
class KilledRun(SavingRun):
    """It is killed as soon as the node has added a line to what it printed."""

    def exit_code(self) -> int | None:
        return -9 if self.noted else super().exit_code()

    def printed(self, first_byte: int, most: int) -> bytes:
        return "\n".join(["out of memory?", "", *self.noted, ""]).encode()[first_byte : first_byte + most]


class KilledTrainer(SavingTrainer):
    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ScriptedRun:
        self.runs.append(KilledRun(directory, list(self.script), service=self.service))
        return self.runs[-1]


def test_what_the_node_adds_to_a_runs_log_is_not_taken_for_its_last_output(node: Node) -> None:  # noqa: F811
    node.trainer = KilledTrainer(SCRIPT, service=node.service)
    node.agent._edges = replace(node.agent._edges, trainer=node.trainer)
    job = node.service.submit(steps=LONG_STEPS)
    while not (attempts := node.service.store.load("attempts", job=job)) or attempts[0]["state"] != "failed":
        node.step()
    assert attempts[0]["because"].endswith("crashed: signal 9; its last output: out of memory?")
    assert "saves every" in node.service.ask("GET", f"/v1/jobs/{job}/logs").json()["text"]


@dataclass
class SavesByItself(SavingRun):
    """It saves every five steps, whether it is asked or not; one of them may be the best so far, and after one of them it takes three more
    steps and saves again before the node looks."""

    best_step: int = 0
    hurries_at: int = -1

    def exit_code(self) -> int | None:
        code = super().exit_code()
        if code is None and self.step % 5 == 0:
            self.save()
            if self.step == self.hurries_at:
                self.step += 3
                self.save()
            if self.step == self.best_step:
                last = self.saved[-1]
                self.saved[-1] = replace(last, manifest=replace(last.manifest, best=True))
        elif self.stopped and self.saved[-1].manifest.step != self.step:
            self.save()
        return code

    def checkpoints(self) -> list[Any]:
        return [saved for saved in self.saved if saved.folder.exists()]

    def ask_to_save(self) -> None:
        """It saves by itself anyway."""
        assert self.service
        self.asked_at.append(self.service.now_ms // 1000)


@dataclass
class SavesByItselfTrainer(SavingTrainer):
    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ScriptedRun:
        self.runs.append(SavesByItself(directory, list(self.script), service=self.service, **self.said))
        return self.runs[-1]


@pytest.fixture
def held_back(service: Service, tmp_path: Path) -> Node:
    """A node whose policy lets it upload a checkpoint in `PAUSE_S`."""
    service.deployment = replace(service.deployment, policy=HELD_BACK)
    service.app.state.deployment = service.deployment
    return make_node(service, tmp_path, SlowTransfer(service, looks=1))


def committed(at: Node, job: str, seconds: int) -> list[tuple[int, int]]:
    """Return the checkpoints that are committed while so many seconds pass: each with its step and the second."""
    found = dict[int, int]()
    for _ in range(seconds):
        at.step()
        for row in at.service.store.load("checkpoints", job=job):
            found.setdefault(row["step"], at.service.now_ms // 1000)
    return sorted(found.items())


def run_that_saves_by_itself(at: Node, job: dict[str, Any] | None = None, **said: Any) -> str:
    at.trainer = SavesByItselfTrainer(SCRIPT, service=at.service, said=said)
    at.agent._edges = replace(at.agent._edges, trainer=at.trainer)
    return at.service.submit(steps=LONG_STEPS, **(job or {}))


def test_what_a_trainer_saves_by_time_is_uploaded_no_more_often_than_the_policy_says(held_back: Node) -> None:
    job = run_that_saves_by_itself(held_back)
    times = [second for _, second in committed(held_back, job, 400)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) > 4 and all(PAUSE_S <= pause <= PAUSE_S + 6 for pause in pauses), pauses
    run = held_back.trainer.runs[0]
    assert len(run.checkpoints()) <= 4 < len(run.saved) / 10, "what is overtaken takes no room"


def test_what_pictures_are_made_of_and_the_best_weights_are_not_held_back(held_back: Node) -> None:
    job = run_that_saves_by_itself(held_back, {"checkpoint_every_steps": 100}, best_step=265)
    steps = [step for step, _ in committed(held_back, job, 150)]
    assert {100, 200, 265, 300, 400, 500} <= set(steps)
    by_time = [step for step in steps if step % 100 and step != 265]
    assert len(by_time) <= 150 // PAUSE_S + 1, by_time


def test_what_pictures_are_made_of_is_uploaded_although_a_newer_one_is_held_back(held_back: Node) -> None:
    job = run_that_saves_by_itself(held_back, {"checkpoint_every_steps": 100}, hurries_at=100)
    steps = [step for step, _ in committed(held_back, job, 150)]
    assert 100 in steps and 200 in steps, steps


def test_a_commands_checkpoints_are_all_uploaded_and_none_is_asked_for(held_back: Node) -> None:
    trainer = SavesByItselfTrainer(SCRIPT, service=held_back.service, said={"spec_hash": command_hash(COMMAND)})
    job = give_command(held_back, trainer)
    times = [second for _, second in committed(held_back, job, 200)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(pauses) > 20 and all(pause <= 6 for pause in pauses), pauses
    run = held_back.trainer.runs[0]
    assert isinstance(run, SavesByItself) and not run.asked_at, "no node can make a command save"
    (attempt,) = held_back.service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]
    assert attempt["saving"] is None and not run.noted, "nobody knows how often it saves"


def test_a_node_that_leaves_uploads_what_it_held_back(held_back: Node) -> None:
    job = run_that_saves_by_itself(held_back)
    committed(held_back, job, 60)
    agent: Agent = held_back.agent
    agent.ask_to_stop()
    while not agent.stopped:
        held_back.step()
    run = held_back.trainer.runs[0]
    assert held_back.service.store.load("checkpoints", job=job)[0]["step"] == run.saved[-1].manifest.step
