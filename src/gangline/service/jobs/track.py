"""Send every job's metrics and pictures to a tracker: only steps that can no longer be undone, and each step once.

A mark in the store says how far a job was sent. It moves only after the tracker has everything before it. A server that takes over, however
the last one ended, therefore asks the tracker first what it has. One server at a time sends: the one whose turn it is.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from gangline.core.errors import GanglineError, NotFound, Unreachable
from gangline.core.job import ENDED
from gangline.core.jobs.retry import retry_s
from gangline.core.runs.metrics import Measured
from gangline.ports.store import Row, guard, write
from gangline.ports.tracker import Ending, TrackedPicture, TrackedRun, Tracker
from gangline.service.deployment import Deployment
from gangline.service.jobs import query
from gangline.service.jobs.metrics import load_series
from gangline.service.outage import has_turn

AT_ONCE = 1000
"""The number of points in one request."""
PICTURES_AT_ONCE = 16
PICTURE_BYTES_MAX = 20_000_000
"""Larger pictures are not sent."""
LIST_MAX = 20
"""Longer lists among the settings are replaced by their length."""
TAG_MAX = 64
STEP = re.compile(r"step-(\d{1,12})")
log = logging.getLogger("gangline.trackers")


@dataclass(slots=True)
class _Trouble:
    tries: int
    until_ms: int


class Tracking:
    """Sends jobs to one tracker. It remembers the open runs, the last step that each has, and which runs failed a moment ago."""

    def __init__(self, deployment: Deployment, tracker: Tracker, rng: Random) -> None:
        self._deployment = deployment
        self._tracker = tracker
        self._rng = rng
        self._told: dict[str, int] = {}
        self._troubles: dict[str, _Trouble] = {}

    def look(self, now_ms: int) -> None:
        """Send the news of every job, once. If the tracker does not answer, the remaining jobs are not tried."""
        if not has_turn(self._deployment, now_ms):
            self.close()
            return
        open_jobs = self._deployment.store.load("to_track", tracker=self._tracker.name)
        for row in open_jobs:
            trouble = self._troubles.get(row["job"])
            if trouble and now_ms < trouble.until_ms:
                continue
            try:
                self._tell(row, now_ms)
                self._troubles.pop(row["job"], None)
            except GanglineError as error:
                self._failed(row, error, now_ms)
                if isinstance(error, Unreachable):
                    return
        if not open_jobs:
            self.close()

    def close(self) -> None:
        self._told.clear()
        self._tracker.close()

    def _tell(self, row: Row, now_ms: int) -> None:
        job, ended = row["job"], row["state"] in ENDED
        up_to = None if ended else row["committed"] or 0
        if up_to is not None and up_to <= row["step"]:
            return
        told = self._open(row)
        points = [point for point in load_series(self._deployment, job, up_to) if point.step > told]
        for start in range(0, len(points), AT_ONCE):
            self._write(job, points[start : start + AT_ONCE], self._pictures(job))
        if ended:
            while pictures := self._pictures(job):
                self._write(job, [], pictures)
            self._tracker.end(job, self._ending(job, now_ms))
            self._deployment.store.apply(write("end_tracking", job=job, tracker=self._tracker.name))
            del self._told[job]

    def _open(self, row: Row) -> int:
        """Return the last step that the tracker has.

        If the mark changed since this server set it, or this server has just started, the tracker is asked.
        """
        job, mark = row["job"], row["step"]
        if self._told.get(job) != mark:
            told = self._tracker.open(self._run(job), mark)
            self._mark(job, mark, told)
        return self._told[job]

    def _write(self, job: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        before = self._told[job]
        # The tracker comes before the mark: a server that stops in between asks the tracker what it has, and sends nothing twice.
        self._tracker.write(job, points, [picture for picture in pictures if picture.content])
        self._mark(job, before, points[-1].step if points else before, pictures)

    def _mark(self, job: str, before: int, told: int, pictures: Sequence[TrackedPicture] = ()) -> None:
        tracker = self._tracker.name
        marked = self._deployment.store.apply(
            guard("tracked", job=job, tracker=tracker, step=told, seen=before),
            *(write("picture_tracked", job=job, tracker=tracker, path=picture.path) for picture in pictures),
        )
        if not marked:
            raise GanglineError(f"another server reported {job} to {tracker} at the same time")
        self._told[job] = told

    def _pictures(self, job: str) -> list[TrackedPicture]:
        """Return the next pictures to send. A picture whose bytes are gone has empty content."""
        last = self._deployment.store.load("job", id=job)[0]["steps"]
        wanted = {"tracker": self._tracker.name, "bytes_max": PICTURE_BYTES_MAX, "limit": PICTURES_AT_ONCE}
        return [
            TrackedPicture(path=row["path"], step=_step_of(row["path"], last), content=self._content(row["key"]))
            for row in self._deployment.store.load("pictures_to_track", job=job, **wanted)
        ]

    def _content(self, key: str) -> bytes:
        try:
            return self._deployment.objects.read(key)
        except NotFound:
            return b""

    def _run(self, job: str) -> TrackedRun:
        row = self._deployment.store.load("job", id=job)[0]
        return TrackedRun(
            id=job,
            project=row["project"],
            name=row["name"],
            tags=(row["kind"], row["base"][:TAG_MAX]),
            settings=_short(json.loads(row["spec"])),
        )

    def _ending(self, job: str, now_ms: int) -> Ending:
        row = self._deployment.store.load("job", id=job)[0]
        found = query.job(self._deployment, row["project"], job, now_ms)
        return Ending(
            state=row["state"],
            summary={
                "because": row["because"],
                **({} if "node time" in found.summary.cost_lacks else {"cost_usd": found.summary.cost_usd}),
                "attempts": found.summary.attempts,
                "interruptions": found.summary.interruptions,
                "steps_redone": found.steps_redone,
                "seconds_lost": found.seconds_lost,
            },
        )

    def _failed(self, row: Row, error: GanglineError, now_ms: int) -> None:
        """Record the error where people look, once for each reason, and schedule a retry, which asks the tracker first what it has."""
        job, tracker = row["job"], self._tracker.name
        tries = self._troubles[job].tries + 1 if job in self._troubles else 0
        self._troubles[job] = _Trouble(tries, now_ms + round(1000 * retry_s(tries, self._rng)))
        self._told.pop(job, None)
        because = f"{error.message} ({error.hint})" if error.hint else error.message
        if because != row["because"]:
            log.warning("nothing can be sent to %s about %s: %s", tracker, job, because)
            self._deployment.store.apply(write("say_why_untracked", job=job, tracker=tracker, because=because))


def _step_of(path: str, last: int) -> int:
    found = STEP.search(path)
    return int(found[1]) if found else last


def _short(value: Any) -> Any:
    """Return a spec's settings for a tracker, with long lists, such as photos, replaced by their length."""
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    return len(value) if isinstance(value, list) and (len(value) > LIST_MAX or _are_files(value)) else value


def _are_files(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(part, dict) and "sha256" in part for part in value)
