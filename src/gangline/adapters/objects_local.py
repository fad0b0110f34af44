"""The object store in a folder of the server, behind URLs that the server itself signs and serves.

`objects/<key>` holds the bytes, `attested/<key>` the SHA-256 that was computed while they came in. Keys are write-once:
the bytes come into a file of their own and get their name by a hard link, which fails where the name is taken.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlencode

from gangline.core.errors import BadInput, Damaged, Denied, NotFound
from gangline.core.files import is_safe_path
from gangline.ports.objects import Stat

ROUTE = "/v1/objects/"


class LocalObjects:
    """`secret` signs: who has it can read and write everything."""

    def __init__(self, root: Path, secret: str) -> None:
        self._objects = root / "objects"
        self._attested = root / "attested"
        self._incoming = root / "incoming"
        self._secret = secret.encode()
        for folder in (self._objects, self._attested, self._incoming):
            folder.mkdir(parents=True, exist_ok=True)
        for left in self._incoming.iterdir():  # of a server that was killed while bytes came in
            left.unlink()

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> str:
        return self._sign("PUT", key, f"{bytes}-{sha256}", now_ms, seconds)

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> str:
        return self._sign("GET", key, "", now_ms, seconds)

    def stat(self, key: str) -> Stat | None:
        try:
            size = self._path(key).stat().st_size
        except FileNotFoundError:
            return None
        attested = self._attested / key
        return Stat(bytes=size, sha256=attested.read_text() if attested.exists() else None)

    def write(self, key: str, content: bytes) -> None:
        incoming = self._incoming / secrets.token_hex(16)
        incoming.write_bytes(content)
        self._keep(incoming, key, hashlib.sha256(content).hexdigest())

    def read(self, key: str) -> bytes:
        return self.locate(key).read_bytes()

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)
        (self._attested / key).unlink(missing_ok=True)

    def locate(self, key: str) -> Path:
        """The file of an object. Raises `NotFound`."""
        path = self._path(key)
        if not path.is_file():
            raise NotFound(f"there is no object {key}")
        return path

    def check(self, method: str, key: str, what: str, expires_ms: int, signature: str, now_ms: int) -> None:
        """Raises `Denied` unless this server signed just this, and not too long ago."""
        if not hmac.compare_digest(signature, self._signature(method, key, what, expires_ms)):
            raise Denied("the signature of this URL is wrong")
        if now_ms > expires_ms:
            raise Denied("this URL has expired", hint="ask for a new one")

    async def receive(self, key: str, what: str, body: AsyncIterator[bytes]) -> None:
        """Take an upload of exactly what was signed. Raises `Damaged` otherwise; `BadInput` where the key holds other bytes."""
        size_text, _, sha256 = what.partition("-")
        size, hashed, received = int(size_text), hashlib.sha256(), 0
        incoming = self._incoming / secrets.token_hex(16)
        try:
            with incoming.open("wb") as file:
                async for chunk in body:
                    received += len(chunk)
                    if received > size:
                        break
                    hashed.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if received != size or hashed.hexdigest() != sha256:
                raise Damaged(f"the upload is not the {size} bytes that were signed for")
            self._keep(incoming, key, sha256)
        finally:
            incoming.unlink(missing_ok=True)

    def _keep(self, incoming: Path, key: str, sha256: str) -> None:
        path, attested = self._path(key), self._attested / key
        path.parent.mkdir(parents=True, exist_ok=True)
        attested.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(incoming, path)
        except FileExistsError:
            if _attested(path, attested) != sha256:
                raise BadInput(f"{key} is taken by other bytes") from None
        else:
            attested.write_text(sha256)
        finally:
            incoming.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not is_safe_path(key):
            raise NotFound(f"{key!r} is no key")
        return self._objects / key

    def _sign(self, method: str, key: str, what: str, now_ms: int, seconds: float) -> str:
        expires_ms = now_ms + round(seconds * 1000)
        query = {"expires": expires_ms, "signature": self._signature(method, key, what, expires_ms)}
        return ROUTE + quote(key) + "?" + urlencode(query | ({"what": what} if what else {}))

    def _signature(self, method: str, key: str, what: str, expires_ms: int) -> str:
        message = "\n".join((method, key, what, str(expires_ms)))
        return hmac.new(self._secret, message.encode(), hashlib.sha256).hexdigest()


def _attested(path: Path, attested: Path) -> str:
    """The hash of an object that is there; read anew where a crash came between its name and its attestation."""
    if not attested.exists():
        with path.open("rb") as content:
            attested.write_text(hashlib.file_digest(content, "sha256").hexdigest())
    return attested.read_text()
