"""The list of jobs as an open page follows it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gangline.core.job import JobState
from gangline.core.jobs.lists.cursor import read_cursor
from gangline.core.jobs.lists.filters import JobFilters, ListPosition
from gangline.core.views import JobPage, JobSummary
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import COUNTED_MAX, counts_by_state, ids_of_jobs, page_of_jobs
from gangline.service.jobs.lists.summaries import summaries
from gangline.web.frame.rendering import block, filled_template
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

FIRST = 50
"""Jobs of a page as it is loaded."""
FOLLOWED_MAX = 250
"""Jobs that an open list follows, the newest first: older ones are as they were when they were shown."""


@dataclass(frozen=True, slots=True)
class ListedJobs:
    """The jobs of a list, and whether there are no others below them. Others begin at `next`, if that is elsewhere than below the last."""

    ids: tuple[str, ...]
    complete: bool
    next: ListPosition | None = None


class FollowedList:
    """The jobs that pages were sent, and the messages that bring a page to others.

    A page shows the beginning of the list, as far as its reader has scrolled. So a row comes in before the one that stands below it, or
    before the element `end`, which a page has that shows all: where the page has neither, it loads the row as it is scrolled.
    `more` returns the address of what stands below a position, "" for None.
    """

    def __init__(self, more: Callable[[ListPosition | None], str], *, may: bool, first: int = FIRST) -> None:
        self._more = more
        self._may = may
        self._first = first
        self._listed: ListedJobs | None = None
        self._fragments = Fragments()
        self.jobs: Mapping[str, JobSummary] = {}

    @property
    def listed(self) -> ListedJobs | None:
        """What the list was at the last update; None before the first one."""
        return self._listed

    def update(self, listed: ListedJobs, found: Mapping[str, JobSummary]) -> str:
        """Return the message for pages that show the list of before; `found` are the jobs that may have changed, and all new ones."""
        before, known = self._listed, {**self.jobs, **found}
        ids = tuple(job for job in listed.ids if job in known)  # one may have been deleted since the list was read
        moved = [found[job] for job in ids if job in found and job in self.jobs and found[job] != self.jobs[job]]
        self.jobs, self._listed = {job: known[job] for job in ids}, replace(listed, ids=ids)
        for job in known.keys() - self.jobs.keys():
            self._fragments.forget(job)
        changed = self._fragments.changed({job.id: self._row(job, oob=True) for job in moved})
        if before is None or not (before.ids or ids):
            return ""
        if before.ids and self.jobs.keys().isdisjoint(before.ids):
            return self.whole()  # more have come at once than are followed, or none is left
        if listed.complete and not before.complete:
            return self.whole()  # pages may show jobs that have left while they stood below those that are followed
        if not (before.ids or before.complete):  # of a search: what pages have is what they found further down
            rows = "".join(self._row(job, oob=False) for job in self.jobs.values())
            return f'{_deleted(ids)}<ol id="jobs" hx-swap-oob="afterbegin">{rows}</ol>'
        if not listed.complete and ids[-1] not in before.ids and before.complete:
            return self.whole()  # pages may have no row that new ones stand above, and load none
        left = [known[job] for job in before.ids if job not in self.jobs]
        return _gone(left, self.jobs[ids[-1]], self._listed) + self._come(before.ids, self._listed) + changed

    def whole(self) -> str:
        """Return the beginning of the list, as a page has it that was just loaded."""
        first, listed = tuple(self.jobs.values())[: self._first], self._listed or ListedJobs((), complete=True)
        below = listed.next
        if first and (len(first) < len(self.jobs) or (below is None and not listed.complete)):
            below = list_position(first[-1])
        return whole_list(first, self._more(below), may=self._may)

    def _come(self, before: Sequence[str], listed: ListedJobs) -> str:
        """Return the message that inserts the jobs that are new, each run of them before the job below it."""
        known, run, found = set(before), list[JobSummary](), list[str]()
        for job in listed.ids:
            if job not in known:
                run.append(self.jobs[job])
            elif run:
                found.append(self._inserted(job, run))
                run = []
        if run and listed.complete:
            found.append(self._inserted("end", run))
        # Those at the end may have been followed before: pages that show them still have them as they were then.
        return "".join([*found, *(self._row(job, oob=True) for job in run)])

    def _inserted(self, below: str, jobs: Sequence[JobSummary]) -> str:
        rows = "".join(self._row(job, oob=False) for job in jobs)
        return f'<ol id="{below}" hx-swap-oob="beforebegin">{rows}</ol>'

    def _row(self, job: JobSummary, *, oob: bool) -> str:
        return block("jobs/row.html", "row", job=job, may=self._may, oob=oob)


class JobsScreen:
    """The newest jobs of a list."""

    def __init__(
        self, project: str, filters: JobFilters, *, may: bool, more: Callable[[ListPosition | None], str]
    ) -> None:
        self._counts = Fragments()
        self.project: str | None = project
        self._of = project
        self._filters = filters
        self._list = FollowedList(more, may=may)

    def is_about(self, changes: Changes) -> bool:
        return changes.listed or not changes.jobs.isdisjoint(self._list.jobs)

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        now_ms, listed = deployment.store.now_ms(), self._list.listed
        if listed is None or changes is None or changes.listed:
            listed = self._read(deployment, now_ms)
        known = self._list.jobs
        asked = [job for job in listed.ids if changes is None or job in changes.jobs or job not in known]
        counts = ""
        if changes is None or changes.listed:
            counts = self._counts.changed({"counts": self._counted(deployment)})
        rows = self._list.update(listed, {job.id: job for job in summaries(deployment, self._of, asked, now_ms)})
        return rows + counts

    def whole(self) -> str:
        return self._list.whole() + self._counts.whole()

    def _counted(self, deployment: Deployment) -> str:
        return counted_jobs(counts_by_state(deployment, self._of), self._filters.states)

    def _read(self, deployment: Deployment, now_ms: int) -> ListedJobs:
        if self._filters.search:  # which compares a few hundred jobs at a time
            page = page_of_jobs(deployment, self._of, self._filters, now_ms, limit=FIRST)
            following = read_cursor(page.next, self._filters) if page.next else None
            return ListedJobs(tuple(job.id for job in page.jobs), page.next is None, following)
        ids = ids_of_jobs(deployment, self._of, self._filters, limit=FOLLOWED_MAX + 1)
        return ListedJobs(ids[:FOLLOWED_MAX], len(ids) <= FOLLOWED_MAX)


def counted_jobs(counts: Mapping[JobState, int], states: Sequence[JobState]) -> str:
    """Return the message that replaces the counts of a page."""
    return block("jobs/row.html", "counts", counts=counts, most=COUNTED_MAX, states=states, oob=True)


def list_position(job: JobSummary) -> ListPosition:
    return ListPosition(job.submitted_ms, job.id)


def _gone(left: Sequence[JobSummary], last: JobSummary, listed: ListedJobs) -> str:
    """Return the message that takes away the jobs that have left. Those below the `last` that is followed may be in the list still."""
    gone = [each.id for each in left if listed.complete or list_position(each) > list_position(last)]
    return _deleted(gone)


def _deleted(jobs: Iterable[str]) -> str:
    return "".join(f'<li id="{job}" hx-swap-oob="delete"></li>' for job in jobs)


def whole_list(jobs: Sequence[JobSummary], more: str, *, may: bool) -> str:
    """Return the message that replaces the list of a page; `more` is the address of what stands below these jobs."""
    rows = filled_template("jobs/rows.html", page=JobPage(jobs=tuple(jobs), next=None), may=may, next=more)
    return f'<ol id="jobs" hx-swap-oob="innerMorph">{rows}</ol>'
