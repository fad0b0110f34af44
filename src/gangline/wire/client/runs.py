# Made of src/gangline/wire/aio/runs.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about what a job does and makes: events, logs, metrics, checkpoints, artifacts, and the facts of a project."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

from gangline.core.pictures.views import PictureView, WinnerView
from gangline.core.runs.contract import MANIFEST, checkpoint_name
from gangline.core.runs.kept import CheckpointFilesView, CheckpointView
from gangline.core.views import ArtifactView, EndView, EventView, FactView, LogView, MetricsView, ProgressView
from gangline.wire.client.calls import Calls
from gangline.wire.client.files import FileCalls
from gangline.wire.client.http import Http
from gangline.wire.client.stream import follow
from gangline.wire.client.waits import in_thread
from gangline.wire.http import number_after, path_of
from gangline.wire.stream import Waiting
from gangline.wire.transfers import ProgressCallback

PAGE = 1000
"""Pictures of one answer."""
EVENT_KINDS = {"event": EventView, "progress": ProgressView, "end": EndView}
LOG_KINDS = {"log": LogView, "progress": ProgressView, "end": EndView}
FACT_KINDS = {"fact": FactView}


class FactCalls(Calls):
    """The events of all jobs of the project, in one numbered stream."""

    def list(self, after: int = 0, *, last: int | None = None) -> Iterator[FactView]:
        """Yield all facts so far after the fact number `after`; with `last`, at most this many of the newest.

        Pages are read as they are needed.
        """
        params = {"after": after} if last is None else {"last": last}
        while page := self._http.read(tuple[FactView, ...], "GET", "/v1/facts", params=params):
            for fact in page:
                yield fact
            if last is not None:
                return
            params = {"after": page[-1].number}

    def newest(self) -> int:
        """Return the number of the newest fact; 0 if there is none. `follow` after it yields only what happens from now on."""
        return number_after(self._http.ask("GET", "/v1/facts", params={"last": 0}))

    def follow(
        self, after: int = 0, *, timeout_s: float | None = None, waiting: Waiting | None = None
    ) -> Generator[FactView]:
        """Yield the facts after the number `after`, each once, and then those that come, for `timeout_s` seconds or without end.

        If the connection is lost, resume after the last fact and call `waiting` each time. To resume in another process, keep the
        `number` of the last fact that you have handled.
        """
        return follow(self._http, "/v1/facts/stream", str(after), FACT_KINDS, timeout_s=timeout_s, waiting=waiting)


class EventCalls(Calls):
    """The events of one job."""

    def list(self, job: str, after: int = 0) -> Iterator[EventView]:
        """Yield a job's events so far after the event number `after`."""
        path = path_of("jobs", job, "events")
        for event in self._http.read(tuple[EventView, ...], "GET", path, params={"after": after}):
            yield event

    def follow(
        self, job: str, after: int = 0, *, timeout_s: float | None = None, waiting: Waiting | None = None
    ) -> Generator[EventView | ProgressView | EndView]:
        """Yield a job's events as they happen, with its progress in between; the last message is an `EndView`.

        It ends without one after `timeout_s` seconds. If the connection is lost, resume after the last event and call `waiting` each time.
        """
        path = path_of("jobs", job, "events", "stream")
        return follow(self._http, path, str(after), EVENT_KINDS, timeout_s=timeout_s, waiting=waiting)


class LogCalls(Calls):
    """What a job's trainers print."""

    def get(self, job: str, after: str | None = None, *, before: str | None = None) -> LogView:
        """Return a part of the log. To read on, ask again after the answer's `next`, until `text` is empty.

        With `before`, which is such a position too, the part has nothing that begins there or later.
        """
        params = {name: place for name, place in (("after", after), ("before", before)) if place}
        return self._http.read(LogView, "GET", path_of("jobs", job, "logs"), params=params)

    def follow(
        self,
        job: str,
        after: str = "",
        *,
        timeout_s: float | None = None,
        waiting: Waiting | None = None,
        progress: Callable[[ProgressView], object] | None = None,
    ) -> Generator[LogView]:
        """Yield what the job's trainers print, until the job has ended or for `timeout_s` seconds.

        `progress` is called with what the job is doing meanwhile.
        """
        path = path_of("jobs", job, "logs", "stream") + "?progress=true" * (progress is not None)
        following = follow(self._http, path, after, LOG_KINDS, timeout_s=timeout_s, waiting=waiting)
        with closing(following) as messages:
            for message in messages:
                if isinstance(message, LogView):
                    yield message
                elif isinstance(message, ProgressView) and progress is not None:
                    progress(message)


class MetricCalls(Calls):
    """What a job's trainers measure."""

    def get(self, job: str, after: int = 0) -> MetricsView:
        """Return what the job's trainers measured, as one run, after a step. To follow it, ask again after the answer's `next`."""
        return self._http.read(MetricsView, "GET", path_of("jobs", job, "metrics"), params={"after": after})


class ArtifactCalls(Calls):
    """The results of a job: weights, model card, pictures."""

    def __init__(self, http: Http, files: FileCalls) -> None:
        super().__init__(http)
        self._files = files

    def list(self, job: str) -> Iterator[ArtifactView]:
        """Yield the results so far. A URL needs no key, and expires: list again for fresh ones."""
        for artifact in self._http.read(tuple[ArtifactView, ...], "GET", path_of("jobs", job, "artifacts")):
            yield artifact

    def download(self, job: str, folder: str | Path, *, progress: ProgressCallback | None = None) -> tuple[Path, ...]:
        """Download the results so far below a folder, and return their paths. What is there already is not downloaded again."""
        found = [artifact for artifact in self.list(job)]
        return self._files.download_all(found, Path(folder), progress=progress)


class PictureCalls(Calls):
    """The sample pictures of a job, and the choice of its best step."""

    def list(self, job: str) -> Iterator[PictureView]:
        """Yield the sample pictures so far, by prompt, seed and step. A URL needs no key and expires: list again for fresh ones."""
        params: dict[str, str] = {}
        while True:
            path = path_of("jobs", job, "pictures")
            page = self._http.read(tuple[PictureView, ...], "GET", path, params={"limit": PAGE} | params)
            for picture in page:
                yield picture
            if len(page) < PAGE:
                return
            params = {"after": page[-1].path}

    def thumbnail(self, job: str, sha256: str) -> bytes:
        """Return a small copy of a picture, a JPEG of at most 256 pixels. Raise `NotFound` before it was made, some seconds after the
        picture has arrived."""
        return (self._http.ask("GET", path_of("jobs", job, "pictures", sha256, "thumbnail"))).content

    def choose(self, job: str, step: int) -> WinnerView:
        """Choose the step whose pictures are best: its weights are kept, and the job gets the label `winner`. A step that was chosen before
        is not any more. Raise `NotFound` if its weights are not stored."""
        return self._http.read(WinnerView, "PUT", path_of("jobs", job, "winner"), {"step": step})

    def undo_choice(self, job: str) -> WinnerView:
        """Undo the choice: the weights of the step expire by their age again, and the label goes."""
        return self._http.read(WinnerView, "DELETE", path_of("jobs", job, "winner"))


class CheckpointCalls(Calls):
    """The checkpoints that a job keeps."""

    def __init__(self, http: Http, files: FileCalls) -> None:
        super().__init__(http)
        self._files = files

    def list(self, job: str) -> Iterator[CheckpointView]:
        """Yield the checkpoints that a job keeps, newest first."""
        for kept in self._http.read(tuple[CheckpointView, ...], "GET", path_of("jobs", job, "checkpoints")):
            yield kept

    def get(self, job: str, step: int) -> CheckpointFilesView:
        """Return the files of a job's checkpoint, each with a URL that expires."""
        return self._http.read(CheckpointFilesView, "GET", path_of("jobs", job, "checkpoints", str(step)))

    def download(self, job: str, step: int, folder: str | Path, *, progress: ProgressCallback | None = None) -> Path:
        """Download a checkpoint into a folder of its own below `folder`, and return that. Each file is checked; the manifest comes last."""
        found = self.get(job, step)
        target = Path(folder) / checkpoint_name(found.step)
        self._files.download_all(found.files, target, progress=progress)
        in_thread((target / MANIFEST).write_text, json.dumps(found.manifest))
        return target

    def pin(self, job: str, step: int, *, pinned: bool = True) -> tuple[CheckpointView, ...]:
        """Pin a checkpoint: it is kept until it is unpinned. With `pinned=False`, unpin it: it expires by age again."""
        path = path_of("jobs", job, "checkpoints", str(step), "pin")
        return self._http.read(tuple[CheckpointView, ...], "PUT" if pinned else "DELETE", path)
