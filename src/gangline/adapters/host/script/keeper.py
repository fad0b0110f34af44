"""Stand between `gangline exec` and its command, so that no process of the command outlives it.

It runs as a program, with a command. The command gets its own session, and orphans among its descendants become children of this process.
Each byte on standard input is the number of a signal for the command's group, zero to kill everything. When standard input ends, because
its writer was killed, everything is killed. Events are reported, a line each, on the file descriptor in the first argument: `started PID`,
before the program runs; `failed ERRNO` if it cannot; `ended STATUS` (of waitpid, for the command); `gone` when no process is left.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

from gangline.posix import adopt_orphans, descendants, die_with_parent, woken_by_signals

LINE = 0
KILL_ALL = b"\0"


def main() -> None:
    told, command = int(sys.argv[1]), sys.argv[2:]
    adopt_orphans()
    woken = woken_by_signals()
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
    ):  # a tool that signals all processes reaches gangline exec too, which decides
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: _begin(told),  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        _tell(told, f"failed {error.errno}")
        return
    for stream in (1, 2):
        os.close(stream)  # only the command holds them, so that its readers see the end when it exits
    listening = [LINE, woken]
    while _reap(told, process.pid):
        ready, _, _ = select.select(listening, [], [])
        if woken in ready:
            os.read(woken, 1024)
        if LINE in ready:
            said = os.read(LINE, 1024)
            _obey(said or KILL_ALL, process.pid)
            if not said:
                listening = [woken]
    _tell(told, "gone")


def _begin(told: int) -> None:
    """Report the start in the command's process, before its program runs: if the keeper were killed first, nobody would know its PID."""
    die_with_parent()
    _tell(told, f"started {os.getpid()}")


def _obey(said: bytes, group: int) -> None:
    for number in said:
        with suppress(ProcessLookupError):
            if number:
                os.killpg(group, number)
            else:
                _kill_all()


def _kill_all() -> None:
    """Kill again until no process is left that could start another."""
    while found := [pid for pid in descendants(os.getpid()) if not _is_dead(pid)]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_dead(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            return stat.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def _reap(told: int, command: int) -> bool:
    """Reap children that have ended; return whether any is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        if pid == command:
            _tell(told, f"ended {status}")


def _tell(told: int, what: str) -> None:
    with suppress(BrokenPipeError):
        os.write(told, what.encode() + b"\n")


if __name__ == "__main__":
    main()
