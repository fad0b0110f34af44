"""The client's requests about what a job does and makes: events, logs, metrics, checkpoints, artifacts, and the facts of a project."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from gangline.core.pictures.views import PictureView, WinnerView
from gangline.core.runs.contract import MANIFEST, checkpoint_name
from gangline.core.runs.kept import CheckpointFilesView, CheckpointView
from gangline.core.views import ArtifactView, EndView, EventView, FactView, LogView, MetricsView, ProgressView
from gangline.wire.aio.calls import AsyncCalls
from gangline.wire.aio.files import AsyncFileCalls
from gangline.wire.aio.http import AsyncHttp
from gangline.wire.aio.stream import async_follow
from gangline.wire.aio.waits import async_in_thread
from gangline.wire.http import number_after, path_of
from gangline.wire.stream import Waiting
from gangline.wire.transfers import ProgressCallback

PAGE = 1000
"""Pictures of one answer."""
EVENT_KINDS = {"event": EventView, "progress": ProgressView, "end": EndView}
LOG_KINDS = {"log": LogView, "progress": ProgressView, "end": EndView}
FACT_KINDS = {"fact": FactView}


class AsyncFactCalls(AsyncCalls):
    """The events of all jobs of the project, in one numbered stream."""

    async def list(self, after: int = 0, *, last: int | None = None) -> AsyncIterator[FactView]:
        """Yield all facts so far after the fact number `after`; with `last`, at most this many of the newest.

        Pages are read as they are needed.
        """
        params = {"after": after} if last is None else {"last": last}
        while page := await self._http.read(tuple[FactView, ...], "GET", "/v1/facts", params=params):
            for fact in page:
                yield fact
            if last is not None:
                return
            params = {"after": page[-1].number}

    async def newest(self) -> int:
        """Return the number of the newest fact; 0 if there is none. `follow` after it yields only what happens from now on."""
        return number_after(await self._http.ask("GET", "/v1/facts", params={"last": 0}))

    def follow(
        self, after: int = 0, *, timeout_s: float | None = None, waiting: Waiting | None = None
    ) -> AsyncGenerator[FactView]:
        """Yield the facts after the number `after`, each once, and then those that come, for `timeout_s` seconds or without end.

        If the connection is lost, resume after the last fact and call `waiting` each time. To resume in another process, keep the
        `number` of the last fact that you have handled.
        """
        return async_follow(
            self._http, "/v1/facts/stream", str(after), FACT_KINDS, timeout_s=timeout_s, waiting=waiting
        )


class AsyncEventCalls(AsyncCalls):
    """The events of one job."""

    async def list(self, job: str, after: int = 0) -> AsyncIterator[EventView]:
        """Yield a job's events so far after the event number `after`."""
        path = path_of("jobs", job, "events")
        for event in await self._http.read(tuple[EventView, ...], "GET", path, params={"after": after}):
            yield event

    def follow(
        self, job: str, after: int = 0, *, timeout_s: float | None = None, waiting: Waiting | None = None
    ) -> AsyncGenerator[EventView | ProgressView | EndView]:
        """Yield a job's events as they happen, with its progress in between; the last message is an `EndView`.

        It ends without one after `timeout_s` seconds. If the connection is lost, resume after the last event and call `waiting` each time.
        """
        path = path_of("jobs", job, "events", "stream")
        return async_follow(self._http, path, str(after), EVENT_KINDS, timeout_s=timeout_s, waiting=waiting)


class AsyncLogCalls(AsyncCalls):
    """What a job's trainers print."""

    async def get(self, job: str, after: str | None = None, *, before: str | None = None) -> LogView:
        """Return a part of the log. To read on, ask again after the answer's `next`, until `text` is empty.

        With `before`, which is such a position too, the part has nothing that begins there or later.
        """
        params = {name: place for name, place in (("after", after), ("before", before)) if place}
        return await self._http.read(LogView, "GET", path_of("jobs", job, "logs"), params=params)

    async def follow(
        self,
        job: str,
        after: str = "",
        *,
        timeout_s: float | None = None,
        waiting: Waiting | None = None,
        progress: Callable[[ProgressView], object] | None = None,
    ) -> AsyncGenerator[LogView]:
        """Yield what the job's trainers print, until the job has ended or for `timeout_s` seconds.

        `progress` is called with what the job is doing meanwhile.
        """
        path = path_of("jobs", job, "logs", "stream") + "?progress=true" * (progress is not None)
        following = async_follow(self._http, path, after, LOG_KINDS, timeout_s=timeout_s, waiting=waiting)
        async with aclosing(following) as messages:
            async for message in messages:
                if isinstance(message, LogView):
                    yield message
                elif isinstance(message, ProgressView) and progress is not None:
                    progress(message)


class AsyncMetricCalls(AsyncCalls):
    """What a job's trainers measure."""

    async def get(self, job: str, after: int = 0) -> MetricsView:
        """Return what the job's trainers measured, as one run, after a step. To follow it, ask again after the answer's `next`."""
        return await self._http.read(MetricsView, "GET", path_of("jobs", job, "metrics"), params={"after": after})


class AsyncArtifactCalls(AsyncCalls):
    """The results of a job: weights, model card, pictures."""

    def __init__(self, http: AsyncHttp, files: AsyncFileCalls) -> None:
        super().__init__(http)
        self._files = files

    async def list(self, job: str) -> AsyncIterator[ArtifactView]:
        """Yield the results so far. A URL needs no key, and expires: list again for fresh ones."""
        for artifact in await self._http.read(tuple[ArtifactView, ...], "GET", path_of("jobs", job, "artifacts")):
            yield artifact

    async def download(
        self, job: str, folder: str | Path, *, progress: ProgressCallback | None = None
    ) -> tuple[Path, ...]:
        """Download the results so far below a folder, and return their paths. What is there already is not downloaded again."""
        found = [artifact async for artifact in self.list(job)]
        return await self._files.download_all(found, Path(folder), progress=progress)


class AsyncPictureCalls(AsyncCalls):
    """The sample pictures of a job, and the choice of its best step."""

    async def list(self, job: str) -> AsyncIterator[PictureView]:
        """Yield the sample pictures so far, by prompt, seed and step. A URL needs no key and expires: list again for fresh ones."""
        params: dict[str, str] = {}
        while True:
            path = path_of("jobs", job, "pictures")
            page = await self._http.read(tuple[PictureView, ...], "GET", path, params={"limit": PAGE} | params)
            for picture in page:
                yield picture
            if len(page) < PAGE:
                return
            params = {"after": page[-1].path}

    async def thumbnail(self, job: str, sha256: str) -> bytes:
        """Return a small copy of a picture, a JPEG of at most 256 pixels. Raise `NotFound` before it was made, some seconds after the
        picture has arrived."""
        return (await self._http.ask("GET", path_of("jobs", job, "pictures", sha256, "thumbnail"))).content

    async def choose(self, job: str, step: int) -> WinnerView:
        """Choose the step whose pictures are best: its weights are kept, and the job gets the label `winner`. A step that was chosen before
        is not any more. Raise `NotFound` if its weights are not stored."""
        return await self._http.read(WinnerView, "PUT", path_of("jobs", job, "winner"), {"step": step})

    async def undo_choice(self, job: str) -> WinnerView:
        """Undo the choice: the weights of the step expire by their age again, and the label goes."""
        return await self._http.read(WinnerView, "DELETE", path_of("jobs", job, "winner"))


class AsyncCheckpointCalls(AsyncCalls):
    """The checkpoints that a job keeps."""

    def __init__(self, http: AsyncHttp, files: AsyncFileCalls) -> None:
        super().__init__(http)
        self._files = files

    async def list(self, job: str) -> AsyncIterator[CheckpointView]:
        """Yield the checkpoints that a job keeps, newest first."""
        for kept in await self._http.read(tuple[CheckpointView, ...], "GET", path_of("jobs", job, "checkpoints")):
            yield kept

    async def get(self, job: str, step: int) -> CheckpointFilesView:
        """Return the files of a job's checkpoint, each with a URL that expires."""
        return await self._http.read(CheckpointFilesView, "GET", path_of("jobs", job, "checkpoints", str(step)))

    async def download(
        self, job: str, step: int, folder: str | Path, *, progress: ProgressCallback | None = None
    ) -> Path:
        """Download a checkpoint into a folder of its own below `folder`, and return that. Each file is checked; the manifest comes last."""
        found = await self.get(job, step)
        target = Path(folder) / checkpoint_name(found.step)
        await self._files.download_all(found.files, target, progress=progress)
        await async_in_thread((target / MANIFEST).write_text, json.dumps(found.manifest))
        return target

    async def pin(self, job: str, step: int, *, pinned: bool = True) -> tuple[CheckpointView, ...]:
        """Pin a checkpoint: it is kept until it is unpinned. With `pinned=False`, unpin it: it expires by age again."""
        path = path_of("jobs", job, "checkpoints", str(step), "pin")
        return await self._http.read(tuple[CheckpointView, ...], "PUT" if pinned else "DELETE", path)
