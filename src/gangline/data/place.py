"""A place for data: a folder, or a prefix in an S3 bucket, with one address and the same methods.

Lance and obstore take the same options, so a place is only an address and a dictionary, and can be passed to other processes.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.files import partial_name

if TYPE_CHECKING:
    from obstore.store import S3Store

ALLOW_HTTP = "allow_http"
FULL = ("no space left", "os error 28", "errno 28", "disk quota")
REFUSED = (
    "forbidden",
    "unauthorized",
    "accessdenied",
    "access denied",
    "permissiondenied",
    "invalidaccesskeyid",
    "signaturedoesnot",
)
MISSING = ("no such file", "nosuchkey", "not found: ", "was not found")
AWAY = (
    "error sending request",
    "connect",
    "timed out",
    "timeout",
    "service unavailable",
    "internal server error",
    "slow down",
)
UNNAMEABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
BUFFER_BYTES = 1 << 20
PATIENCE = {"client_max_retries": "6", "client_retry_timeout": "60", "timeout": "60s", "connect_timeout": "5s"}


class KeyRefused(BadInput):
    """Raised when a key may not read or write here. The data is not at fault: another key, or this one from another machine, may work."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A file below a place. `mark` changes when its content does, as far as the place can tell."""

    name: str
    bytes: int
    mark: str


def printable_name(name: str) -> str:
    """Return a file's name, which may not be valid UTF-8, as valid UTF-8."""
    return name.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class DataPlace:
    """A place. `uri` is an absolute path or s3://BUCKET/PREFIX; `options` are those of object_store: keys, region, endpoint."""

    uri: str
    options: dict[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def is_remote(self) -> bool:
        return "://" in self.uri

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def lance_options(self) -> dict[str, str]:
        return self.options | PATIENCE if self.is_remote else {}

    def check_name(self) -> None:
        """Raise `BadInput` if Lance cannot open such a path. It may hold images, but not a data set."""
        if UNNAMEABLE.search(self.uri):
            raise BadInput(
                f"no data set can be at {self.uri}: its name holds control characters, or is not UTF-8",
                hint="rename it, or choose another place",
            )

    def below(self, name: str) -> "DataPlace":
        return DataPlace(f"{self.uri.rstrip('/')}/{name}", self.options)

    def beside(self, ending: str) -> "DataPlace":
        """Return the place whose address is this one's with `ending` appended."""
        return DataPlace(f"{self.uri.rstrip('/')}{ending}", self.options)

    def entries(self, *, links: bool = False) -> list[Entry]:
        """Return every file at or below the place, sorted by name; empty if nothing is there. With `links`, follow links to folders."""
        with errors_of(self):
            return sorted(self._remote_entries() if self.is_remote else _local_entries(Path(self.uri), links))

    def entry(self, name: str) -> Entry | None:
        """Return the file of that name, or None. A local place is not listed for it."""
        if self.is_remote:
            return next((entry for entry in self.entries() if entry.name == name), None)
        with errors_of(self):
            path = Path(self.uri) / name
            return _local_entry(Path(self.uri), path) if path.is_file() else None

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the place."""
        with errors_of(self):
            if self.is_remote:
                import obstore

                return sorted(
                    path.rstrip("/") for path in obstore.list_with_delimiter(self._store())["common_prefixes"]
                )
            root = Path(self.uri)
            return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []

    def read(self, name: str) -> bytes:
        if not self.is_remote:
            with self.open(name) as file:
                return file.read()
        import obstore

        with errors_of(self):
            return bytes(obstore.get(self._store(), name).bytes())

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open the file at `name` for reading; it is seekable."""
        with errors_of(self):
            if self.is_remote:
                import obstore

                with io.BufferedReader(_Remote(obstore.open_reader(self._store(), name)), BUFFER_BYTES) as file:
                    yield file
            else:
                with (Path(self.uri) / name).open("rb") as file:
                    yield file

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically, replacing an existing one."""
        with errors_of(self):
            if self.is_remote:
                import obstore

                obstore.put(self._store(), name, content)
                return
            path = Path(self.uri) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(partial_name(path.name))
            partial.write_bytes(content)
            partial.replace(path)

    def delete(self, names: list[str]) -> None:
        with errors_of(self):
            if self.is_remote:
                import obstore

                obstore.delete(self._store(), names)
                return
            for name in names:
                (Path(self.uri) / name).unlink(missing_ok=True)

    def wipe(self) -> None:
        """Delete all files below the place, and its folders."""
        self.delete([entry.name for entry in self.entries()])
        root = Path(self.uri)
        if not self.is_remote and root.is_dir():
            for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            root.rmdir()

    def _remote_entries(self) -> Iterator[Entry]:
        import obstore

        for page in obstore.list(self._store(), chunk_size=1000):
            for found in page:
                yield Entry(found["path"], found["size"], found["e_tag"] or str(found["last_modified"]))

    def _store(self) -> "S3Store":
        from obstore.store import S3Store

        config: Any = {name: value for name, value in self.options.items() if name != ALLOW_HTTP}
        client: Any = {
            "allow_http": ALLOW_HTTP in self.options,
            "timeout": timedelta(seconds=60),
            "connect_timeout": timedelta(seconds=5),
        }
        retries: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
        return S3Store.from_url(self.uri, config=config, client_options=client, retry_config=retries)


class _Remote(io.RawIOBase):
    """An adapter from obstore's reader to the standard library's: its reads return `Bytes`, not `bytes`."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readinto(self, buffer: Any) -> int:
        found = bytes(self._reader.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)


def name_in_messages(place: DataPlace, entries: list[Entry]) -> str:
    """Return how messages name the source: the file's path if it is a single one, else the place's address."""
    return place.below(printable_name(entries[0].name)).uri if len(entries) == 1 else place.uri


def _local_entries(root: Path, links: bool) -> Iterator[Entry]:
    if not root.is_dir():
        return
    for path in _through_links(root) if links else root.rglob("*"):
        if path.is_file():
            yield _local_entry(root, path)


def _local_entry(root: Path, path: Path) -> Entry:
    stat = path.stat()
    return Entry(path.relative_to(root).as_posix(), stat.st_size, str(stat.st_mtime_ns))


def _through_links(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield all paths below `folder`, through links, except into a folder that contains the link."""
    own = folder.resolve()
    if own in above:
        return
    with suppress(PermissionError):
        for path in folder.iterdir():
            yield path
            if path.is_dir():
                yield from _through_links(path, above | {own})


@contextmanager
def errors_of(place: DataPlace) -> Iterator[None]:
    """Turn errors of Lance, Arrow, obstore and the system into one sentence with a hint."""
    try:
        yield
    except GanglineError:
        raise
    except Exception as error:
        told = explained(place, error)
        if told is None:
            raise
        raise told from error


def explained(place: DataPlace, error: Exception) -> GanglineError | None:
    """Return the error in our words, or None if the place is not at fault."""
    text = str(error)
    low = text.lower()
    if says_full(error):
        return Unreachable(
            f"the disk is full: {place.uri}", hint="free some space and repeat the command; finished work is kept"
        )
    if isinstance(error, PermissionError) and not place.is_remote:
        return BadInput(f"{place.uri} may not be used: {error.strerror}", hint="change its permissions")
    if any(words in low for words in REFUSED):
        return KeyRefused(
            f"{place.uri} refuses this key",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may read and write there; finished work is kept",
        )
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError) or "os error 20)" in low:
        return BadInput(f"{place.uri} leads to a file where a folder should be", hint="choose another name")
    if "nosuchbucket" in low:
        return BadInput(f"there is no bucket at {place.uri}", hint="create it first, or correct the address")
    if isinstance(error, FileNotFoundError) or any(words in low for words in MISSING):
        return BadInput(f"there is nothing at {place.uri}", hint="`gangline data ls FOLDER` shows what is where")
    if place.is_remote and any(words in low for words in AWAY):
        return Unreachable(
            f"{place.uri} does not answer: {first_line(error)}", hint="repeat the command; finished work is kept"
        )
    return None


def says_full(error: Exception) -> bool:
    """Return whether the disk is full: Rust libraries say so only in the messages of their own error types."""
    return any(words in str(error).lower() for words in FULL)


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
