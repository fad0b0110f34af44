"""Find out how far a run can be kept apart from its node on this machine, and make the enclosures for that."""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from gangline.adapters.host.trainer.enclosures import ROOM_TMP, SETPRIV, Bare, Enclosure, OwnUser, Sandbox, made_above
from gangline.adapters.host.trainer.in_memory import MemoryOfRuns
from gangline.adapters.host.trainer.users import TEMPORARY, RunsUser, UserOfProcess
from gangline.core.errors import GanglineError, UserError
from gangline.core.server.isolation import LEVELS, IsolationLevel


class Enclosing(Protocol):
    def __call__(
        self,
        *,
        network: bool = False,
        buckets: bool = False,
        shows: Path | None = None,
        fills: Path | None = None,
    ) -> Enclosure:
        """Make an enclosure for one run, where the network can be cut with it or without, and for one that reads buckets with the folder
        in which such runs keep what they have read. It also `shows` a folder, and `fills` one that is empty."""
        ...


CACHE_OF_DATA = "GANGLINE_DATA_CACHE"
BWRAP = "bwrap"
PIP_CONF = "/etc/pip.conf"
"""Where a node says which index packages come from."""
NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
LOADS = "gangline"
"""A user for runs, or a sandbox, must be able to load this."""
PROBE_S_MAX = 30.0
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/sys")
OF_ETC = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "pki",
    "resolv.conf",
    "ssl",
    "vulkan",
)
DEVICES = ("nvidia*", "nvidia-caps", "dri", "kfd", "infiniband")


def _no_enclosure(**_: object) -> Enclosure:
    return Bare()


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A level that works here; `why` says what the stronger levels lack, if they were tried, and `why_not_memory` why no run can have a
    folder in memory at this one."""

    level: IsolationLevel = "none"
    make: Enclosing = _no_enclosure
    why: str = ""
    why_not_memory: str = ""


def find_isolation(
    runs: Path, wanted: IsolationLevel | None = None, *, memory: MemoryOfRuns | None = None
) -> Isolation:
    """Try the levels, strongest first, or only the one that is wanted. Raises `UserError` if that one does not work.

    `runs` is the worker's folder with the directories of its runs; its parent is hidden from a sandbox. In `memory` a sandbox has a folder
    with the name of its room.
    """
    reasons = list[str]()
    tried = tuple(reversed(LEVELS)) if wanted is None else (wanted,)
    for level in tried:
        try:
            make = _MAKERS[level](runs, memory)
        except GanglineError as error:
            reasons.append(f"{level}: {error.message}")
        else:
            lack = _out_of_reach(memory.root) if memory and level == "uid" else ""
            return Isolation(level=level, make=make, why="; ".join(reasons), why_not_memory=lack)
    raise UserError(
        f"runs cannot be isolated here as it was asked: {'; '.join(reasons)}",
        hint="leave --isolation out: the strongest level that works is chosen",
    )


def _bare(_runs: Path, _memory: MemoryOfRuns | None) -> Enclosing:
    return _no_enclosure


def _own_users(runs: Path, _memory: MemoryOfRuns | None) -> Enclosing:
    """Raises `UserError` unless this is root, and a user without any rights can start Python and reach `runs`."""
    if os.geteuid() != 0:
        raise UserError("only root can start a run as another user")
    for folder in (runs, runs.parent):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
    if said := _tried_in(runs, *_added()):
        raise UserError(f"another user cannot start Python, or reach {runs}: {said}")

    def make(*, fills: Path | None = None, **_: object) -> Enclosure:
        user = RunsUser()
        if fills:
            user.give(fills)
        return OwnUser(user)

    return make


def _out_of_reach(memory: Path) -> str:
    """Return why a user without any rights cannot reach a folder of its own in `memory`; "" if it can."""
    said = _tried_in(memory)
    return f"a user of a run cannot reach {memory}: {said}" if said else ""


def _tried_in(parent: Path, *others: Path) -> str:
    """Let a user without any rights start Python and list a folder of its own in `parent`, and `others`. Return what it said if that
    failed."""
    user = RunsUser()
    place = parent / f"probe-{user.uid}"
    try:
        place.mkdir(mode=0o700)
        user.give(place)
        said = _try(_looking_at(place, *others), user)
        place.rmdir()
    except OSError as error:
        return str(error)
    finally:
        user.give_back()
    return said


def _sandboxes(runs: Path, memory: MemoryOfRuns | None) -> Enclosing:
    """Raises `UserError` if bubblewrap is not installed, or the kernel or the container does not let it."""
    program = shutil.which(BWRAP)
    if program is None:
        raise UserError("bubblewrap is not installed (bwrap)")
    numbers, has_users = count(1), os.geteuid() == 0 and shutil.which(SETPRIV) is not None
    # A namespace of users has only one, so it is made where the worker could not make the others without.
    begins = [program, *([] if has_users else ["--unshare-user-try"])]

    def make(
        *, network: bool = False, buckets: bool = False, shows: Path | None = None, fills: Path | None = None
    ) -> Enclosure:
        room = runs / f"room-{next(numbers)}"
        more = [*["--share-net"] * network, *(_cache_of_data() if buckets else [])]
        for option, folder in (("--ro-bind", shows), ("--bind", fills)):
            more += [*made_above(folder), option, str(folder), str(folder)] if folder else []
        more += ["--ro-bind-try", PIP_CONF, PIP_CONF] if fills else []
        # What reads buckets is a trainer of ours, and runs share the files of that cache: no user of one run could.
        user = RunsUser() if has_users and not buckets else None
        if user and fills:
            user.give(fills)
        view = [*begins, *view_of(runs.parent, room / ROOM_TMP), *more]
        return Sandbox(view, room, user, memory.root / room.name if memory and memory.is_there else None)

    enclosure = make()
    said = _try(enclosure.wrap(_looking_at(*_added()), "/"))
    enclosure.discard()
    if said:
        raise UserError(f"bubblewrap does not work here: {said}")
    return make


def _cache_of_data() -> list[str]:
    """Return bwrap's options for the folder in which runs that read buckets keep what they have read; it is made first."""
    folder = os.environ.get(CACHE_OF_DATA)
    if not folder:
        return []
    with suppress(OSError):  # the run says what is wrong with it
        Path(folder).mkdir(parents=True, exist_ok=True)
    return ["--bind-try", folder, folder]


_MAKERS: dict[IsolationLevel, Callable[[Path, MemoryOfRuns | None], Enclosing]] = {
    "none": _bare,
    "uid": _own_users,
    "sandbox": _sandboxes,
}


def _looking_at(*folders: Path) -> list[str]:
    """Return a command that fails unless it can load Gangline and list these folders."""
    return [sys.executable, "-I", "-c", f"import os, {LOADS}\nfor each in {[*map(str, folders)]}: os.listdir(each)"]


def _try(command: Sequence[str], user: RunsUser | None = None) -> str:
    """Run a command, and return what it said last if it failed, else an empty text."""
    identity: UserOfProcess = user.identity if user else {}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=PROBE_S_MAX, cwd="/", env={}, check=False, **identity
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""


def view_of(hidden: Path, tmp: Path) -> list[str]:
    """Return bwrap's options for what a run sees: the system's programs and this Python, read-only, and the GPUs; no home, no process of
    others, no network. `hidden` is empty in it, though it may lie below what is seen; `tmp` has its temporary files."""
    options = [*NAMESPACES, "--die-with-parent", "--cap-drop", "ALL", "--hostname", "run"]
    for folder in SYSTEM:
        path = Path(folder)
        options += (
            ["--symlink", str(path.readlink()), folder] if path.is_symlink() else ["--ro-bind-try", folder, folder]
        )
    options += made_above(Path("/etc/any"))
    for name in OF_ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    options += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - inside, memory of its own
    for device in DEVICES:
        for path in Path("/dev").glob(device):
            options += ["--dev-bind", str(path), str(path)]
    for folder in TEMPORARY:
        options += [*made_above(Path(folder)), "--bind", str(tmp), folder]
    for place in _of_python():
        options += [*made_above(place), "--ro-bind", str(place), str(place)]
    return [*options, "--tmpfs", str(hidden)]


def _of_python() -> list[Path]:
    """Return the folders that this Python and the modules of a trainer are in, none of them below another."""
    ours = (sys.base_prefix, sys.prefix, *sysconfig.get_paths().values(), str(Path(__file__).parents[4]))
    places = sorted({*(Path(folder).absolute() for folder in ours), *_added()})
    return [each for each in places if each.is_dir() and not any(other in each.parents for other in places)]


def _added() -> list[Path]:
    """Return the folders that the environment adds to Python's path."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [Path(folder).absolute() for folder in folders if folder and Path(folder).is_dir()]
