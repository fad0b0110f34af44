"""The client's requests about data sets of photos: push a folder in batches, wait for its check, pull, list and remove."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gangline.core.datasets.manifest import changed_files, manifest_json
from gangline.core.datasets.names import parse_dataset_reference
from gangline.core.datasets.views import (
    NOTHING_CHECKS,
    DatasetFileView,
    DatasetRemovalView,
    DatasetVersionView,
    DatasetView,
    MissingBlobsView,
)
from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.files import PART_BYTES, File, Signed, absolute_url
from gangline.core.parsing import to_json
from gangline.core.runs.kept import StoredFileView
from gangline.wire.aio.calls import AsyncCalls
from gangline.wire.aio.files import AsyncFileCalls
from gangline.wire.aio.http import AsyncHttp
from gangline.wire.aio.waits import async_for_each, async_in_thread, async_sleep
from gangline.wire.hashing import hashes
from gangline.wire.http import LINES_TIMEOUT, path_of, problem_of
from gangline.wire.problem import to_error
from gangline.wire.transfers import (
    FILES_AT_ONCE,
    ProgressCallback,
    PulledFiles,
    PushedVersion,
    TransferProgress,
    TransferTally,
    UploadedFiles,
    refuse_links_out,
)

BATCH = 200
BATCHES_AT_ONCE = 3
"""While the files of one batch are sent, those of the next one are hashed."""
OFFERS_MAX = 3
"""A URL may expire during an upload, and is asked for again."""
LISTED_BYTES_MAX = 500_000
"""A longer list of files is uploaded before the request that names it."""
CHANGES_MAX = 2_000
"""More paths to remove are no request of their own, either."""
PAGE = 1000
LOOK_EVERY_S, LOOK_EVERY_S_MAX, SLOWER = 0.5, 5.0, 1.5
"""A check of some photos ends within a second, one of many thousands takes an hour."""
EXPIRED, TAKEN = 403, 412


class AsyncDatasetCalls(AsyncCalls):
    """Data sets of photos: named, in versions that never change."""

    def __init__(self, http: AsyncHttp, files: AsyncFileCalls, store: httpx.AsyncClient) -> None:
        super().__init__(http)
        self._files = files
        self._store = store

    async def push(
        self, name: str, files: Mapping[str, Path], *, progress: ProgressCallback | None = None
    ) -> PushedVersion:
        """Upload files of this machine, given by their paths in the data set, and return the version that they are.

        What is stored already is not sent again, also if an earlier push was killed in between. Raise `BadInput` for a file that no data
        set may have or that changes meanwhile, `Unreachable` if the object store does not answer.
        """
        path_of("datasets", name)  # nothing is sent for a name that no data set can have
        sent = await self.upload(files, progress=progress)
        return PushedVersion(version=await self.add(name, sent.files), sent=sent.sent, stored=sent.stored)

    async def upload(self, files: Mapping[str, Path], *, progress: ProgressCallback | None = None) -> UploadedFiles:
        """Upload many files by content, in batches, and return them with their paths. Raise as `push` does."""
        sizes = {path: (await async_in_thread(local.stat)).st_size for path, local in files.items()}
        tally = TransferTally(sizes, progress)
        small = sorted(path for path, size in sizes.items() if size <= PART_BYTES)
        batches = [small[start : start + BATCH] for start in range(0, len(small), BATCH)]

        async def send(batch: Sequence[str]) -> UploadedFiles:
            return await self._upload_batch({path: files[path] for path in batch}, tally)

        found = await async_for_each(send, batches, BATCHES_AT_ONCE)
        for path in sorted(sizes.keys() - {*small}):  # the parts of a large file are sent at the same time
            large, is_new = await self._files.upload_one(files[path])
            tally.reached(path, large.bytes)
            file = File(path=path, bytes=large.bytes, sha256=large.sha256)
            found.append(UploadedFiles(files=(file,), sent=int(is_new)))
        return UploadedFiles(
            files=tuple(file for part in found for file in part.files), sent=sum(part.sent for part in found)
        )

    async def _upload_batch(self, files: Mapping[str, Path], tally: TransferTally) -> UploadedFiles:
        async def described(path: str) -> File:
            # No result is remembered on disk: a file may change and keep its length and its time, and a push would then name old bytes.
            sha256, _ = await async_in_thread(hashes, files[path])
            return File(path=path, bytes=(await async_in_thread(files[path].stat)).st_size, sha256=sha256)

        found = await async_for_each(described, list(files), FILES_AT_ONCE)
        of_content, statuses = {file.sha256: file for file in found}, dict[str, int]()
        sent = set[str]()
        missing = await self._missing(list(of_content.values()))
        for _ in range(OFFERS_MAX):
            if not missing:
                break
            put = partial(self._put_file, {sha256: (file, files[file.path]) for sha256, file in of_content.items()})
            answers = await async_for_each(put, list(missing.items()), FILES_AT_ONCE)
            statuses = dict(zip(missing, answers, strict=True))
            sent |= {sha256 for sha256, status in statuses.items() if status not in (EXPIRED, TAKEN)}
            missing = await self._missing(list(of_content.values()))
        if missing:
            first = next(iter(missing))
            raise _not_taken(of_content[first], statuses.get(first))
        for file in found:
            tally.reached(file.path, file.bytes)
        return UploadedFiles(files=tuple(found), sent=len(sent))

    async def _missing(self, files: Sequence[File]) -> dict[str, Signed]:
        """Return requests that upload those of these files that are not stored, by their SHA-256. The others are recorded."""
        body = {"files": [{"sha256": file.sha256, "bytes": file.bytes} for file in files]}
        answer = await self._http.read(MissingBlobsView, "POST", "/v1/blobs/missing", body, timeout=LINES_TIMEOUT)
        return {each.sha256: signed for each in answer.missing for signed in each.grant.parts if signed is not None}

    async def _put_file(self, local: Mapping[str, tuple[File, Path]], missing: tuple[str, Signed]) -> int:
        """Send a file. Return the status of the answer: the store took it, has it already, or refused the URL, which may have expired."""
        (file, path), signed = local[missing[0]], missing[1]
        content = await async_in_thread(path.read_bytes)
        if len(content) != file.bytes:  # the request is signed for that length
            raise _changed(file)
        try:
            url = absolute_url(self._http.server, signed.url)
            answer = await self._store.put(url, content=content, headers=signed.headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{path} could not be uploaded: {type(error).__name__}") from None
        if not answer.is_success and answer.status_code not in (EXPIRED, TAKEN):
            raise to_error(answer.status_code, problem_of(answer))
        return answer.status_code

    async def add(self, name: str, files: Sequence[File]) -> DatasetVersionView:
        """Add a version of files that were uploaded, or return the newest one if it has exactly these. Raise `BadInput`."""
        listed = manifest_json((file.path, file.sha256, file.bytes) for file in files)
        body: dict[str, Any] = {"files": [to_json(file) for file in files]}
        if len(listed) > LISTED_BYTES_MAX:
            manifest = await self._files.upload_content(listed.encode())
            body = {"manifest": {"sha256": manifest.sha256, "bytes": manifest.bytes}}
        return await self._added(name, body)

    async def change(
        self, name: str, number: int, *, put: Sequence[File] = (), remove: Sequence[str] = ()
    ) -> DatasetVersionView:
        """Add a version like an earlier one, without some paths, and with files that were uploaded in place of or beside its own.

        Many changes are applied to the list of the earlier version's files here, and all of it is uploaded. Raise `BadInput` or `NotFound`.
        `left_out` of the answer are newer versions than that one, which are not in the new one.
        """
        body = {"from": number, "put": [to_json(file) for file in put], "remove": list(remove)}
        if len(remove) <= CHANGES_MAX and len(json.dumps(body).encode()) <= LISTED_BYTES_MAX:
            return await self._added(name, body)
        before = {
            file.path: {"path": file.path, "bytes": file.bytes, "sha256": file.sha256}
            async for file in self.files(name, number)
        }
        return await self.add(name, [File(**file) for file in changed_files(before, tuple(put), remove).values()])

    async def _added(self, name: str, body: dict[str, Any]) -> DatasetVersionView:
        path = path_of("datasets", name, "versions")
        return await self._http.read(DatasetVersionView, "POST", path, body, timeout=LINES_TIMEOUT)

    async def list(self) -> AsyncIterator[DatasetView]:
        """Yield the project's data sets, each with its newest version."""
        for found in await self._http.read(tuple[DatasetView, ...], "GET", "/v1/datasets"):
            yield found

    async def versions(self, name: str) -> tuple[DatasetVersionView, ...]:
        """Return the versions of a data set, newest first, without what their checks found. Raise `NotFound`."""
        found, params = list[DatasetVersionView](), {"limit": PAGE}
        while True:
            path = path_of("datasets", name)
            page = await self._http.read(tuple[DatasetVersionView, ...], "GET", path, params=params)
            found += page
            if len(page) < PAGE:
                return tuple(found)
            params = {"limit": PAGE, "below": page[-1].number}

    async def get(self, name: str, number: int) -> DatasetVersionView:
        """Return a version. Raise `NotFound`."""
        return await self._http.read(DatasetVersionView, "GET", path_of("datasets", name, str(number)))

    async def find(self, reference: str) -> DatasetVersionView:
        """Return the version that `NAME@NUMBER` names, or the newest one of `NAME` that is ready. Raise `NotFound`, or `BadInput` if none
        is ready."""
        wanted = parse_dataset_reference(reference)
        if wanted.number is not None:
            return await self.get(wanted.name, wanted.number)
        found = await self.versions(wanted.name)
        ready = next((version for version in found if version.state == "ready"), None)
        if ready is None:
            raise BadInput(
                f"no version of {wanted.name} is ready; the newest is {found[0].state}: {found[0].because}",
                hint=f"`gangline datasets show {wanted.name}` shows them all",
            )
        return ready

    async def wait(self, name: str, number: int) -> DatasetVersionView:
        """Wait until a version is checked, and return it: it is ready or refused.

        Raise `NotFound` if it is removed meanwhile, `Unreachable` if the server checks no data sets.
        """
        pause_s = LOOK_EVERY_S
        while (found := await self.get(name, number)).state == "checking":
            if found.because == NOTHING_CHECKS:
                raise Unreachable(
                    f"{found.reference} waits for its check, but {NOTHING_CHECKS}", hint="ask its operator"
                )
            await async_sleep(pause_s)
            pause_s = min(LOOK_EVERY_S_MAX, pause_s * SLOWER)
        return found

    async def files(self, name: str, number: int) -> AsyncIterator[DatasetFileView]:
        """Yield the files of a version in the order of their paths, with what its check found of pictures."""
        after = ""
        while True:
            params = {"limit": PAGE} | ({"after": after} if after else {})
            path = path_of("datasets", name, str(number), "files")
            page = await self._http.read(tuple[DatasetFileView, ...], "GET", path, params=params)
            for file in page:
                yield file
            if len(page) < PAGE:
                return
            after = page[-1].path

    async def thumbnail(self, name: str, number: int, sha256: str) -> bytes:
        """Return a small copy of a picture, a JPEG of at most 256 pixels. Raise `NotFound` before it was checked."""
        return (await self._http.ask("GET", path_of("datasets", name, str(number), "thumbnails", sha256))).content

    async def pull(
        self, name: str, number: int, folder: Path, *, progress: ProgressCallback | None = None
    ) -> PulledFiles:
        """Download a version below a folder, each file complete and with the right SHA-256. What is there already is not downloaded again.

        Raise `Damaged`, `UserError` if a file cannot be written, `BadInput` if a link there leads out of the folder.
        """
        version, page = await self.get(name, number), list[StoredFileView]()
        moved, done, count = set[str](), 0, 0

        def note(moving: TransferProgress) -> None:
            if moving.file_bytes_done < moving.file_bytes:
                moved.add(moving.path)
            if progress:
                progress(moving.within(done, version.bytes))

        async for file in self.files(name, number):
            page.append(StoredFileView(path=file.path, bytes=file.bytes, sha256=file.sha256, url=file.url))
            count += 1
            if len(page) == PAGE:  # its URLs are used before they expire
                await self._pull_page(page, folder, note)
                done += sum(each.bytes for each in page)
                page = []
        await self._pull_page(page, folder, note)
        return PulledFiles(files=count, downloaded=len(moved), bytes=version.bytes)

    async def _pull_page(self, page: Sequence[StoredFileView], folder: Path, progress: ProgressCallback) -> None:
        await async_in_thread(refuse_links_out, folder, [file.path for file in page])
        await self._files.download_all(page, folder, progress=progress)

    async def removal(self, name: str, number: int | None = None) -> DatasetRemovalView:
        """Return what `remove` would remove. Raise `NotFound`, or `BadInput` while a job that names it has not ended."""
        return await self._http.read(DatasetRemovalView, "GET", f"{_place(name, number)}/removal")

    async def remove(self, name: str, number: int | None = None, *, versions: Sequence[int] = ()) -> DatasetRemovalView:
        """Remove a version, or a data set with all of its versions. Raise as `removal` does.

        With `versions`, those of a `removal` that was looked at, a data set that has other ones by now is not removed: raise `BadInput`.
        """
        params = {"versions": list(versions)} if number is None and versions else None
        place = _place(name, number)
        return await self._http.read(DatasetRemovalView, "DELETE", place, params=params, timeout=LINES_TIMEOUT)


def _not_taken(file: File, status: int | None) -> GanglineError:
    """Return why a file is not stored though it was sent: the store refused it, or took other bytes."""
    if status in (EXPIRED, TAKEN):
        return Unreachable(
            f"the object store refused {file.path} with status {status}",
            hint="try again; if it is refused again, ask the server's operator whether its key may write to the bucket",
        )
    return _changed(file)


def _changed(file: File) -> BadInput:
    return BadInput(f"{file.path} changed while it was uploaded", hint="try again")


def _place(name: str, number: int | None) -> str:
    return path_of("datasets", name, *([] if number is None else [str(number)]))
