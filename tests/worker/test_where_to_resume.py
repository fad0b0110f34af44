"""A checkpoint to resume from lies in memory while it has room; a command's on disk, where its runner reads it."""

import os
from dataclasses import dataclass, replace
from errno import ENOENT, ENOSPC
from pathlib import Path

import pytest

from gangline.adapters.host.host import LocalHost
from gangline.adapters.host.trainer.in_memory import PREFIX
from gangline.core.files import File, Signed
from gangline.core.parsing import to_json
from gangline.core.runs.in_memory import SHARED_MEMORY
from gangline.core.runs.proof import Proof
from gangline.core.specs.command import CommandSpec, command_hash
from gangline.core.specs.spec import spec_hash
from gangline.ports.server import Commit, Committed, Released
from gangline.service.jobs.checkpoint import commit_checkpoint
from gangline.service.jobs.finish import finish
from tests.service.conftest import Service
from tests.service.jobs.test_one_at_a_time import upload
from tests.worker.test_agent import Node, SlowTask, SlowTransfer, make_node

LORA, COMMAND = "lora", "command"


@dataclass
class FullTransfer(SlowTransfer):
    """Cannot write to memory, whatever that had said."""

    number: int = ENOSPC

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> SlowTask:
        if PREFIX not in str(to):
            return super().download(signed, file, to, durable=durable)
        return SlowTask(lambda: None, self.looks, error=OSError(self.number, os.strerror(self.number)))


def resuming(service: Service, tmp_path: Path, kind: str, transfer: SlowTransfer) -> tuple[Node, Path]:
    """Let a node resume from another's checkpoint. Return it, and the directory of its run."""
    node = make_node(service, tmp_path, transfer)
    node.trainer.proofs = [Proof(measured={"isolation": "uid"})]
    host = LocalHost(tmp_path / "with-memory", tmpfs=SHARED_MEMORY)
    node.agent._edges = replace(node.agent._edges, host=host)
    if kind == LORA:
        service.submit()
    else:
        service.ask("POST", "/v1/jobs", json={"spec": to_json(CommandSpec(command=("true",)))}).raise_for_status()
    other = service.join("node-b", measured={"isolation": "uid"})
    hold = service.claim(other).hold
    mine = spec_hash(service.spec()) if kind == LORA else command_hash(CommandSpec(command=("true",)))
    upload(service, other, hold, 10)
    request = Commit(manifest=service.manifest(10, spec_hash=mine).to_json())
    assert commit_checkpoint(service.deployment, other, hold, request, service.now_ms) == Committed()
    finish(service.deployment, other, hold, Released(), service.now_ms)
    while not node.trainer.runs:
        node.step()
    return node, node.trainer.runs[0].directory


@pytest.mark.parametrize(("kind", "in_memory"), [(LORA, True), (COMMAND, False)])
def test_a_checkpoint_lies_where_its_program_looks_for_it(
    service: Service, tmp_path: Path, kind: str, in_memory: bool
) -> None:
    node, directory = resuming(service, tmp_path, kind, SlowTransfer(service))
    host = node.agent._edges.host
    assert isinstance(host, LocalHost) and host.memory
    assert (host.memory.beside(directory) / "resume").is_dir() is in_memory
    assert (directory / "resume").is_dir() is not in_memory
    host.remove_run(directory)


@pytest.mark.parametrize("number", [ENOSPC, ENOENT])
def test_where_memory_is_full_or_gone_after_all_it_is_downloaded_to_disk(
    service: Service, tmp_path: Path, number: int
) -> None:
    node, directory = resuming(service, tmp_path, LORA, FullTransfer(service, number=number))
    assert [path.name for path in (directory / "resume").iterdir()] == ["000010"]
    node.agent._edges.host.remove_run(directory)
