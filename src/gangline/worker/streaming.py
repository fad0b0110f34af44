"""Begin the upload of a checkpoint's large files while the trainer still writes them."""

from collections.abc import Callable
from pathlib import Path

from gangline.core.errors import Denied, GanglineError, Unreachable
from gangline.core.files import UNKNOWN_SHA256, Beginning, Beginnings, File, Grant
from gangline.ports.server import Stale
from gangline.ports.trainer import Run, Saved, Unfinished
from gangline.ports.transfer import Task
from gangline.worker.attempt import LiveAttempt
from gangline.worker.edges import NEWS, Activity
from gangline.worker.move import LeaseLost

PARTS_AT_ONCE = 16
"""The number of parts that may wait for their upload: each was granted a URL that expires."""


class Streaming:
    """The uploads of one attempt that began before their files were complete.

    It only saves time: what it could not upload, or uploaded otherwise than it turns out, is uploaded with the whole checkpoint.
    """

    def __init__(self, live: LiveAttempt) -> None:
        self._live = live
        self._begun: dict[tuple[int, str], list[str]] = {}
        self._under_way: list[tuple[int, Task[None]]] = []
        self._works = True

    def look(self, run: Run, may_upload: Callable[[int], bool]) -> None:
        """Upload parts of the newest checkpoint that are complete since the last look, if that step may be uploaded. Raise `LeaseLost`."""
        found = run.unfinished() if self._room > 0 else None
        if found and may_upload(found.step):
            self._go_on(run, found)

    def finish(self, run: Run, saved: Saved) -> Activity[None]:
        """Upload the other parts of a checkpoint that is complete, so that the line is busy until the last one. Raise `LeaseLost`.

        What failed is left to the upload of the whole checkpoint, and so is all that was not announced.
        """
        found = Unfinished(saved.manifest.step, saved.folder)
        self._go_on(run, found)
        while not all(task.done for _, task in self._under_way):
            yield NEWS
            self._go_on(run, found)
        self._under_way.clear()

    @property
    def _room(self) -> int:
        """Return how many more parts may wait for their upload."""
        return PARTS_AT_ONCE - sum(count for count, task in self._under_way if not task.done) if self._works else 0

    def _go_on(self, run: Run, found: Unfinished) -> None:
        room = self._room
        if room > 0 and (news := self._news(run, found, room)):
            self._begin(found, news)

    def _news(self, run: Run, found: Unfinished, room: int) -> list[Beginning]:
        news = list[Beginning]()
        for file in run.parts(found.folder):
            sent = self._begun.setdefault((found.step, file.path), [])
            if sent != list(file.parts[: len(sent)]):
                sent.clear()  # it was written once more, and otherwise
            if parts := file.parts[len(sent) : len(sent) + room]:
                news.append(Beginning(path=file.path, bytes=file.bytes, first=len(sent), parts=parts))
                room -= len(parts)
        return news

    def _begin(self, found: Unfinished, news: list[Beginning]) -> None:
        live = self._live
        request = Beginnings(step=found.step, files=tuple(news))
        try:
            answer = live.edges.server.begin(live.hold, request)
        except Denied:
            raise
        except Unreachable:
            return
        except GanglineError:  # an older server has no such route
            self._works = False
            return
        if isinstance(answer, Stale):
            raise LeaseLost
        for file, grant in zip(news, answer.files, strict=True):
            self._begun[found.step, file.path] += file.parts
            self._under_way.append((len(file.parts), self._upload(found.folder, file, grant)))

    def _upload(self, folder: Path, file: Beginning, grant: Grant) -> Task[None]:
        as_file = File(path=file.path, bytes=file.bytes, sha256=UNKNOWN_SHA256)
        return self._live.edges.transfer.upload(grant, as_file, folder / file.path)
