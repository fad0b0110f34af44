"""Choose the index that answers a page of a list of jobs: that of the most selective filter.

Every index of jobs has the order of the list, so each can begin anywhere in it. What differs is how many of its jobs the other filters
leave out. That is not counted, which would take as long as the list itself: the index whose next jobs reach furthest back has the fewest
of them. A page reads no further than these, so it may have fewer jobs than were asked for, and a next page.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gangline.core.jobs.lists.filters import OLDEST, JobFilters, ListPosition
from gangline.core.jobs.naming import SHORT_MIN

WINDOW = 2500
"""A page of several filters reads at most this many jobs of one index, which takes 16 ms (`benchmarks/lists.py`)."""
SCANS_MAX = 20
"""More keys of one name than this are no path of their own: each is a query."""
IndexName = Literal["time", "state", "kind", "owner", "label", "label key", "name", "beginning of id", "end of id"]


@dataclass(frozen=True, slots=True)
class IndexScan:
    """The jobs of one value in one index: `of` the value, `key` that of a label."""

    index: IndexName
    of: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class AccessPath:
    """The scans that find every job which one filter lets through. A `mixed` path finds others, too."""

    filter: str
    scans: tuple[IndexScan, ...]
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class ChosenPath:
    """The path that answers a page, down to the position `end`, and why it was chosen. `more`: there are jobs after `end`."""

    path: AccessPath
    end: ListPosition
    because: str
    more: bool = False


def access_paths(filters: JobFilters, owners: Sequence[str], *, crowded: bool = False) -> tuple[AccessPath, ...]:
    """Return the paths that can answer a list, at least one.

    `owners` are the keys that the filter `owner` means; `crowded` says that very many ids begin as the filter `named` does.
    """
    found = list[AccessPath]()
    if filters.named:
        found.append(_by_name(filters.named, crowded=crowded))
    for key, value in filters.labels:
        scan = IndexScan("label key", key=key) if value is None else IndexScan("label", value, key)
        found.append(AccessPath("label", (scan,)))
    if filters.owner and len(owners) <= SCANS_MAX:
        found.append(AccessPath("owner", tuple(IndexScan("owner", owner) for owner in owners)))
    if filters.states:
        found.append(AccessPath("state", tuple(IndexScan("state", state) for state in dict.fromkeys(filters.states))))
    if filters.kind:
        found.append(AccessPath("kind", (IndexScan("kind", filters.kind),)))
    return tuple(found) or (AccessPath("time", (IndexScan("time"),), mixed=filters.count > 0),)


def is_short(named: str) -> bool:
    """Return whether this is too little of an id for an index."""
    return len(named.removeprefix("job-")) < SHORT_MIN


def beginning_of_id(named: str) -> str:
    return named if named.startswith("job-") else f"job-{named}"


def _by_name(named: str, *, crowded: bool) -> AccessPath:
    """Return the path to jobs of a name, or of an id that begins or ends so."""
    if crowded or is_short(named):
        return AccessPath("name", (IndexScan("time"),), mixed=True)
    parts = (IndexScan("beginning of id", beginning_of_id(named)), IndexScan("end of id", named[-SHORT_MIN:]))
    return AccessPath("name", (IndexScan("name", named), *parts))


def needs_reach(filters: JobFilters, paths: Sequence[AccessPath]) -> bool:
    """Return whether the reach of the paths decides anything: not if the only filter has a path that finds no others."""
    return filters.count > 1 or paths[0].mixed


def nearest_edge(edges: Iterable[ListPosition | None]) -> ListPosition | None:
    """Return how far back a path of several scans reaches: as far as the one that ends first. None: to the end of all."""
    return max((edge for edge in edges if edge is not None), default=None)


def choose_path(reaches: Sequence[tuple[AccessPath, ListPosition | None]], filters: JobFilters) -> ChosenPath:
    """Return the path of the most selective filter.

    `reaches` has how far back the next `WINDOW` jobs of each path go; None: there are fewer. Of equal ones the first is chosen.
    """
    path, edge = min(reaches, key=lambda each: OLDEST if each[1] is None else each[1])
    if len(reaches) == 1 and edge is None:
        return ChosenPath(path, filters.end, "there is no other filter")
    if edge is None:
        return ChosenPath(path, filters.end, f"fewer than {WINDOW} jobs are left of this {path.filter}")
    return ChosenPath(
        path, edge, f"{WINDOW} jobs of this {path.filter} reach further back than those of any other filter", True
    )


def next_page(
    found: Iterable[ListPosition], chosen: ChosenPath, limit: int
) -> tuple[tuple[ListPosition, ...], ListPosition | None]:
    """Return the jobs of a page, and where the next one begins; None: there is none.

    `found` are those that the scans of the path found, each scan up to one more than `limit`.
    """
    listed = sorted(set(found), reverse=True)
    if len(listed) > limit:
        return tuple(listed[:limit]), listed[limit - 1]
    return tuple(listed), chosen.end if chosen.more else None
