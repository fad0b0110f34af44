"""Read a page of a list of jobs from the index of its most selective filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from gangline.core.errors import BadInput
from gangline.core.job import JobState
from gangline.core.jobs.lists.cursor import read_cursor, write_cursor
from gangline.core.jobs.lists.filters import BREAK, JobFilters, ListPosition
from gangline.core.jobs.lists.paths import (
    WINDOW,
    AccessPath,
    ChosenPath,
    IndexScan,
    access_paths,
    beginning_of_id,
    choose_path,
    is_short,
    nearest_edge,
    needs_reach,
    next_page,
)
from gangline.core.jobs.lists.search import SEARCHED_MAX
from gangline.core.views import JobPage
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.search import search_jobs
from gangline.service.jobs.lists.summaries import summaries

PAGE_MAX = 200
AFTER_ALL = "z"
"""It sorts after every character of an id, which is a hexadecimal digit: so in every collation. Signs sort before digits in many."""
COUNTED_MAX = 10_000
"""Jobs of a state that are counted, beyond which there are just many: a count reads each."""
OWNERS_MAX = 200
"""The most keys of one name by which a list is filtered."""


def page_of_jobs(
    deployment: Deployment, project: str, filters: JobFilters, now_ms: int, *, limit: int, cursor: str | None = None
) -> JobPage:
    """Return a page of at most `limit` jobs, and the cursor of the next one if there is one.

    Raise `BadInput` for a cursor that is not of this list, and for an owner that is no key.
    """
    start = filters.start if cursor is None else min(read_cursor(cursor, filters), filters.start)
    owners = _owners(deployment, project, filters.owner)
    listed, following = _Asked(deployment, project, filters, owners, start).page(min(limit, PAGE_MAX))
    return JobPage(
        jobs=summaries(deployment, project, [at.id for at in listed], now_ms),
        next=None if following is None else write_cursor(following, filters),
    )


def ids_of_jobs(deployment: Deployment, project: str, filters: JobFilters, *, limit: int) -> tuple[str, ...]:
    """Return the ids of the jobs that a list with these filters has, newest first, at most `limit`."""
    owners, found = _owners(deployment, project, filters.owner), list[str]()
    start: ListPosition | None = filters.start
    while start is not None and len(found) < limit:
        asked = _Asked(deployment, project, filters, owners, start)
        listed, start = asked.page(min(limit - len(found), WINDOW))
        found.extend(at.id for at in listed)
    return tuple(found)


def counts_by_state(deployment: Deployment, project: str) -> dict[JobState, int]:
    """Return how many jobs of a project the list has in each state, at most `COUNTED_MAX` of one."""
    states: tuple[JobState, ...] = get_args(JobState)
    load, limit = deployment.store.load, COUNTED_MAX
    return {state: int(load("count_of_state", project=project, of=state, limit=limit)[0]["jobs"]) for state in states}


def _owners(deployment: Deployment, project: str, owner: str) -> tuple[str, ...]:
    """Return the keys of this id or name. Raise `BadInput` if there is none, or if there are too many: none is left out."""
    if not owner:
        return ()
    rows = deployment.store.load("owners_called", project=project, owner=owner, limit=OWNERS_MAX + 1)
    if len(rows) > OWNERS_MAX:
        raise BadInput(
            f"owner: more than {OWNERS_MAX} keys are called {owner!r}",
            hint="give the id of one: `gangline keys ls` lists them; or give the jobs a label",
        )
    if not rows:
        raise BadInput(
            f"owner: this project has no key {owner!r}",
            hint="give the id or the name of a key, or `me` for the one that asks",
        )
    return tuple(row["id"] for row in rows)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A list of which the page after `start` is asked for; `owners` are the keys that its filter `owner` means."""

    deployment: Deployment
    project: str
    filters: JobFilters
    owners: tuple[str, ...]
    start: ListPosition

    def page(self, limit: int) -> tuple[tuple[ListPosition, ...], ListPosition | None]:
        """Return the jobs of the page, and where the next one begins; None: there is none."""
        chosen, search = self.choose(), self.filters.search
        read = SEARCHED_MAX if search else limit
        found = [at for scan in chosen.path.scans for at in self.scan(scan, chosen, read + 1)]
        listed, following = next_page(found, chosen, read)
        if not search:
            return listed, following
        return search_jobs(self.deployment, self.project, search, listed, following, limit)

    def choose(self) -> ChosenPath:
        paths = access_paths(self.filters, self.owners, crowded=self._is_crowded())
        measured = needs_reach(self.filters, paths)
        return choose_path([(path, self._reach(path) if measured else None) for path in paths], self.filters)

    def _is_crowded(self) -> bool:
        """Return whether too many ids begin as the jobs are to be named."""
        named = self.filters.named
        if not named or is_short(named):
            return False
        of = beginning_of_id(named)
        return bool(self.deployment.store.load("many_begin_so", of=of, of_end=of + AFTER_ALL, passed=WINDOW))

    def scan(self, scan: IndexScan, chosen: ChosenPath, limit: int) -> list[ListPosition]:
        """Return the jobs of one index that meet all filters."""
        filters = self.filters
        values = self._bounds(scan, chosen.end) | {
            "filters": filters.count,
            "states": _several(filters.states),
            "kind": filters.kind,
            "owners": _several(self.owners),
            "named": filters.named,
            "labels": _several([each.text for each in filters.labels]),
            "labelled": len(filters.labels),
            "break": BREAK,
            "limit": limit,
        }
        return [ListPosition(row["submitted_ms"], row["id"]) for row in _jobs(self.deployment, scan, values)]

    def _reach(self, path: AccessPath) -> ListPosition | None:
        return nearest_edge(self._edge(scan) for scan in path.scans)

    def _edge(self, scan: IndexScan) -> ListPosition | None:
        values = self._bounds(scan, self.filters.end) | {"passed": WINDOW - 1}
        rows = _edge(self.deployment, scan, values)
        return ListPosition(rows[0]["submitted_ms"], rows[0]["id"]) if rows else None

    def _bounds(self, scan: IndexScan, end: ListPosition) -> dict[str, object]:
        span = {"before_ms": self.start.at_ms, "before_id": self.start.id, "from_ms": end.at_ms, "from_id": end.id}
        return {"project": self.project, "of": scan.of, "key": scan.key, **span}


def _several(values: Sequence[str]) -> str:
    return f"{BREAK}{BREAK.join(values)}{BREAK}" if values else ""


def _jobs(deployment: Deployment, scan: IndexScan, values: dict[str, object]) -> list[Row]:
    store = deployment.store
    match scan.index:
        case "time":
            return store.load("jobs_by_time", **values)
        case "state":
            return store.load("jobs_by_state", **values)
        case "kind":
            return store.load("jobs_by_kind", **values)
        case "owner":
            return store.load("jobs_by_owner", **values)
        case "label":
            return store.load("jobs_by_label", **values)
        case "label key":
            return store.load("jobs_by_label_key", **values)
        case "name":
            return store.load("jobs_by_name", **values)
        case "end of id":
            return store.load("jobs_by_end_of_id", **values)
        case _:
            return store.load("jobs_by_beginning_of_id", **values, of_end=scan.of + AFTER_ALL)


def _edge(deployment: Deployment, scan: IndexScan, values: dict[str, object]) -> list[Row]:
    """Return the last of the next `WINDOW` jobs; nothing if there are fewer."""
    store = deployment.store
    match scan.index:
        case "time":
            return store.load("edge_by_time", **values)
        case "state":
            return store.load("edge_by_state", **values)
        case "kind":
            return store.load("edge_by_kind", **values)
        case "owner":
            return store.load("edge_by_owner", **values)
        case "label":
            return store.load("edge_by_label", **values)
        case "label key":
            return store.load("edge_by_label_key", **values)
        case "name":
            return store.load("edge_by_name", **values)
        case _:
            return []  # there are few of these ids
