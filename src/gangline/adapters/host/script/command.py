"""Run a command under a keeper (gangline.adapters.host.script.keeper), with threads that read its output."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from types import MappingProxyType

from gangline.core.errors import UserError
from gangline.ports.command import ShowOutput
from gangline.posix import descendants

KEEPER = "gangline.adapters.host.script.keeper"
PIECE_BYTES = 65_536
LAST_WORDS_S_MAX = 5.0
PROCESSES_MAX = 4096
CANNOT_START = 126


def find_program(name: str) -> None:
    """Check that the program exists and can be started. Raises `UserError`."""
    found = shutil.which(name)
    if found is None:
        what = "cannot be started" if Path(name).exists() else "was not found"
        hint = (
            "if it is a program, make it executable with `chmod +x`"
            if Path(name).exists()
            else "check that it is installed, and in PATH"
        )
        raise UserError(f"the command {name} {what}", hint=hint)
    try:
        with Path(found).open("rb") as file:
            begins = file.read(4)
    except PermissionError:  # executable but not readable: it can still be started
        return
    if not begins.startswith((b"#!", b"\x7fELF")):
        raise UserError(
            f"the command {name} does not begin with a line that names its interpreter",
            hint="begin it with a line like #!/bin/sh, or run it as `sh SCRIPT`",
        )


class KeptCommand:
    def __init__(
        self, words: Sequence[str], show: ShowOutput, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        news, told = os.pipe()
        # -P: a module in the user's folder must not shadow one of ours. The user's environment overrides our settings.
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", KEEPER, str(told), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[told],
            start_new_session=True,
            env={"PYTHONUNBUFFERED": "1", **settings} | os.environ,
        )
        os.close(told)
        self.pid = 0
        self._code: int | None = None
        self._gone = False
        self._processes = 1
        self._changed = Condition()
        assert self._keeper.stdout and self._keeper.stderr
        readers = ((1, self._keeper.stdout.fileno()), (2, self._keeper.stderr.fileno()))
        self._readers = [Thread(target=_read, args=(handle, stream, show), daemon=True) for stream, handle in readers]
        self._listener = Thread(target=self._listen, args=(news,), daemon=True)
        for thread in (*self._readers, self._listener):
            thread.start()

    @property
    def code(self) -> int | None:
        return self._code

    @property
    def gone(self) -> bool:
        return self._gone

    @property
    def processes(self) -> int:
        if not self._gone:
            self._processes = max([self._processes, *_world_sizes(descendants(self._keeper.pid))])
        return self._processes

    def signal(self, number: int) -> None:
        self._say(bytes([number]))

    def kill(self) -> None:
        self._say(b"\0")

    def wait(self, seconds: float) -> None:
        with self._changed:
            if not self._gone:
                self._changed.wait(seconds)

    def close(self) -> None:
        assert self._keeper.stdin and self._keeper.stdout and self._keeper.stderr
        self._keeper.stdin.close()
        self._keeper.wait()
        if self._keeper.returncode and self.pid:  # the keeper was killed, so the command may still run
            _kill_session(self.pid)
        for thread in (self._listener, *self._readers):
            thread.join(LAST_WORDS_S_MAX)
        self._keeper.stdout.close()
        self._keeper.stderr.close()

    def _say(self, what: bytes) -> None:
        assert self._keeper.stdin
        with suppress(BrokenPipeError, ValueError):
            os.write(self._keeper.stdin.fileno(), what)

    def _listen(self, news: int) -> None:
        with open(news) as lines:
            for line in lines:
                what, _, number = line.strip().partition(" ")
                with self._changed:
                    self._take(what, number)
                    self._changed.notify_all()
        with self._changed:  # a keeper that was killed reports nothing, and its command dies with it
            self._gone = True
            if self._code is None:
                self._code = 137
            self._changed.notify_all()

    def _take(self, what: str, number: str) -> None:
        match what:
            case "started":
                self.pid = int(number)
            case "failed":
                self._code, self._gone = CANNOT_START, True
            case "ended":
                code = os.waitstatus_to_exitcode(int(number))
                self._code = code if code >= 0 else 128 - code
            case _:
                self._gone = True


def _read(handle: int, stream: int, show: ShowOutput) -> None:
    with suppress(OSError):
        while piece := os.read(handle, PIECE_BYTES):
            show(stream, piece)


def _kill_session(leader: int) -> None:
    """Kill what remains of a command without its keeper; processes that opened a session of their own escape."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)


def _world_sizes(pids: Iterable[int]) -> Iterable[int]:
    for pid in pids:
        with suppress(OSError):
            for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                name, _, value = setting.partition(b"=")
                if name == b"WORLD_SIZE" and value.isdigit() and 0 < int(value) <= PROCESSES_MAX:
                    yield int(value)
