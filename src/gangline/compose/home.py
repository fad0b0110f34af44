"""The home folder of a server or a worker: private to its owner. A server holds a lock on its home for as long as it lives."""

import fcntl
import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from gangline.compose.settings import existing
from gangline.core.errors import UserError

LOCK = "server.lock"
DATABASE = "gangline.sqlite"
log = logging.getLogger("gangline.home")


def keep_files_private() -> int:
    """Let only its owner read what this process and its children write from now on. Return the umask that the user had."""
    return os.umask(0o077)


def private_home(folder: Path, *, passable: bool = False) -> Path:
    """Make a home, or close one that is open to others: a database and photos lie in it. Others may pass through a `passable` one to
    what is theirs, but list nothing. Raises `UserError`."""
    existing(folder)
    found = folder.stat()
    # Another user's folder is not ours to close, and a sticky one (/tmp) is shared on purpose.
    if (
        found.st_mode & (0o066 if passable else 0o077)
        and found.st_uid == os.geteuid()
        and not found.st_mode & stat.S_ISVTX
    ):
        folder.chmod(0o700)
        if any(folder.iterdir()):
            log.warning("%s was open to other users of this machine; now only its owner can read it", folder)
    return folder


@contextmanager
def given_to_owner(home: Path, patterns: Sequence[str]) -> Iterator[None]:
    """Give what root writes there meanwhile to whose home it is: a server that runs as that user could not read it otherwise. Raises
    `UserError`."""
    try:
        yield
    finally:
        if os.geteuid() == 0:
            owner = home.stat()
            try:
                for path in (each for pattern in patterns for each in home.glob(pattern)):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
            except OSError as error:
                raise UserError(
                    f"what is in {home} cannot be given to its user {owner.st_uid}: {error.strerror}",
                    hint="run this as that user",
                ) from None


class ServersLock:
    """The lock of the one server that runs in a home. Its file says who that is."""

    def __init__(self, home: Path, file: TextIO) -> None:
        self._home = home
        self._file = file

    def take(self) -> None:
        """Raise `UserError` where another server holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another server runs in {self._home}{_holder(self._file)}",
                hint="stop it first, or give this one a folder of its own with --home",
            ) from None
        self.tell(url="")

    def tell(self, *, url: str) -> None:
        """Write down for the next one that tries: this process, and where it listens."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps({"pid": os.getpid(), "url": url}))
        self._file.flush()


@contextmanager
def locked(home: Path) -> Iterator[ServersLock]:
    """Hold the lock of a home. The kernel lets it go when this process ends, however it ends. Raises `UserError`."""
    with ExitStack() as held:
        try:
            lock = ServersLock(home, held.enter_context((home / LOCK).open("a+")))
            lock.take()
        except OSError as error:
            raise UserError(f"{home} cannot be locked: {error.strerror}", hint="choose another with --home") from None
        yield lock


def _holder(file: TextIO) -> str:
    """Return ` (pid 123, http://…)`, as far as the holder has written it down by now."""
    file.seek(0)
    try:
        found = json.loads(file.read())
        url = f", {found['url']}" if found["url"] else ""
        return f" (pid {found['pid']}{url})"
    except (ValueError, KeyError, TypeError):
        return ""
