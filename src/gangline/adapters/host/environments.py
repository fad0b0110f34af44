"""Virtual environments on a node, each below a hash of what it was made of.

HASH/        the environment
HASH.json    written last, once it is complete: its size
HASH.lock    held alone by who makes or deletes it, and together by the runs that use it
"""

import fcntl
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gangline.core.canonical import digest
from gangline.core.files import is_sha256
from gangline.core.fleet.cache import Cached
from gangline.posix import remove_tree

PASSABLE = 0o011


class KeptEnvironment:
    """One environment, there or not."""

    def __init__(self, folder: Path, name: str) -> None:
        self.place = folder / name
        self._record = folder / f"{name}.json"
        self._lock_path = folder / f"{name}.lock"
        self._lock: int | None = None

    @property
    def is_complete(self) -> bool:
        return self._record.exists()

    def hold(self, *, alone: bool) -> bool:
        """Lock it, `alone` to make or delete it, else to use it. Return False if another holds it otherwise."""
        if self._lock is None:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def complete(self) -> None:
        """Make it this user's, readable for all, and record its size. Only who holds it alone may call this, once nothing fills it."""
        size = 0
        for _, folders, names, handle in os.fwalk(self.place):
            for name in (*folders, *names):  # a link to a folder is among the folders, and is not walked
                os.chown(name, os.geteuid(), os.getegid(), dir_fd=handle, follow_symlinks=False)
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):  # no package may let other users write to it
                    os.chmod(name, stat.S_IMODE(found.st_mode) & 0o755 | 0o444, dir_fd=handle)
                size += found.st_blocks * 512
            os.fchown(handle, os.geteuid(), os.getegid())
            os.fchmod(handle, 0o755)
        partial = self._record.with_name(f".{self._record.name}")
        partial.write_text(json.dumps({"bytes": size}))
        partial.rename(self._record)

    def use(self) -> None:
        """Note that it is used now."""
        os.utime(self._record)

    def delete(self) -> None:
        """Delete it. Only who holds it alone may call this."""
        self._record.unlink(missing_ok=True)
        remove_tree(self.place)

    def let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def as_cached(self) -> Cached | None:
        try:
            found = self._record.stat()
            size = int(json.loads(self._record.read_text())["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        free = self.hold(alone=True)
        self.let_go()
        return Cached(name=self.place.name, bytes=size, used_s=found.st_mtime, in_use=not free)


class Environments:
    """All of a folder, which several workers of a machine may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for place in folder.iterdir():  # what an agent left that was killed
            if is_sha256(place.name) and not (kept := KeptEnvironment(folder, place.name)).is_complete:
                if kept.hold(alone=True) and not kept.is_complete:
                    kept.delete()
                kept.let_go()

    def make_passable(self) -> None:
        """Let other users pass through to what they may read: a run that has a user of its own starts programs here."""
        for each in (self.folder, self.folder.parent):
            with suppress(PermissionError):
                each.chmod(stat.S_IMODE(each.stat().st_mode) | PASSABLE)

    def find(self, requirements_sha256: str) -> KeptEnvironment:
        """Return the environment with these requirements, for this Python."""
        made_of = {"requirements": requirements_sha256, "python": sys.version, "prefix": sys.base_prefix}
        return KeptEnvironment(self.folder, digest(made_of))

    def kept(self) -> Iterator[Cached]:
        for record in sorted(self.folder.glob("*.json")):
            if is_sha256(record.stem) and (found := KeptEnvironment(self.folder, record.stem).as_cached()):
                yield found

    def evict(self, name: str) -> None:
        """Delete one, unless a run uses it now."""
        kept = KeptEnvironment(self.folder, name)
        if kept.hold(alone=True):
            kept.delete()
        kept.let_go()
