"""The queue as open pages follow it: looked up every two seconds, as each claim changes it."""

from dataclasses import dataclass

from gangline.core.jobs.queue.views import QueueView
from gangline.service.deployment import Deployment
from gangline.service.jobs.placing.groups import PausedGroup, paused_groups
from gangline.service.jobs.placing.queue import queue_view
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments, ReadPace
from gangline.web.queue.helps import help_step

PAGE = 50
"""Jobs of a page."""
SHARE = 15
"""A queue of ten thousand jobs takes a while to explain: it takes at most one part in this many of the server's time."""
PARTS = ("summary", "groups", "paused", "jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    """How a session looks at the queue: at `project` (None: all), after `after` jobs. It does something as a `member`, or an `operator`."""

    project: str | None
    after: int
    member: bool
    operator: bool

    def may(self, needed: str) -> bool:
        return self.operator if needed == "operator" else self.member


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownQueue:
    queue: QueueView
    paused: tuple[PausedGroup, ...]


def shown_queue(deployment: Deployment, seen: QueueSeen, now_ms: int) -> ShownQueue:
    return ShownQueue(
        queue=queue_view(deployment, seen.project, now_ms, limit=PAGE, after=seen.after),
        paused=paused_groups(deployment, seen.project),
    )


class QueueScreen:
    """Who waits, in groups and one by one."""

    project: str | None = None

    def __init__(self, seen: QueueSeen) -> None:
        self._seen = seen
        self._pace = ReadPace(SHARE)
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return False

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        begun_ms = deployment.store.now_ms()
        if not self._pace.is_due(begun_ms):
            return ""
        shown = shown_queue(deployment, self._seen, begun_ms)
        self._pace.was_read(begun_ms, deployment.store.now_ms())
        return self._fragments.changed({part: self._part(part, shown) for part in PARTS})

    def whole(self) -> str:
        return self._fragments.whole()

    def _part(self, part: str, shown: ShownQueue) -> str:
        return block("queue/parts.html", part, shown=shown, seen=self._seen, step=help_step, oob=True)
