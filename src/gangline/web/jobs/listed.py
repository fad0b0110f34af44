"""The list of jobs as an open page follows it."""

from collections.abc import Sequence

from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.views import JobSummary
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import PAGE_MAX, page_of_jobs
from gangline.service.jobs.lists.summaries import summaries
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

FIRST = 50
"""Jobs of a page as it is loaded."""
FOLLOWED_MAX = 400
"""Jobs that an open list follows, the newest first: older ones are as they were when they were shown."""


class JobsScreen:
    """The newest jobs of a list. New ones come in at its top, and who no longer belongs to it leaves."""

    def __init__(self, project: str, filters: JobFilters, *, may: bool) -> None:
        self.project: str | None = project
        self._of = project
        self._filters = filters
        self._may = may
        self._ids: tuple[str, ...] = ()
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return changes.listed or not changes.jobs.isdisjoint(self._ids)

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        now_ms = deployment.store.now_ms()
        if changes is not None and not changes.listed:
            moved = [job for job in self._ids if job in changes.jobs]
            return self._changed(summaries(deployment, self._of, moved, now_ms))
        jobs = self._listed(deployment, now_ms)
        return self._moved([job.id for job in jobs], jobs)

    def whole(self) -> str:
        return self._fragments.whole()

    def _listed(self, deployment: Deployment, now_ms: int) -> list[JobSummary]:
        found, cursor = list[JobSummary](), None
        while len(found) < FOLLOWED_MAX:
            page = page_of_jobs(deployment, self._of, self._filters, now_ms, limit=PAGE_MAX, cursor=cursor)
            found += page.jobs
            cursor = page.next
            if cursor is None or self._filters.search:
                break
        return found

    def _changed(self, jobs: Sequence[JobSummary]) -> str:
        return self._fragments.changed({job.id: self._row(job, oob=True) for job in jobs})

    def _moved(self, ids: Sequence[str], jobs: Sequence[JobSummary]) -> str:
        """Return what brings an open list to these jobs: those that are new at its top, and who has left."""
        before, now = set(self._ids), set(ids)
        left = [job for job in self._ids if job not in now]
        beginning = next((place for place, job in enumerate(ids) if job in before), len(ids))
        new = {job.id: job for job in jobs[:beginning]}
        between = any(job not in before and job not in new for job in ids)
        first, self._ids = not before, tuple(ids)
        for job in left:
            self._fragments.forget(job)
        changed = self._changed(jobs)
        if first:
            return changed
        if between and not self._is_end(ids, before):
            rows = "".join(self._row(job, oob=False) for job in jobs)
            return f'<ol id="jobs" hx-swap-oob="innerMorph">{rows}</ol>'
        gone = "".join(f'<li id="{job}" hx-swap-oob="delete"></li>' for job in left)
        added = "".join(self._row(job, oob=False) for job in new.values())
        return (f'<ol id="jobs" hx-swap-oob="afterbegin">{added}</ol>' if added else "") + gone + changed

    def _is_end(self, ids: Sequence[str], before: set[str]) -> bool:
        """Return whether all jobs that are new below others stand at the end, where older ones come in as others leave."""
        last = max((place for place, job in enumerate(ids) if job in before), default=-1)
        new_on_top = next((place for place, job in enumerate(ids) if job in before), len(ids))
        return all(job in before for job in ids[new_on_top : last + 1])

    def _row(self, job: JobSummary, *, oob: bool) -> str:
        return block("jobs/row.html", "row", job=job, may=self._may, oob=oob)
