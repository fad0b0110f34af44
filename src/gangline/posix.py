"""Call features of Linux for which Python has no single function: processes, signals, leases, inotify, cgroups."""

import ctypes
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOMEM, ENOSPC
from pathlib import Path, PurePosixPath
from threading import Event
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
F_SETSIG = 10
IN_CREATE, IN_MOVED_TO, IN_CLOSE_WRITE = 0x100, 0x80, 0x8
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
INOTIFY_EVENT = struct.Struct("iIII")
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CORES = "GANGLINE_CORES"
"""The variable by which a worker tells each of several trainers its share of the cores."""
IN_MEMORY, MEMORY_LIMITS = "GANGLINE_IN_MEMORY", "GANGLINE_MEMORY_LIMITS"
"""The variables by which a worker tells a run its folder on a tmpfs, and the cgroups that limit its memory."""
UNLIMITED = 2**60
"""Cgroups of version 1 say with a limit beyond this that they have none."""
_libc = ctypes.CDLL(None)  # loaded before any fork: loading it in a forked child could deadlock


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that forked it ends. Call it between fork and exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends (a subreaper), so that it can find and kill all of them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Return the pids of the processes that this one started, and of those that they started."""
    children = dict[int, list[int]]()
    for process in _processes():
        children.setdefault(process.parent, []).append(process.pid)
    found, waiting = list[int](), [pid]
    while waiting:
        found += (born := children.get(waiting.pop(), []))
        waiting += born
    return found


def eldest_child(pid: int) -> int | None:
    """Return the child of a process that started first, of those that live."""
    return min(((each.began, each.pid) for each in _processes() if each.parent == pid), default=(0, None))[1]


def processes_of(uid: int) -> list[int]:
    """Return the processes of a user, but for those that have ended and that their parents have not heard of."""
    return [process.pid for process in _processes() if not process.ended and _user_of(process.pid) == uid]


def _user_of(pid: int) -> int | None:
    """Return whose a process is, also of one that lets nobody look at it: such a one's folder in /proc is root's."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith(b"Uid:"))
    return None


class _Process(NamedTuple):
    """`began` is in ticks since the machine started."""

    pid: int
    parent: int
    began: int
    ended: bool


def _processes() -> Iterator[_Process]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed, thousands of times
        if not entry.isdecimal():
            continue
        with suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as stat:  # noqa: PTH123
            # The name of the program stands in brackets and may contain blanks and brackets, so the fields are counted from its end.
            fields = stat.read().rpartition(b")")[2].split()
            yield _Process(int(entry), int(fields[1]), int(fields[19]), fields[0] in b"ZX")


def cores() -> int:
    """Return how many cores this process may use: those that it is bound to, but no more than its cgroups or `CORES` allow.

    `os.cpu_count` counts all cores of the machine: in a container with 2 cores on a host with 128, sixty-four times too many.
    """
    share = [int(os.environ[CORES])] if CORES in os.environ else []
    return max(1, min([len(os.sched_getaffinity(0)), *share, *cgroup_limits(OWN_CGROUPS, CGROUPS)]))


def cgroup_limits(own: Path, root: Path) -> Iterator[int]:
    """Yield how many cores each cgroup around a process allows, if it has a quota (cgroups(7), versions 2 and 1)."""
    lines = own.read_text().splitlines() if own.exists() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top, files = (root / "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")) if controllers else (root, ("cpu.max",))
        inner = PurePosixPath(path.lstrip("/"))
        for folder in (inner, *inner.parents):  # in a container its cgroup is the root, so this path may not exist
            with suppress(OSError, ValueError):  # the quota is `max`, or there is none
                quota, period = " ".join((top / folder / name).read_text() for name in files).split()
                if int(quota) > 0:
                    yield -(-int(quota) // int(period))


def woken_by_signals() -> int:
    """Return a descriptor that becomes readable when a child ends or a signal with a handler arrives.

    `select` on it does not miss a signal that arrives just before it sleeps, as `os.wait` would.
    """
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)  # a full pipe wakes as well as one byte
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only signals with a handler write to the descriptor
    return woken


def is_written(path: Path) -> bool | None:
    """Return whether a process has the file open for writing; None if the file system does not support leases.

    The kernel grants a read lease only on a file that no process has open for writing (fcntl(2), F_SETLEASE). A process that opens it for
    writing during the lease, some microseconds here, waits until the lease is released. The kernel then signals the holder: SIGURG is
    chosen as it is ignored by default.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The signal is set before the lease: the default, SIGIO, would end this process.
        fcntl.fcntl(handle, F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def flush(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk before returning."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FolderNews:
    """Notifications of files and folders that appear in watched folders, or are closed after writing (inotify(7)).

    If the system has no inotify, there are never any.
    """

    def __init__(self) -> None:
        self._handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        self._never = Event()

    def watch(self, folder: Path) -> None:
        """Watch a folder, until it is deleted. Watching it twice is no error."""
        if self._handle >= 0:
            watch = _libc.inotify_add_watch(self._handle, os.fsencode(folder), IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE)
            if watch >= 0:
                self._folders[watch] = folder

    def wait(self, seconds: float) -> set[Path]:
        """Wait up to `seconds`, and return the paths that were notified; if the kernel's queue overflowed, all watched folders."""
        if self._handle < 0:
            self._never.wait(seconds)
            return set()
        ready, _, _ = select.select([self._handle], [], [], seconds)
        return set(self._parse(os.read(self._handle, 65_536))) if ready else set()

    def _parse(self, events: bytes) -> Iterator[Path]:
        at = 0
        while at < len(events):
            watch, mask, _, length = INOTIFY_EVENT.unpack_from(events, at)
            name = events[at + INOTIFY_EVENT.size :][:length].rstrip(b"\0")
            at += INOTIFY_EVENT.size + length
            if mask & IN_Q_OVERFLOW:
                yield from self._folders.values()
            elif mask & IN_IGNORED:
                self._folders.pop(watch, None)
            elif watch in self._folders:
                yield self._folders[watch] / os.fsdecode(name)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def remove_tree(folder: Path) -> None:
    """Delete a folder as far as that is possible, however deep it is: Python's own deletion calls itself for each folder."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["/bin/rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def signals_handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Let `handler` have the signals that end a run, but for those that this process ignores, as `nohup` has it."""
    ending = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    heeded = [each for each in ending if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, handler) for each in heeded}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def is_full(error: OSError) -> bool:
    """Return whether there was no room to write: on the disk, or in the memory behind a tmpfs."""
    return error.errno in (ENOSPC, EDQUOT, ENOMEM)


TMPFS = frozenset({"tmpfs", "ramfs"})


def file_system_of(path: Path) -> str:
    """Return the type of the file system that a path is on, as /proc/self/mountinfo names it; "" if that cannot be read."""
    found, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            at = before.split()[4].encode().decode("unicode_escape")
            if len(at) >= len(found) and path.resolve().is_relative_to(at):
                found, kind = at, after.split()[0]
    return kind


def why_not_in_memory(folder: Path) -> str:
    """Return why a folder is not on a tmpfs; "" if it is."""
    kind = file_system_of(folder)
    return "" if kind in TMPFS else f"{folder} is {f'on {kind}' if kind else 'not there'} and not in memory (tmpfs)"


def memory_cgroups(own: Path = OWN_CGROUPS, root: Path = CGROUPS) -> list[Path]:
    """Return the folders of the cgroups around this process that have a limit of memory (cgroups(7), versions 2 and 1)."""
    found = list[Path]()
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, inner = root / "memory" if controllers else root, PurePosixPath(path.lstrip("/"))
        found += [top / folder for folder in (inner, *inner.parents) if _left_in_cgroup(top / folder) is not None]
    return found


def memory_free(folder: Path, cgroups: Sequence[Path]) -> int:
    """Return how many bytes can be written to `folder`, on a tmpfs, before it is full, or the machine or one of `cgroups` lacks memory."""
    on_it = os.statvfs(folder)
    return max(0, min([on_it.f_bavail * on_it.f_frsize, *memory_left(cgroups)]))


def memory_left(cgroups: Sequence[Path]) -> list[int]:
    """Return how many bytes of memory the machine and each of `cgroups` have left, as far as that can be read."""
    left = [found for each in cgroups if (found := _left_in_cgroup(each)) is not None]
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        left.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    return left


def _left_in_cgroup(folder: Path) -> int | None:
    """Return how many bytes of memory a cgroup has left, its page cache counted as free; None if it has no limit."""
    for limit, usage, cache in (
        ("memory.max", "memory.current", "inactive_file "),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        with suppress(OSError, ValueError):  # the limit is `max`, or there is none
            allowed, used = (int((folder / name).read_text()) for name in (limit, usage))
            stat = (folder / "memory.stat").read_text().splitlines()
            kept = sum(int(line.rpartition(" ")[2]) for line in stat if line.startswith(cache))
            return allowed - used + kept if allowed < UNLIMITED else None
    return None


class RunMemory(NamedTuple):
    """The `folder` on a tmpfs that a run may use, and the cgroups that limit its memory, as its agent found them: in a sandbox it does not
    see which ones those are.
    """

    folder: Path
    limits: tuple[Path, ...] = ()

    @classmethod
    def told(cls) -> "RunMemory | None":
        """Return what the environment of this process says; None where there is no such folder."""
        folder, limits = os.environ.get(IN_MEMORY, ""), os.environ.get(MEMORY_LIMITS, "").split(os.pathsep)
        return cls(Path(folder), tuple(Path(each) for each in limits if each)) if folder else None

    @property
    def environment(self) -> dict[str, str]:
        return {IN_MEMORY: str(self.folder), MEMORY_LIMITS: os.pathsep.join(map(str, self.limits))}

    @property
    def is_there(self) -> bool:
        """Return whether the folder can be used. In a sandbox that shows one which was deleted outside, it seems to be there, but has no
        name any more."""
        with suppress(OSError):
            return self.folder.stat().st_nlink > 0
        return False

    def fault(self, error: Exception | None = None) -> str:
        """Return why nothing can be written there, after this `error` of writing; "" if there is no reason."""
        if not self.is_there:
            return f"{self.folder}, in memory, was deleted"
        if isinstance(error, OSError) and not is_full(error):
            return f"memory had an error ({error.strerror})"
        return "memory ran full" if error else ""

    def free(self) -> int:
        """Return how many bytes more may be written there; 0 if that cannot be found out."""
        with suppress(OSError):
            return memory_free(self.folder, self.limits)
        return 0

    def held(self) -> int:
        """Return the bytes of the files there, each counted once however many names it has, as far as they can be seen."""
        files = dict[int, int]()
        with suppress(OSError):
            for _, _, names, handle in os.fwalk(self.folder):
                for name in names:
                    with suppress(FileNotFoundError):
                        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                        files[found.st_ino] = 512 * found.st_blocks
        return sum(files.values())
