# Made of src/gangline/wire/aio/files.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""Move files between this machine and the object store: by content, in the parts that the server grants, several at a time."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from gangline.core.errors import BadInput, Damaged, Unreachable
from gangline.core.files import PART_BYTES, File, Grant, Signed, absolute_url, is_safe_path
from gangline.core.runs.kept import StoredFileView
from gangline.core.views import ArtifactView, BlobView
from gangline.wire.client.calls import Calls
from gangline.wire.client.http import Http
from gangline.wire.client.waits import for_each, in_thread
from gangline.wire.hashing import Hashes, Hashing
from gangline.wire.http import problem_of
from gangline.wire.problem import to_error
from gangline.wire.transfers import (
    CHUNK,
    FILES_AT_ONCE,
    PARTS_AT_ONCE,
    PartialFile,
    ProgressCallback,
    TransferTally,
    has_bytes,
    not_written,
)

EXPIRED, TAKEN = 403, 412


class FileCalls(Calls):
    """Files that specs name by content, and files of results.

    `progress` is called with a `TransferProgress` whenever bytes have arrived, by one thread at a time.
    """

    def __init__(self, http: Http, store: httpx.Client) -> None:
        super().__init__(http)
        self._store = store

    def upload(
        self, paths: Sequence[Path], below: Path, *, progress: ProgressCallback | None = None
    ) -> tuple[File, ...]:
        """Upload files by content and return them, in order, as a spec names them: by their paths below a folder.

        A file that is stored already is not sent again. Raise `BadInput` for a file that changes meanwhile, `Unreachable` if the object
        store does not answer.
        """
        sizes = {path: (in_thread(path.stat)).st_size for path in paths}
        names = {path: path.relative_to(below).as_posix() for path in sizes}
        tally = TransferTally({names[path]: size for path, size in sizes.items()}, progress)

        def send(path: Path) -> File:
            return (self._upload(path, names[path], tally))[0]

        small = [path for path, size in sizes.items() if size <= PART_BYTES]
        sent = dict(zip(small, for_each(send, small, FILES_AT_ONCE), strict=True))
        for path in sizes:
            if path not in sent:  # the parts of a large file are sent at the same time, so large files are not
                sent[path] = send(path)
        return tuple(sent[path] for path in paths)

    def upload_content(self, content: bytes) -> File:
        """Upload bytes that are in no file, by content. Raise as `upload` does."""
        with TemporaryDirectory(prefix="gangline-") as folder:
            path = Path(folder) / "content"
            in_thread(path.write_bytes, content)
            (file,) = self.upload([path], path.parent)
            return file

    def upload_one(self, path: Path) -> tuple[File, bool]:
        """Upload a file by content. Return it by its name, and whether anything of it was sent. Raise as `upload` does."""
        size = (in_thread(path.stat)).st_size
        return self._upload(path, path.name, TransferTally({path.name: size}, None))

    def _upload(self, path: Path, name: str, tally: TransferTally) -> tuple[File, bool]:
        """Upload a file. Return it, and whether anything was sent.

        Grants expire, so ask again while each answer lists fewer missing parts: none is granted that has arrived.
        """
        size, (sha256, parts) = self._hashes(path)
        file = File(path=name, bytes=size, sha256=sha256)
        none = missing = len(parts) + 2
        while not (offered := self._offer(file, parts)).present:
            assert offered.grant is not None, "a file that is not stored comes with a grant"
            before, missing = missing, sum(signed is not None for signed in offered.grant.parts)
            if missing >= before:
                raise BadInput(f"{path} changed while it was uploaded", hint="try again")
            tally.reached(name, size - sum(_length(size, number) for number, _ in _missing(offered.grant)))
            self._send(offered.grant, path, size, partial(tally.moved, name))
        tally.reached(name, size)
        return file, missing < none

    def _hashes(self, path: Path) -> tuple[int, Hashes]:
        hashing = in_thread(Hashing, path)
        while hashing.hashes is None:
            in_thread(hashing.step)
        return hashing.bytes, hashing.hashes

    def _offer(self, file: File, parts: tuple[str, ...]) -> BlobView:
        body: dict[str, Any] = {"sha256": file.sha256, "bytes": file.bytes, "parts": parts}
        return self._http.read(BlobView, "POST", "/v1/blobs", body)

    def _send(self, grant: Grant, path: Path, size: int, moved: Callable[[int], None]) -> None:
        """Send all granted parts, or those that get through before the URLs expire."""
        refused: list[httpx.Response] = []

        def send(part: tuple[int, Signed]) -> bool:
            number, signed = part
            if refused:
                return False
            answer = self._put(signed, in_thread(_read_part, path, number), path)
            if answer.status_code == EXPIRED:
                refused.append(answer)
            elif not answer.is_success and answer.status_code != TAKEN:
                raise to_error(answer.status_code, problem_of(answer))
            else:
                moved(_length(size, number))
            return not refused

        arrived = for_each(send, _missing(grant), PARTS_AT_ONCE)
        # If URLs expire during the upload, the next offer has new ones; if none was taken, their age is not the reason.
        if refused and not any(arrived):
            raise to_error(EXPIRED, problem_of(refused[0]))

    def _put(self, signed: Signed, content: bytes, path: Path) -> httpx.Response:
        try:
            return self._store.put(self._absolute(signed.url), content=content, headers=signed.headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{path} could not be uploaded: {type(error).__name__}") from None

    def download(
        self, artifact: ArtifactView | StoredFileView, folder: Path, *, progress: ProgressCallback | None = None
    ) -> Path:
        """Download a result below a folder, complete and with the right SHA-256, or not at all. Return its path."""
        (path,) = self.download_all([artifact], folder, progress=progress)
        return path

    def download_all(
        self, files: Sequence[ArtifactView | StoredFileView], folder: Path, *, progress: ProgressCallback | None = None
    ) -> tuple[Path, ...]:
        """Download files below a folder and return their paths, in order. What is there already is not downloaded again.

        Raise `Damaged` for bytes that do not match their SHA-256, `UserError` if a file cannot be written, `Unreachable` if the object
        store does not answer. Files that are complete by then stay.
        """
        for file in files:  # a path from the network is never trusted, as a file is written there
            if not is_safe_path(file.path):
                raise Damaged(f"the server calls a result {file.path}, which cannot be the name of a file")
        tally = TransferTally({file.path: file.bytes for file in files}, progress)

        def fetch(file: ArtifactView | StoredFileView) -> Path:
            return self._download(file, folder, tally)

        return tuple(for_each(fetch, files, FILES_AT_ONCE))

    def _download(self, file: ArtifactView | StoredFileView, folder: Path, tally: TransferTally) -> Path:
        target = folder / file.path
        if in_thread(has_bytes, target, file.bytes) and (self._hashes(target))[1][0] == file.sha256:
            tally.reached(file.path, file.bytes)
            return target
        into = PartialFile(target)
        try:
            in_thread(into.open)
            tally.reached(file.path, 0)
            self._read_into(into, file, tally)
            if in_thread(into.finish, file.sha256):
                return target
        except httpx.HTTPError as error:
            raise Unreachable(f"{file.path} could not be downloaded: {type(error).__name__}") from None
        except OSError as error:
            raise not_written(target, error) from None
        finally:
            into.discard()
        raise Damaged(f"{file.path} does not match its SHA-256", hint="try again")

    def _read_into(self, into: PartialFile, file: ArtifactView | StoredFileView, tally: TransferTally) -> None:
        with self._store.stream("GET", self._absolute(file.url)) as answer:
            if not answer.is_success:
                answer.read()
                raise to_error(answer.status_code, problem_of(answer))
            for chunk in answer.iter_bytes(CHUNK):
                in_thread(into.write, chunk)
                tally.moved(file.path, len(chunk))

    def _absolute(self, url: str) -> str:
        return absolute_url(self._http.server, url)


def _missing(grant: Grant) -> list[tuple[int, Signed]]:
    return [(number, signed) for number, signed in enumerate(grant.parts) if signed is not None]


def _length(size: int, number: int) -> int:
    return max(0, min(PART_BYTES, size - number * PART_BYTES))


def _read_part(path: Path, number: int) -> bytes:
    with path.open("rb") as content:
        content.seek(number * PART_BYTES)
        return content.read(PART_BYTES)
