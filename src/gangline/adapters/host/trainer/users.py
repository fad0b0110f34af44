"""Users for runs: numbers that no account of this machine has, each of one run at a time."""

import fcntl
import os
import pwd
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from gangline.core.errors import UserError
from gangline.posix import processes_of, remove_tree

UIDS = range(60_706, 61_184)
"""Systemd's table of users and groups leaves these to nobody, and they exist in every container (below 65,536)."""
LOCKS = Path("/run/lock/gangline-users")
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - in a sandbox, folders of its own
SHARED = (*TEMPORARY, "/dev/shm")  # noqa: S108 - what a run left there is removed
KILL_ALL = ("/bin/sh", "-c", "kill -9 -1")
"""Ends all other processes of its user at once, so that none can start another one meanwhile."""
GONE_S_MAX = 10.0
"""The kernel needs so long at most to end killed processes."""


class UserOfProcess(TypedDict, total=False):
    """Whose a process is, as arguments of `Popen`."""

    user: int
    group: int
    extra_groups: list[int]


class RunsUser:
    """A user that one run has. Only root can make one; two workers of a machine never have the same."""

    def __init__(self) -> None:
        LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.uid, self._lock = _reserve()
        self._given: list[Path] = []
        self._end_all()  # an agent that was killed may have left some

    def give(self, directory: Path) -> None:
        """Let the user have a run's directory. Files with other names, in the cache, stay the agent's, and the user may read them."""
        self._given.append(directory)
        for _, _, names, handle in os.fwalk(directory, follow_symlinks=False):
            for name in names:
                with suppress(OSError):
                    self._give_file(name, handle)
            os.fchown(handle, self.uid, self.uid)
            os.fchmod(handle, 0o700)

    def _give_file(self, name: str, folder: int) -> None:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return
            if found.st_nlink == 1:
                os.fchown(file, self.uid, self.uid)
            elif found.st_uid == os.geteuid():
                os.fchmod(file, stat.S_IMODE(found.st_mode) | 0o044)
        finally:
            os.close(file)

    def give_back(self) -> None:
        """End what the user still has here: processes, and files in folders that all users share. Repeated calls are no error.

        The directories that it was given can be reached by nobody but the agent from then on: its number may be the next run's. A process
        that does not end keeps it, so that no other run can have it.
        """
        if self._lock is None or not self._end_all():
            return
        for directory in self._given:
            with suppress(FileNotFoundError):
                os.chown(directory, os.geteuid(), os.getegid(), follow_symlinks=False)
        for folder in SHARED:
            _remove_owned(Path(folder), self.uid)
        os.close(self._lock)
        self._lock = None

    def _end_all(self) -> bool:
        ends_s = time.monotonic() + GONE_S_MAX
        while processes_of(self.uid):
            if time.monotonic() > ends_s:
                return False
            subprocess.run(KILL_ALL, check=False, cwd="/", env={}, **self.identity)
        return True

    @property
    def identity(self) -> UserOfProcess:
        """Return the user as arguments of `Popen`."""
        return {"user": self.uid, "group": self.uid, "extra_groups": []}


def _reserve() -> tuple[int, int]:
    known = {each.pw_uid for each in pwd.getpwall()}
    for uid in UIDS:
        if uid in known:
            continue
        lock = os.open(LOCKS / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return uid, lock
        os.close(lock)
    raise UserError(f"all {len(UIDS)} users for runs are taken on this machine", hint=f"{LOCKS} has their locks")


def _remove_owned(folder: Path, uid: int) -> None:
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != uid:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(Path(entry.path))
                else:
                    Path(entry.path).unlink()
