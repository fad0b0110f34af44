"""As many ranks of `gangline.train.scratch` as its job has GPUs here: `python -m gangline.train.scratch.launch DIRECTORY`.

They get the environment that torchrun gives, under which the trainer runs as well. But this hands signals on, which end torchrun, and
ends with the trainer's own exit code, which torchrun does not tell; and no rendezvous unpickles anything.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from gangline.core.runs.contract import SPEC
from gangline.posix import die_with_parent

TRAINER = "gangline.train.scratch"
GRACE_S = 60
"""So long may ranks go on after one of them has ended."""
HANDED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train in a directory that keeps the trainer contract, by several ranks."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, help="how many; as the job's needs.slots says, where this is not given")
    asked = parser.parse_args()
    ranks = asked.ranks or _slots(asked.directory)
    if ranks == 1:
        from gangline.train import program
        from gangline.train.scratch import trainer as scratch

        sys.argv = [TRAINER, str(asked.directory)]  # as if it had been started itself
        return program.main(scratch.train)
    return Launched(asked.directory, ranks).ended()


def _slots(directory: Path) -> int:
    """1 where the spec cannot be read: that one rank says why."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((directory / SPEC).read_text())["needs"]["slots"])
    return 1


class Launched:
    def __init__(self, directory: Path, ranks: int) -> None:
        port = free_port()
        self._ranks = {
            process.pid: process for process in (_start(directory, rank, ranks, port) for rank in range(ranks))
        }
        for number in HANDED_ON:
            signal.signal(number, lambda number, _: self._tell(number))
        signal.signal(signal.SIGALRM, lambda *_: self._tell(signal.SIGKILL))

    def ended(self) -> int:
        """The exit code of who ended first without having done all; the others end by themselves, or are ended."""
        found = 0
        for _ in range(len(self._ranks)):
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            self._ranks.pop(pid)
            if code and not found:
                found = code if code > 0 else 128 - code
                signal.alarm(GRACE_S)
        return found

    def _tell(self, number: int) -> None:
        for pid in list(self._ranks):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _start(directory: Path, rank: int, ranks: int, port: int) -> "subprocess.Popen[bytes]":
    who = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | {name: str(value) for name, value in who.items()}
    command = [sys.executable, "-m", TRAINER, str(directory)]
    return subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)  # noqa: PLW1509 - one call into libc


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
