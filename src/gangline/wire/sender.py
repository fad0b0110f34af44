"""Upload files to the object store by content, in the parts that the server grants; files that are stored already are skipped."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx

from gangline.core.errors import BadInput, Unreachable
from gangline.core.files import PART_BYTES, File, Grant, Signed
from gangline.core.views import BlobView
from gangline.wire.http import Http, parse_answer, problem_of
from gangline.wire.problem import to_error

EXPIRED, TAKEN = 403, 412
REMEMBERED_MAX = 10_000


class Sender:
    """Uploads files. `http` sends requests to the server, `store` sends bytes to the URLs that it grants."""

    def __init__(self, http: Http, store: httpx.Client) -> None:
        self._http = http
        self._bytes = store

    def upload(self, path: Path, below: Path, tell: Callable[[File], None]) -> File:
        """Upload a file and return it as a spec names it.

        Grants expire, so it asks again while each answer lists fewer missing parts: a part that arrived is not granted again.
        """
        sha256, parts = hashes(path)
        file = File(path=path.relative_to(below).as_posix(), bytes=path.stat().st_size, sha256=sha256)
        tell(file)
        missing = len(parts) + 2
        while not (offered := self._offer(file, parts)).present:
            assert offered.grant is not None, "a file that is not stored comes with a grant"
            before, missing = missing, sum(signed is not None for signed in offered.grant.parts)
            if missing >= before:
                raise BadInput(f"{path} changed while it was uploaded", hint="try again")
            self._send(offered.grant, path)
        return file

    def _offer(self, file: File, parts: tuple[str, ...]) -> BlobView:
        body: dict[str, Any] = {"sha256": file.sha256, "bytes": file.bytes, "parts": parts}
        return parse_answer(BlobView, self._http.ask("POST", "/v1/blobs", body))

    def _send(self, grant: Grant, path: Path) -> None:
        """Send all granted parts, or those that get through before the URLs expire."""
        sent = 0
        with path.open("rb") as content:
            for number, signed in enumerate(grant.parts):
                if signed is None:
                    continue
                content.seek(number * PART_BYTES)
                answer = self._put(signed, content.read(PART_BYTES), path)
                # If URLs expire during the upload, the next offer has new ones; if the very first is refused, its age is not the reason.
                if answer.status_code == EXPIRED and sent:
                    return
                if not answer.is_success and answer.status_code != TAKEN:
                    raise to_error(answer.status_code, problem_of(answer))
                sent += 1

    def _put(self, signed: Signed, content: bytes, path: Path) -> httpx.Response:
        try:
            return self._bytes.put(self._absolute(signed.url), content=content, headers=signed.headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{path} could not be uploaded: {type(error).__name__}") from None

    def _absolute(self, url: str) -> str:
        return urljoin(self._http.server, url)


def hashes(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of a file and, if it has several parts, of each.

    A plan asks for it, then the upload, so the result is cached until the file changes.
    """
    seen = path.stat()
    return _hashes(path, seen.st_size, seen.st_mtime_ns)


@lru_cache(REMEMBERED_MAX)
def _hashes(path: Path, size: int, changed_ns: int) -> tuple[str, tuple[str, ...]]:
    whole, parts = hashlib.sha256(), list[str]()
    with path.open("rb") as content:
        while part := content.read(PART_BYTES):
            whole.update(part)
            parts.append(hashlib.sha256(part).hexdigest())
    return whole.hexdigest(), tuple(parts) if len(parts) > 1 else ()
