"""A node's disk below one folder: its machine id, its cache unless it shares one, and a folder for each run."""

import fcntl
import json
import os
import platform
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gangline.adapters.host.cache import Cache
from gangline.adapters.host.trainer.in_memory import MemoryOfRuns, memory_of_runs
from gangline.core.errors import UserError
from gangline.core.files import File
from gangline.core.runs import contract
from gangline.core.runs.contract import checkpoint_name
from gangline.core.specs.spec import with_defaults
from gangline.posix import remove_tree


class LocalHost:
    """The folder `home` of one worker, which it locks. It removes what a killed worker left of its runs. With `tmpfs` checkpoints and
    results of runs lie there while there is room; `why_not` says why not, and `say` hears it if that ends."""

    def __init__(
        self,
        home: Path,
        cache: Cache | None = None,
        tmpfs: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self.runs = home / "runs"
        self._cache = cache or Cache(home / "cache")
        self._lock = (home / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another worker already uses {home}", hint="give each worker its own folder with --home"
            ) from None
        self.discard(self.runs)
        self.runs.mkdir(mode=0o700)
        found = memory_of_runs(tmpfs, self.runs, say) if tmpfs else "that is switched off here"
        self.memory, self.why_not = (found, "") if isinstance(found, MemoryOfRuns) else (None, found)

    def give_up_memory(self, why: str) -> None:
        """Use no memory, for this reason."""
        self.memory, self.why_not = None, why

    def machine(self) -> str:
        """Return the machine's id, which stays the same across restarts of the worker."""
        path = self._home / "machine"
        if not path.exists():
            path.write_text(f"machine-{secrets.token_hex(8)}")
        return path.read_text()

    def cached(self, sha256: str) -> Path:
        return self._cache.place(sha256)

    def lay_out(self, attempt: str, spec: dict[str, Any]) -> Path:
        directory = self.runs / attempt
        directory.mkdir(mode=0o700)
        (directory / contract.SPEC).write_text(json.dumps(with_defaults(spec)))
        (directory / contract.INPUTS).mkdir()
        return directory

    def input_path(self, directory: Path, path: str) -> Path:
        return directory / contract.INPUTS / path

    def place_cached(self, directory: Path, path: str, file: File) -> bool:
        return self._cache.link(file, self.input_path(directory, path))

    def make_room(self, room_bytes: int) -> None:
        self._cache.make_room(room_bytes)

    def remember_base(self, base: str, files: tuple[File, ...]) -> None:
        self._cache.remember(base, files)

    def bases(self) -> tuple[str, ...]:
        return self._cache.bases()

    def place_prepared(self, directory: Path, key: str, manifest: dict[str, Any]) -> None:
        folder = directory / contract.INPUTS / contract.PREPARED / key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / contract.MANIFEST).write_text(json.dumps(manifest))

    def leave_out(self, directory: Path, parts: tuple[str, ...]) -> None:
        (directory / contract.LEFT_OUT).write_text(json.dumps(parts))

    def take_back(self, directory: Path) -> None:
        for _, folders, files, handle in os.fwalk(directory):
            for name in (*folders, *files):
                if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=handle)

    def place_checkpoint(
        self, directory: Path, step: int, manifest: dict[str, Any], size: int, *, on_disk: bool = False
    ) -> Path:
        place = directory if on_disk or not self.memory else self.memory.place_for(directory, size)
        folder = place / contract.RESUME / checkpoint_name(step)
        folder.mkdir(parents=True)
        (folder / contract.MANIFEST).write_text(json.dumps(manifest))
        return folder

    def remove_run(self, directory: Path) -> None:
        self.discard(self.runs / directory.relative_to(self.runs).parts[0])
        if self.memory:
            self.memory.remove(directory)

    def drop_resumed(self, directory: Path) -> None:
        self.discard(directory / contract.RESUME)
        if self.memory:
            self.discard(self.memory.beside(directory) / contract.RESUME)

    def discard(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def describe_numerics(*, threads: str, with_gpu: bool) -> dict[str, str]:
    """Return what decides the bits of a result besides the GPU: a trainer puts the same into the fingerprint of its checkpoints."""
    found = {"threads": threads, "trainer": contract.TRAINER}
    if not with_gpu:
        found["cpu"] = _cpu()
    for name in contract.LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def memory_bytes() -> int:
    """Return how much memory this machine has, or its container may use."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with suppress(OSError, ValueError):  # "max" means no limit
            sizes.append(int(path.read_text()))
    return min(sizes)
