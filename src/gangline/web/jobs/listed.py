"""The list of jobs as an open page follows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangline.core.jobs.lists.cursor import write_cursor
from gangline.core.jobs.lists.filters import JobFilters, ListPosition
from gangline.core.views import JobPage, JobSummary
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import ids_of_jobs, page_of_jobs
from gangline.service.jobs.lists.summaries import summaries
from gangline.web.frame.rendering import block, rendered
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

FIRST = 50
"""Jobs of a page as it is loaded."""
FOLLOWED_MAX = 250
"""Jobs that an open list follows, the newest first: older ones are as they were when they were shown."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The jobs of a list, and whether there are no others below them."""

    ids: tuple[str, ...]
    complete: bool


class JobsScreen:
    """The newest jobs of a list. Those that are new to it come in at their places, and those that no longer belong to it leave.

    A page shows as many of them as its reader has scrolled to. So a row comes in before the one that stands below it, or before the
    element `end`, which a page has that shows all: where the page has neither, the row is among those that it loads as it is scrolled.
    """

    def __init__(self, project: str, filters: JobFilters, *, may: bool, more: Callable[[str | None], str]) -> None:
        self.project: str | None = project
        self._of = project
        self._filters = filters
        self._may = may
        self._more = more
        self._listed: _Listed | None = None
        self._jobs: dict[str, JobSummary] = {}
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return changes.listed or not changes.jobs.isdisjoint(self._jobs)

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        now_ms, before = deployment.store.now_ms(), self._listed
        listed = self._read(deployment, now_ms) if before is None or changes is None or changes.listed else before
        asked = [job for job in listed.ids if changes is None or job in changes.jobs or job not in self._jobs]
        found = {job.id: job for job in summaries(deployment, self._of, asked, now_ms)}
        ids = tuple(
            job for job in listed.ids if job in found or job in self._jobs
        )  # not one that was deleted meanwhile
        moved = [job for job in found.values() if job.id in self._jobs and job != self._jobs[job.id]]
        known = self._jobs | found
        self._jobs, self._listed = {job: known[job] for job in ids}, _Listed(ids, listed.complete)
        for job in known.keys() - self._jobs.keys():
            self._fragments.forget(job)
        changed = self._fragments.changed({job.id: self._row(job, oob=True) for job in moved if job.id in self._jobs})
        if before is None:
            return ""
        if before.ids and self._jobs.keys().isdisjoint(before.ids):
            return self.whole()  # more have come at once than are followed, or none is left
        return _gone(before.ids, self._listed) + self._come(before.ids, self._listed) + changed

    def whole(self) -> str:
        """Return the beginning of the list, as a page has it that was just loaded."""
        first, complete = tuple(self._jobs.values())[:FIRST], self._listed is None or self._listed.complete
        after = first[-1] if first and (len(first) < len(self._jobs) or not complete) else None
        cursor = after and write_cursor(ListPosition(after.submitted_ms, after.id), self._filters)
        rows = rendered("jobs/rows.html", page=JobPage(jobs=first, next=cursor), may=self._may, next=self._more(cursor))
        return f'<ol id="jobs" hx-swap-oob="innerMorph">{rows}</ol>'

    def _read(self, deployment: Deployment, now_ms: int) -> _Listed:
        if self._filters.search:  # which compares so many jobs at a time
            page = page_of_jobs(deployment, self._of, self._filters, now_ms, limit=FIRST)
            return _Listed(tuple(job.id for job in page.jobs), page.next is None)
        ids = ids_of_jobs(deployment, self._of, self._filters, limit=FOLLOWED_MAX + 1)
        return _Listed(ids[:FOLLOWED_MAX], len(ids) <= FOLLOWED_MAX)

    def _come(self, before: Sequence[str], listed: _Listed) -> str:
        """Return the message that inserts the jobs that are new, each run of them before the job below it."""
        known, run, found = set(before), list[str](), list[str]()
        for job in listed.ids:
            if job not in known:
                run.append(self._row(self._jobs[job], oob=False))
            elif run:
                found.append(_inserted(job, run))
                run = []
        if run and listed.complete:
            found.append(_inserted("end", run))
        return "".join(found)

    def _row(self, job: JobSummary, *, oob: bool) -> str:
        return block("jobs/row.html", "row", job=job, may=self._may, oob=oob)


def _gone(before: Sequence[str], listed: _Listed) -> str:
    """Return the message that takes away the jobs that have left. Those below all that are followed may be in the list still."""
    now = set(listed.ids)
    kept = [place for place, job in enumerate(before) if job in now]
    end = len(before) if listed.complete or not kept else kept[-1] + 1
    return "".join(f'<li id="{job}" hx-swap-oob="delete"></li>' for job in before[:end] if job not in now)


def _inserted(below: str, rows: Sequence[str]) -> str:
    return f'<ol id="{below}" hx-swap-oob="beforebegin">{"".join(rows)}</ol>'
