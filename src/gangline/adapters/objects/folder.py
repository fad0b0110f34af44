"""An object store that is a folder on a disk that outlives the machine, used directly without a server.

Unlike the server's store (`adapters/objects/local.py`) it signs nothing: a URL is the key. Files are copied to `.coming` first.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import EIO
from pathlib import Path
from secrets import token_hex
from typing import IO, TypeVar

from gangline.adapters.transfer.transfer import FutureTask
from gangline.core.errors import BadInput, Damaged, GanglineError, NotFound, Unreachable, UserError
from gangline.core.files import PART_BYTES, File, Grant, Signed, is_safe_path, part_ranges
from gangline.ports.objects import Stat, UploadPart
from gangline.ports.server import Upload
from gangline.posix import flush, is_full

T = TypeVar("T")

AT_ONCE = 4
BUFFER_BYTES = 1 << 20
COMING = ".coming"
DEAD_S = 3600.0
"""A partial file that has not grown for this long is abandoned."""


class FolderObjects:
    """The `objects` port without multipart uploads: `in_parts` is always False, so their methods are not used."""

    creates_only = True

    def __init__(self, root: Path, *, waits_for_room: bool = True) -> None:
        """A full disk is raised as `Unreachable`, so that a writer waits for room; without `waits_for_room` as the OSError that it is, and
        `was_full` remembers it."""
        self.root = root
        self.was_full = False
        self._waits_for_room = waits_for_room

    def at_once(self, asks: Iterable[Callable[[], T]]) -> list[T]:
        return [ask() for ask in asks]

    def in_parts(self, bytes: int) -> bool:
        return False

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        return Signed(url=key)

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed:
        return Signed(url=key)

    def begin(self, key: str) -> str:
        raise NotImplementedError

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        raise NotImplementedError

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        raise NotImplementedError

    def parts(self, key: str, upload: str) -> Mapping[int, UploadPart] | None:
        return None

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        raise NotImplementedError

    def abort(self, key: str, upload: str) -> None:
        pass

    def uploads(self, key: str) -> list[str]:
        return []

    def list(self, prefix: str) -> Iterator[str]:
        below = self.path(prefix) if prefix else self.root
        with self._reached(prefix):
            for path in below.rglob("*"):
                key = path.relative_to(self.root)
                if key.parts[0] != COMING and path.is_file():
                    yield key.as_posix()

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((key, self.path(key).stat().st_size) for key in self.list(prefix))

    def stat(self, key: str) -> Stat | None:
        with suppress(NotFound), self._reached(key):
            return Stat(bytes=self.path(key).stat().st_size, sha256=None)
        return None

    def write(self, key: str, content: bytes) -> None:
        with self._reached(key):
            try:
                with self._coming(key) as coming:
                    coming.write_bytes(content)
                    self._name(coming, key)
            except FileExistsError:
                if self.read(key) != content:
                    raise BadInput(f"{key} already has other content") from None

    def read(self, key: str) -> bytes:
        with self._reached(key):
            return self.path(key).read_bytes()

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._reached(key), self.path(key).open("rb") as content:
            while chunk := content.read(BUFFER_BYTES):
                yield chunk

    def read_back(self, key: str) -> str:
        with self._reached(key), self.path(key).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self.path(key)
            with self._reached(key):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # a folder is removed with its last file
                for folder in path.parents:
                    if folder == self.root:
                        break
                    folder.rmdir()

    def bring_in(self, source: Path, key: str) -> None:
        """Copy a file of this machine into the store. Raises `Unreachable`."""
        with self._reached(key), self._coming(key) as coming:
            shutil.copyfile(source, coming)
            flush(coming)
            coming.replace(self.path(key))

    def sweep(self, now_s: float) -> None:
        """Delete partial copies of processes that were killed. `now_s` is Unix time."""
        for path in (self.root / COMING).glob("*"):
            with suppress(OSError):
                if now_s - path.stat().st_mtime > DEAD_S:
                    path.unlink()

    def path(self, key: str) -> Path:
        if not is_safe_path(key):
            raise NotFound(f"{key!r} is not a valid key")
        return self.root / key

    @contextmanager
    def _reached(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFound(f"there is no object {key}") from None
        except IsADirectoryError:
            raise Damaged(f"{key} in {self.root} is a folder") from None
        except OSError as error:
            if is_full(error) and not self._waits_for_room:
                self.was_full = True
                raise
            raise Unreachable(f"{self.root} cannot be used: {error.strerror}") from None

    def _name(self, coming: Path, key: str) -> None:
        """Give the file its name. Raises `FileExistsError` if the name is taken. Some file systems have no hard links: there it is
        copied."""
        try:
            os.link(coming, self.path(key))
        except FileExistsError:
            raise
        except OSError:
            with self.path(key).open("xb") as file:
                try:
                    file.write(coming.read_bytes())
                except OSError:
                    self.path(key).unlink()
                    raise
        flush(self.path(key))

    def _coming(self, key: str) -> "_Coming":
        for folder in (self.path(key).parent, self.root / COMING):
            folder.mkdir(parents=True, exist_ok=True)
        return _Coming(self.root / COMING / token_hex(8))


class _Coming:
    """A temporary file that is removed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


class FolderTransfer:
    """The `transfer` port by copying. `nice` is how far its threads lower their priority (setpriority(2)). With `links` a download is a
    hard link to the store's own file, where that is possible: for who only reads it."""

    def __init__(self, objects: FolderObjects, *, nice: int = 0, links: bool = False) -> None:
        self._objects = objects
        self._links = links
        self._threads = ThreadPoolExecutor(AT_ONCE, "copy", initializer=os.nice, initargs=(nice,))
        self._stopped = False

    def describe(self, file: File, source: Path) -> FutureTask[Upload]:
        return self._start(lambda: _described(file, source))

    def upload(self, grant: Grant, file: File, source: Path) -> FutureTask[None]:
        (signed,) = grant.parts
        assert signed
        return self._start(lambda: self._objects.bring_in(source, signed.url))

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> FutureTask[None]:
        return self._start(lambda: self._fetch(signed.url, file, to))

    def stop(self) -> None:
        self._stopped = True

    @property
    def idle(self) -> bool:
        return True

    def _fetch(self, key: str, file: File, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        source, hashed = self._objects.path(key), hashlib.sha256()
        try:
            with _read(source, key) as pieces, _Linked(source, to) if self._links else to.open("wb") as come:
                for piece in pieces:
                    if self._stopped:
                        raise Unreachable("the transfer was stopped")
                    hashed.update(piece)
                    come.write(piece)
        except Damaged:
            to.unlink(missing_ok=True)
            raise
        if hashed.hexdigest() != file.sha256:
            to.unlink()
            raise Damaged(f"{file.path} does not match its SHA-256")

    def _start(self, work: Callable[[], T]) -> FutureTask[T]:
        return FutureTask(self._threads.submit(work))


class _Linked:
    """A file that is made as a link to `source`, with the bytes that are written to it anyway; a copy where links are impossible."""

    def __init__(self, source: Path, to: Path) -> None:
        self._to = to
        to.unlink(missing_ok=True)
        self._copy: IO[bytes] | None = None
        try:
            os.link(source, to)
        except OSError:
            self._copy = to.open("wb")

    def __enter__(self) -> "_Linked":
        return self

    def __exit__(self, *_: object) -> None:
        if self._copy:
            self._copy.close()

    def write(self, piece: bytes) -> None:
        if self._copy:
            self._copy.write(piece)


@contextmanager
def _read(path: Path, key: str) -> Iterator[Iterator[bytes]]:
    """Yield the pieces of an object. Errors of reading are translated here, so that an OSError of the caller's writing stays distinct."""

    def pieces() -> Iterator[bytes]:
        while True:
            try:
                piece = source.read(BUFFER_BYTES)
            except OSError as error:
                raise _unreadable(error, key) from None
            if not piece:
                return
            yield piece

    try:
        source = path.open("rb")
    except OSError as error:
        raise _unreadable(error, key) from None
    with source:
        yield pieces()


def _unreadable(error: OSError, key: str) -> GanglineError:
    """Return the error for this object, or for the whole disk."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"there is no object {key}")
    if isinstance(error, IsADirectoryError | NotADirectoryError) or error.errno == EIO:
        return Damaged(f"{key} cannot be read: {error.strerror}")
    if isinstance(error, PermissionError):
        return UserError(
            f"{key} cannot be read: {error.strerror}", hint="check that this user may read the store's files"
        )
    return Unreachable(f"{key} cannot be read: {error.strerror}")


def _described(file: File, source: Path) -> Upload:
    if file.bytes <= PART_BYTES:
        return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256)
    with source.open("rb") as content:
        parts = tuple(hashlib.sha256(content.read(len(part))).hexdigest() for part in part_ranges(file.bytes))
    return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts)
