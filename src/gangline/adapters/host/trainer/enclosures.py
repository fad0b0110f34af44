"""What keeps one run apart from the agent and from other runs: nothing, a user of its own, or a sandbox.

An enclosure is made before its run is known, as a process that stands by waits in it; then it takes the run's directory in.
"""

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gangline.adapters.host.trainer.users import GONE_S_MAX, RunsUser, UserOfProcess
from gangline.core.server.isolation import IsolationLevel
from gangline.posix import eldest_child, remove_tree

ROOM_RUN, ROOM_TMP = "run", "tmp"
SETPRIV = "setpriv"
GO_THERE = 'cd "$0" && exec "$@"'
WITHOUT_RIGHTS = ("--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs")
SIGNALS_FROM = 128
"""A shell, and bwrap, add a signal's number to this for the exit code of a process that it ended."""


class Enclosure(Protocol):
    """`holds_back` are signals that its process starts with blocked: the program inside unblocks them, once it heeds them."""

    level: IsolationLevel
    holds_back: frozenset[int]

    def wrap(self, command: Sequence[str], below: str | Path) -> list[str]:
        """Return the command that starts this one inside, with the working directory `below`. It is started in that."""
        ...

    def identity(self) -> UserOfProcess:
        """Return whose the process is, as arguments of `Popen`."""
        ...

    def take(self, directory: Path) -> Path:
        """Take a run's directory in, and return where it is from then on, inside and outside."""
        ...

    def give(self, folder: Path) -> None:
        """Let the program have a folder besides the run's directory, and what is in it."""
        ...

    def signal(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        """Send a signal to the program inside, whose process was started by `wrap`."""
        ...

    def exit_code(self, code: int) -> int:
        """Return the program's exit code, negative for a signal, from that of its process."""
        ...

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill everything inside. None of it is left on return; repeated calls are no error."""
        ...

    def discard(self) -> None:
        """Remove what was made for the enclosure, but for a run's directory, once nothing runs inside. Repeated calls are no error."""
        ...


class Bare:
    """Nothing is kept apart: the program is a process of the agent's user."""

    level: IsolationLevel = "none"
    holds_back: frozenset[int] = frozenset()

    def wrap(self, command: Sequence[str], below: str | Path) -> list[str]:
        return list(command)

    def identity(self) -> UserOfProcess:
        return {}

    def take(self, directory: Path) -> Path:
        return directory

    def give(self, folder: Path) -> None: ...

    def signal(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        process.send_signal(number)

    def exit_code(self, code: int) -> int:
        return code

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.discard()

    def discard(self) -> None: ...


class OwnUser(Bare):
    """The program has a user of its own, who owns the run's directory and nothing else of this machine."""

    level: IsolationLevel = "uid"

    def __init__(self, user: RunsUser) -> None:
        self._user = user

    def identity(self) -> UserOfProcess:
        return self._user.identity

    def take(self, directory: Path) -> Path:
        self._user.give(directory)
        return directory

    def give(self, folder: Path) -> None:
        self._user.give(folder)

    def discard(self) -> None:
        self._user.give_back()


class Sandbox(Bare):
    """The program sees in bubblewrap what `view` shows, `room`, a folder with the run's directory and its temporary files, and `memory`, a
    folder on a tmpfs. It has a `user` of its own, too, where the agent is root: as root it could talk to services of this machine over a
    network that it shares."""

    level: IsolationLevel = "sandbox"
    holds_back = frozenset({signal.SIGTERM})
    """Slurm, for one, sends it to every process of a node that is to end, and without bwrap nothing inside could save."""

    def __init__(self, view: Sequence[str], room: Path, user: RunsUser | None, memory: Path | None = None) -> None:
        self._view = view
        self._room = room
        self._user = user
        self._memory = memory
        for folder in (room, room / ROOM_TMP, *([memory] if memory else [])):
            folder.mkdir(mode=0o700)
        for folder in (room, memory):
            if user and folder:
                user.give(folder)

    def wrap(self, command: Sequence[str], below: str | Path) -> list[str]:
        user = _as_user(self._user.uid) if self._user else ["--"]
        # The room comes last: it may lie below one of the others. bwrap cannot go to what is the user's.
        shown = list(self._view)
        for option, folder in (("--bind", self._room), ("--bind-try", self._memory)):  # memory may be deleted by now
            shown += [*made_above(folder), option, str(folder), str(folder)] if folder else []
        return [*shown, *user, "/bin/sh", "-c", GO_THERE, str(below), *command]

    def take(self, directory: Path) -> Path:
        place, before = self._room / ROOM_RUN, directory.parent
        if self._user:
            self._user.give(directory)
        directory.rename(place)
        with suppress(OSError):  # only the empty room of an earlier start can be removed
            before.rmdir()
        return place

    def give(self, folder: Path) -> None:
        if self._user:
            self._user.give(folder)

    def signal(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        init = eldest_child(process.pid)
        inside = eldest_child(init) if init else None
        with suppress(ProcessLookupError):  # it has ended at this moment
            os.kill(inside or process.pid, number)

    def exit_code(self, code: int) -> int:
        return SIGNALS_FROM - code if SIGNALS_FROM < code < SIGNALS_FROM + signal.NSIG else code

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        init = eldest_child(process.pid) if process.poll() is None else None
        watched = _watch(init)
        process.kill()
        if watched is not None:  # the last process of the namespace to end is its first one
            select.select([watched], [], [], GONE_S_MAX)
            os.close(watched)
        super().kill(process)

    def discard(self) -> None:
        if self._user:
            self._user.give_back()
        remove_tree(self._room / ROOM_TMP)
        for folder in (self._room, self._memory):
            with suppress(OSError):  # it has the run, or is gone already
                if folder:
                    folder.rmdir()


def made_above(place: Path) -> list[str]:
    """Return bwrap's options that make the folders above a place: by itself it would let nobody but root pass through them."""
    return [part for folder in list(reversed(place.parents))[1:] for part in ("--perms", "0755", "--dir", str(folder))]


def _as_user(uid: int) -> list[str]:
    """Return what ends bwrap's options and makes what follows another user's, with no right that root has."""
    rights = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP", "--"]
    return [*rights, SETPRIV, "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *WITHOUT_RIGHTS]


def _watch(pid: int | None) -> int | None:
    with suppress(OSError):
        return os.pidfd_open(pid) if pid else None
    return None
