"""An object store in a folder of the server, behind URLs that the server itself signs and serves.

`objects/<key>` holds the bytes, `attested/<key>` the SHA-256 that was computed while they arrived, if they were uploaded. Keys are
write-once: the bytes arrive in a temporary file and get their name by a hard link, which fails if the name is taken. A multipart upload
is a folder `uploads/<id>` with the `key`, the `content` into which all parts are written, and a file named by its number for each part
that arrived intact.
"""

import asyncio
import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENAMETOOLONG
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

from gangline.core.errors import BadInput, Damaged, Denied, NotFound, Unreachable
from gangline.core.files import PART_BYTES, Signed, is_safe_path
from gangline.ports.objects import Stat, UploadPart

T = TypeVar("T")

CHUNK = 4 << 20
WRITTEN_BYTES = 1 << 20
"""So much of an upload is held in memory before it is written."""
ROUTE = "/v1/objects/"


class LocalObjects:
    """The object store below `root`. Whoever has the `secret` can read and write everything. `beside` a server that may be at work."""

    def __init__(self, root: Path, secret: str, *, beside: bool = False) -> None:
        self._objects = root / "objects"
        self._attested = root / "attested"
        self._incoming = root / "incoming"
        self._uploads = root / "uploads"
        self._secret = secret.encode()
        for folder in (self._objects, self._attested, self._incoming, self._uploads):
            folder.mkdir(parents=True, exist_ok=True)
        for left in () if beside else self._incoming.iterdir():  # a server was killed during an upload
            left.unlink()

    @property
    def creates_only(self) -> bool:
        return True

    def at_once(self, asks: Iterable[Callable[[], T]]) -> list[T]:
        return [ask() for ask in asks]

    def in_parts(self, bytes: int) -> bool:
        return bytes > PART_BYTES

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        return self._sign("PUT", key, f"{bytes}-{sha256}", now_ms, seconds, {"Content-Length": str(bytes)})

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed:
        return self._sign("GET", key, "", now_ms, seconds, {})

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        what = f"{part.bytes}-{part.sha256}-{upload}-{number}"
        return self._sign("PUT", key, what, now_ms, seconds, {"Content-Length": str(part.bytes)})

    def begin(self, key: str) -> str:
        upload = secrets.token_hex(16)
        folder = self._uploads / upload
        with self._meaning(key):
            folder.mkdir()
            (folder / "content").touch()
            (folder / "key").write_text(key)
        return upload

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        with self._coming(key) as incoming:
            incoming.write_bytes(content)
            self._keep_part(incoming, key, upload, number, f"{len(content)}-{hashlib.sha256(content).hexdigest()}")

    def parts(self, key: str, upload: str) -> dict[int, UploadPart] | None:
        if not self._is_open(key, upload):
            return None
        try:
            marks = [path for path in (self._uploads / upload).iterdir() if path.name.isdecimal()]
            return {int(mark.name): _part(mark.read_text()) for mark in marks}
        except FileNotFoundError:  # it was completed or aborted at this moment
            return None

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        if self.parts(key, upload) != dict(enumerate(parts, 1)) or self._path(key).is_file():
            return
        joined = b"".join(bytes.fromhex(part.sha256 or "") for part in parts)
        attested = f"{hashlib.sha256(joined).hexdigest()}-{len(parts)}"
        with suppress(BadInput), self._meaning(key):  # another request took the key at this moment
            self._keep(self._uploads / upload / "content", key, attested)
        self.abort(key, upload)

    def abort(self, key: str, upload: str) -> None:
        if self._is_open(key, upload):
            shutil.rmtree(self._uploads / upload, ignore_errors=True)

    def uploads(self, key: str) -> list[str]:
        return [folder.name for folder in self._uploads.iterdir() if self._is_open(key, folder.name)]

    def list(self, prefix: str) -> Iterator[str]:
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for above, _, names in os.walk(self._path(prefix) if prefix else self._objects):
            for name in names:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    size = (path := Path(above, name)).stat().st_size
                    yield path.relative_to(self._objects).as_posix(), size

    def stat(self, key: str) -> Stat | None:
        path, attested = self._path(key), self._attested / key
        with self._meaning(key), suppress(FileNotFoundError):
            if path.is_file():
                return Stat(bytes=path.stat().st_size, sha256=_noted(attested) or None)
        return None

    def write(self, key: str, content: bytes) -> None:
        with self._coming(key) as incoming:
            incoming.write_bytes(content)
            # Without a note of its hash, which is another file: each node sends a piece of its log every few seconds.
            self._keep(incoming, key, hashlib.sha256(content).hexdigest(), noted=False)

    def read(self, key: str) -> bytes:
        with self._meaning(key):
            try:
                return self.locate(key).read_bytes()
            except FileNotFoundError:
                raise NotFound(f"there is no object {key}") from None

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._meaning(key):
            try:
                with self.locate(key).open("rb") as content:
                    while chunk := content.read(CHUNK):
                        yield chunk
            except FileNotFoundError:
                raise NotFound(f"there is no object {key}") from None

    def read_back(self, key: str) -> str:
        with self._meaning(key):
            return _sha256_of(self.locate(key))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self._meaning(key):
                if self._path(key).is_file():  # a folder, or a path below a file, is no object
                    self._path(key).unlink(missing_ok=True)
                    (self._attested / key).unlink(missing_ok=True)

    def locate(self, key: str) -> Path:
        """Return the file of an object. Raises `NotFound`."""
        path = self._path(key)
        with self._meaning(key):
            if not path.is_file():
                raise NotFound(f"there is no object {key}")
        return path

    def check(self, method: str, key: str, what: str, expires_ms: int, signature: str, now_ms: int) -> None:
        """Raise `Denied` unless this server signed exactly this request and its time is not over."""
        expected = self._signature(method, key, what, expires_ms)
        if not hmac.compare_digest(signature.encode(errors="replace"), expected.encode()):
            raise Denied("the signature of this URL is wrong")
        if now_ms > expires_ms:
            raise Denied("this URL has expired", hint="ask for a new one")

    async def receive(self, key: str, what: str, body: AsyncIterator[bytes]) -> None:
        """Receive an upload of exactly the bytes that were signed. Raises `Damaged` otherwise, `BadInput` if the key holds other bytes, and
        `NotFound` if the part's upload has ended."""
        size, sha256, *part = what.split("-")
        incoming = self._new_incoming()

        def keep(rest: bytes) -> None:
            with self._removing(incoming), self._meaning(key):
                _append(incoming, rest, durable=True)
                if part:
                    upload, number = part
                    self._keep_part(incoming, key, upload, int(number), f"{size}-{sha256}")
                else:
                    self._keep(incoming, key, sha256)

        try:
            with self._meaning(key):
                rest = await _receive_into(incoming, int(size), sha256, body)
        except BaseException:
            incoming.unlink(missing_ok=True)
            raise
        await asyncio.to_thread(keep, rest)

    def _keep_part(self, incoming: Path, key: str, upload: str, number: int, mark: str) -> None:
        """Write a part into the content. A part that arrives again has the same bytes, so overwriting it is harmless."""
        folder = self._uploads / upload
        try:
            with incoming.open("rb") as came, (folder / "content").open("r+b") as content:
                content.seek((number - 1) * PART_BYTES)
                shutil.copyfileobj(came, content)
                content.flush()
                os.fsync(content.fileno())
            (folder / f".{number}").write_text(mark)
            (folder / f".{number}").rename(folder / str(number))
        except FileNotFoundError:
            raise NotFound(f"there is no upload {upload} of {key}") from None

    def _is_open(self, key: str, upload: str) -> bool:
        try:
            return upload.isalnum() and (self._uploads / upload / "key").read_text() == key
        except FileNotFoundError:
            return False

    def _keep(self, incoming: Path, key: str, sha256: str, *, noted: bool = True) -> None:
        path, attested = self._path(key), self._attested / key
        try:
            _in_its_folder(path, lambda: os.link(incoming, path))
        except FileExistsError:
            if not path.is_file():
                raise
            if _attested(path, attested) != sha256:
                raise BadInput(f"{key} already has other content") from None
        else:
            if noted:
                _attest(attested, sha256)

    @contextmanager
    def _coming(self, key: str) -> Iterator[Path]:
        """Yield a temporary file for bytes on their way to `key`, and remove it afterwards."""
        incoming = self._new_incoming()
        with self._removing(incoming), self._meaning(key):
            yield incoming

    def _new_incoming(self) -> Path:
        return self._incoming / secrets.token_hex(16)

    @staticmethod
    @contextmanager
    def _removing(incoming: Path) -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                incoming.unlink()

    @contextmanager
    def _meaning(self, key: str) -> Iterator[None]:
        """Translate the system's errors: `BadInput` if the key is wrong, else `Unreachable`."""
        try:
            yield
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise BadInput(
                f"{key} is taken: one name cannot be both a file and a folder", hint="give one of them another name"
            ) from None
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                raise BadInput(f"{key} is too long a name for this disk", hint="give it a shorter one") from None
            raise Unreachable(
                f"the object store {self._objects.parent} cannot be used: {error.strerror or error}",
                hint="check whether its disk is full or read-only; transfers that were under way resume by themselves",
            ) from error

    def _path(self, key: str) -> Path:
        if not is_safe_path(key):
            raise NotFound(f"{key!r} is not a valid key")
        return self._objects / key

    def _sign(self, method: str, key: str, what: str, now_ms: int, seconds: float, headers: dict[str, str]) -> Signed:
        expires_ms = now_ms + round(seconds * 1000)
        query = {"expires": expires_ms, "signature": self._signature(method, key, what, expires_ms)}
        url = ROUTE + quote(key) + "?" + urlencode(query | ({"what": what} if what else {}))
        return Signed(url=url, headers=headers)

    def _signature(self, method: str, key: str, what: str, expires_ms: int) -> str:
        message = "\n".join((method, key, what, str(expires_ms)))
        return hmac.new(self._secret, message.encode(), hashlib.sha256).hexdigest()


async def _receive_into(incoming: Path, size: int, sha256: str, body: AsyncIterator[bytes]) -> bytes:
    """Write a body to a file, except for its end, which is returned: a short body is written in the hop that keeps it."""
    hashed, received, rest = hashlib.sha256(), 0, bytearray()
    async for chunk in body:
        received += len(chunk)
        if received > size:
            break
        hashed.update(chunk)
        rest += chunk
        if len(rest) >= WRITTEN_BYTES:
            await asyncio.to_thread(_append, incoming, bytes(rest), durable=False)
            rest.clear()
    if received != size or hashed.hexdigest() != sha256:
        raise Damaged(f"the upload does not have the {size} bytes and the SHA-256 that were signed")
    return bytes(rest)


def _append(incoming: Path, content: bytes, *, durable: bool) -> None:
    """Append to a file, and flush it to the disk if it is complete. Either may take long, so never call it in the event loop."""
    with incoming.open("ab") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _part(mark: str) -> UploadPart:
    size, _, sha256 = mark.partition("-")
    return UploadPart(int(size), sha256)


def _attested(path: Path, attested: Path) -> str:
    """Return the hash of an existing object; compute it again if the server crashed between naming and attesting the object."""
    known = _noted(attested)
    if not known:
        known = _sha256_of(path)
        _attest(attested, known)
    return known


def _noted(attested: Path) -> str:
    try:
        return attested.read_text()
    except FileNotFoundError:
        return ""


def _attest(attested: Path, sha256: str) -> None:
    """Write the hash atomically: on a full disk the file would otherwise exist and be empty."""
    partial = attested.with_name(f".{secrets.token_hex(8)}")
    try:
        _in_its_folder(partial, lambda: partial.write_text(sha256))
        partial.rename(attested)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _in_its_folder(path: Path, make: Callable[[], object]) -> None:
    """Make a file, and its folders only if they are lacking, as most files have those of others."""
    try:
        make()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        make()


def _sha256_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
