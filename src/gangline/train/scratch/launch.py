"""Start one rank of `gangline.train.scratch` per GPU of its job on this machine: `python -m gangline.train.scratch.launch DIRECTORY`.

Why not torchrun, whose environment the ranks get and under which the trainer runs too? Signals end torchrun, while this forwards them; this
ends with the trainer's exit code, which torchrun does not return; it starts all ranks again if one had no memory for its microbatch; and no
rendezvous unpickles anything.
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gangline.core.runs.contract import EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY, EXIT_PEER_GONE, EXIT_STOPPED, SPEC
from gangline.core.runs.ranks import PATIENCE_S, more_telling
from gangline.posix import die_with_parent, woken_by_signals
from gangline.train.checkpoints.limits import forget_limits, read_limits
from gangline.train.loading import loading
from gangline.train.log import write_whole_lines

TRAINER = "gangline.train.scratch"
HANDED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train in a directory that keeps the trainer contract, by several ranks."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, help="the number of ranks (default: the job's needs.slots)")
    asked = parser.parse_args()
    ranks = asked.ranks or _slots(asked.directory)
    if ranks == 1:
        with loading():
            from gangline.train import program
            from gangline.train.scratch import trainer as scratch

        sys.argv = [TRAINER, str(asked.directory)]  # as if the trainer had been started directly
        return program.main(scratch.run_scratch_trainer)
    write_whole_lines()
    return Launcher(asked.directory, ranks).run()


def _slots(directory: Path) -> int:
    """Return the spec's needs.slots, or 1 if it cannot be read: the one rank then reports why."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((directory / SPEC).read_text())["needs"]["slots"])
    return 1


class Launcher:
    """All ranks of a run, which are started again if one had no memory for its microbatch."""

    def __init__(self, directory: Path, ranks: int) -> None:
        self._directory = directory
        self._count = ranks
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._woken = woken_by_signals()
        self._all_there = False
        self._killing = False
        self._waiting: list[int] = []
        self._stopping = False
        for number in HANDED_ON:
            signal.signal(number, lambda number, _: self._hear(number))
        signal.signal(signal.SIGALRM, lambda *_: self._kill())

    def run(self) -> int:
        """Return the exit code of the rank that best explains why the run ended."""
        forget_limits(self._directory)
        while (code := self._run_once()) == EXIT_OUT_OF_MEMORY and not self._stopping:
            limits = sorted(read_limits(self._directory).items())
            tried = ", ".join(f"{samples} samples at a time in phases.{phase}" for phase, samples in limits)
            print(f"out of memory: restarting with {tried}", file=sys.stderr)  # noqa: T201 - the job's log
        for number in HANDED_ON:  # Python removes its handlers at shutdown, and a late signal would look like a crash
            signal.signal(number, signal.SIG_IGN)
        if code == EXIT_OUT_OF_MEMORY:
            return EXIT_STOPPED  # the work since the newest checkpoint is lost already
        return EXIT_FAILED if code == EXIT_PEER_GONE else code

    def _run_once(self) -> int:
        """Start all ranks and wait for them. Once one has failed, kill the others if they do not soon end by themselves."""
        self._start()
        found = EXIT_DONE
        while self._ranks:
            select.select([self._woken], [], [])
            os.read(self._woken, 1024)
            for code in self._ended():
                if code == -signal.SIGKILL and self._killing:
                    continue
                before, found = found, more_telling(found, code if code >= 0 else 128 - code)
                if found != before:
                    self._end_others(found)
        signal.alarm(0)
        return found

    def _ended(self) -> Iterator[int]:
        """Yield the exit codes of ranks that have ended. Poll only ranks: this process may have inherited other children."""
        for process in self._ranks.copy():
            if (code := process.poll()) is not None:
                self._ranks.remove(process)
                yield code

    def _start(self) -> None:
        """Start all ranks, then forward the signals that came before all of them were there."""
        port = free_port()
        self._killing = False
        for rank in range(self._count):
            self._ranks.append(_start(self._directory, rank, self._count, port))
        self._all_there = True
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            self._send(number)

    def _end_others(self, found: int) -> None:
        self._all_there = False
        if patience_s := PATIENCE_S.get(found):
            signal.alarm(patience_s)
        else:
            self._kill()

    def _kill(self) -> None:
        self._killing = True
        self._send(signal.SIGKILL)

    def _hear(self, number: int) -> None:
        self._stopping |= number == signal.SIGTERM
        if self._all_there:
            self._send(number)
        else:
            self._waiting.append(number)

    def _send(self, number: int) -> None:
        for process in self._ranks.copy():
            process.send_signal(number)


def _start(directory: Path, rank: int, ranks: int, port: int) -> "subprocess.Popen[bytes]":
    """Start one rank with signals blocked until it handles them (gangline.train.run.contract.Orders): by default they would kill it."""
    who = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | {name: str(value) for name, value in who.items()}
    command = [sys.executable, "-m", TRAINER, str(directory)]
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    try:
        return subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)  # noqa: PLW1509 - one call into libc
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
