"""Nodes on this box: workers as subprocesses, each with a home and a machine id of its own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.adapters.processes import die_with_parent

GRACE_S = 30


@dataclass(slots=True)
class LocalNode:
    name: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """SIGKILL, as when the power goes: its trainer dies with it."""
        self.process.kill()
        self.process.wait()


def start_node(*, name: str, home: Path, server: str, join_token: str) -> LocalNode:
    """The token goes through the environment, where `ps` does not show it."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.cli.main", "worker", "--server", server, "--name", name, "--home", home],
            env=os.environ | {"GANGLINE_TOKEN": join_token},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one call into libc, before any thread is started
        )
    return LocalNode(name, process)


def stop_all(nodes: list[LocalNode]) -> None:
    """Each saves, hands its job back and leaves; who takes too long is killed."""
    for node in nodes:
        with suppress(ProcessLookupError):
            node.process.send_signal(signal.SIGTERM)
    for node in nodes:
        try:
            node.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            node.kill()
