"""A node uploads the parts of a checkpoint while its trainer still writes it; whatever goes wrong, the whole checkpoint is what counts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gangline.core.errors import GanglineError
from gangline.core.files import PART_BYTES, UNKNOWN_SHA256, Beginning, Beginnings, part_ranges
from gangline.core.specs.command import command_hash
from gangline.core.specs.spec import spec_hash
from gangline.ports.server import Grants
from gangline.ports.trainer import RunAccess, Saved, Unfinished
from tests.conftest import as_upload
from tests.service.conftest import POLICY
from tests.worker.test_agent import (
    COMMAND,
    LONG_STEPS,
    SCRIPT,
    Node,
    SavingRun,
    SavingTrainer,
    SlowTransfer,
    give_command,
    node,  # noqa: F401
)

CONTENT = b"1" * PART_BYTES + b"2" * PART_BYTES + b"the rest"
STEP = 7
WHOLE = len(part_ranges(len(CONTENT)))


@dataclass
class StreamingRun(SavingRun):
    """It writes one checkpoint, a part of it each time that `write` is called, and announces each."""

    written: int = 0
    dead: bool = False

    @property
    def folder(self) -> Path:
        return self.directory / "checkpoints" / f"{STEP:06d}"

    def exit_code(self) -> int | None:
        return -9 if self.dead else super().exit_code()

    def ask_to_save(self) -> None:
        """It saves when it wants."""

    def unfinished(self) -> Unfinished | None:
        return Unfinished(STEP, self.folder) if self.written and not self.saved else None

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        if not self.written:
            return ()
        hashes = as_upload(self._file(), CONTENT).parts[: self.written]
        return (Beginning(path="weights.safetensors", bytes=len(CONTENT), parts=hashes),)

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = part_ranges(len(CONTENT))[self.written]
        with (self.folder / "weights.safetensors").open("ab") as file:
            file.write(CONTENT[part.start : part.stop])
        self.written += 1

    def complete(self) -> None:
        assert self.service
        mine = self.spec_hash or spec_hash(self.service.spec(steps=LONG_STEPS))
        self.saved.append(Saved(self.folder, self.service.manifest(STEP, CONTENT, spec_hash=mine)))

    def _file(self) -> Any:
        assert self.service
        return self.service.manifest(STEP, CONTENT).files[0]


class StreamingTrainer(SavingTrainer):
    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> SavingRun:
        self.runs.append(StreamingRun(directory, list(self.script), service=self.service, **self.said))
        return self.runs[-1]


@dataclass
class Watched(SlowTransfer):
    """Remembers which parts went to the store before the whole was known, and what was hashed."""

    streamed: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    hashed: int = 0

    def describe(self, file: Any, source: Path) -> Any:
        self.hashed += 1
        return super().describe(file, source)

    def upload(self, grant: Any, file: Any, source: Path) -> Any:
        numbers = [number for number, signed in enumerate(grant.parts) if signed]
        (self.streamed if file.sha256 == UNKNOWN_SHA256 else self.later).extend(numbers)
        if not numbers:
            grant = replace(grant, parts=())
            return type(super().describe(file, source))(lambda: None, 0)
        return super().upload(grant, file, source)


@dataclass
class Streaming:
    """A job whose trainer streams its checkpoint, on a node."""

    node: Node
    job: str
    run: StreamingRun
    transfer: Watched

    def until(self, over: Callable[[], bool]) -> None:
        while not over():
            self.node.step()

    @property
    def committed(self) -> list[int]:
        return [row["step"] for row in self.node.service.store.load("checkpoints", job=self.job)]


@pytest.fixture
def streaming(node: Node) -> Streaming:  # noqa: F811
    transfer = Watched(node.service, looks=1)
    node.trainer = StreamingTrainer(SCRIPT, service=node.service)
    node.agent._edges = replace(node.agent._edges, transfer=transfer, trainer=node.trainer)
    return started(node, node.service.submit(steps=LONG_STEPS), transfer)


def started(at: Node, job: str, transfer: Watched) -> Streaming:
    while not at.trainer.runs:
        at.step()
    run = at.trainer.runs[0]
    assert isinstance(run, StreamingRun)
    return Streaming(at, job, run, transfer)


def test_parts_are_in_the_store_before_the_checkpoint_is_complete_and_no_byte_goes_twice(streaming: Streaming) -> None:
    run, transfer = streaming.run, streaming.transfer
    for count in range(1, WHOLE):
        run.write()
        streaming.until(lambda count=count: len(transfer.streamed) == count)
    run.write()
    run.complete()
    streaming.until(lambda: streaming.committed == [STEP])
    assert transfer.streamed == [0, 1, 2] and not transfer.later
    assert not transfer.hashed, "the hashes that the trainer announced are used"


def test_hashes_that_another_program_announces_are_not_relied_on(node: Node) -> None:  # noqa: F811
    transfer = Watched(node.service, looks=1)
    node.agent._edges = replace(node.agent._edges, transfer=transfer)
    trainer = StreamingTrainer(SCRIPT, service=node.service, said={"spec_hash": command_hash(COMMAND)})
    streaming = started(node, give_command(node, trainer), transfer)
    for _ in range(WHOLE):
        streaming.run.write()
    streaming.run.complete()
    streaming.until(lambda: streaming.committed == [STEP])
    assert transfer.hashed == 1, (
        "no store attests the hash of the whole: so the node looks whether the parts agree with it"
    )


def test_a_checkpoint_of_which_nothing_could_be_streamed_is_uploaded_as_a_whole(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, transfer = streaming.run, streaming.transfer

    def unknown(hold: Any, request: Beginnings) -> Grants:
        raise GanglineError("there is no such route")

    monkeypatch.setattr(streaming.node.agent._edges.server, "begin", unknown)
    for _ in range(WHOLE):
        run.write()
        streaming.node.step()
    run.complete()
    streaming.until(lambda: streaming.committed == [STEP])
    assert not transfer.streamed and transfer.later == [0, 1, 2]


def test_a_trainer_that_is_killed_while_its_checkpoint_streams_leaves_nothing(streaming: Streaming) -> None:
    run, service = streaming.run, streaming.node.service
    run.write()
    streaming.until(lambda: streaming.transfer.streamed == [0])
    (begun,) = service.store.load("uploads_of_attempt", attempt=run.directory.name)
    assert service.objects.uploads(begun["key"])
    run.dead = True
    streaming.until(lambda: not streaming.node.agent.is_busy)
    assert streaming.committed == [] and not run.directory.exists()
    service.wait(POLICY.orphans_s + 1)
    service.tick()
    assert service.objects.uploads(begun["key"]) == []


def test_a_node_that_loses_its_lease_while_it_streams_sends_nothing_more(streaming: Streaming) -> None:
    run, service = streaming.run, streaming.node.service
    run.write()
    streaming.until(lambda: streaming.transfer.streamed == [0])
    service.ask("POST", f"/v1/jobs/{streaming.job}/cancel")
    run.write()
    streaming.until(lambda: not streaming.node.agent.is_busy)
    assert run.killed and streaming.transfer.streamed == [0]
    assert not run.directory.exists()
