"""The parameters that say which jobs a request is about."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from gangline.core.display import NAME_MAX
from gangline.core.errors import BadInput
from gangline.core.job import JobState
from gangline.core.jobs.lists.filters import ME, JobFilters, parse_label_filters, parse_moment
from gangline.core.specs.kinds import SUBMITTED
from gangline.service.access.access import Identity

FILTER_TEXTS_MAX = 20
FilterText = Annotated[str | None, Query(min_length=1, max_length=NAME_MAX)]
MomentText = Annotated[
    str | None, Query(max_length=40, description="A time as RFC 3339 writes it: 2026-01-31T18:00:00Z.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTexts:
    """The filters of a request as they were written. They are read in the route's lane, where it is known who `me` is."""

    state: tuple[JobState, ...]
    kind: str | None
    owner: str | None
    label: tuple[str, ...]
    since: str | None
    until: str | None
    named: str | None
    search: str | None

    def read(self, viewer: Identity) -> JobFilters:
        """Return the filters. Raise `BadInput`."""
        return JobFilters(
            states=self.state,
            kind=_kind(self.kind),
            owner=viewer.id if self.owner == ME else self.owner or "",
            labels=parse_label_filters(self.label),
            since_ms=None if self.since is None else parse_moment(self.since, "since"),
            until_ms=None if self.until is None else parse_moment(self.until, "until"),
            named=self.named or "",
            search=self.search or "",
        )


async def _filter_texts(
    state: Annotated[tuple[JobState, ...], Query(max_length=FILTER_TEXTS_MAX)] = (),
    kind: FilterText = None,
    owner: Annotated[
        str | None, Query(min_length=1, max_length=NAME_MAX, description="A key's id or name, or `me`.")
    ] = None,
    label: Annotated[
        tuple[str, ...], Query(max_length=FILTER_TEXTS_MAX, description="KEY=VALUE, or KEY for any value.")
    ] = (),
    since: MomentText = None,
    until: MomentText = None,
    named: FilterText = None,
    search: FilterText = None,
) -> FilterTexts:
    return FilterTexts(
        state=state, kind=kind, owner=owner, label=label, since=since, until=until, named=named, search=search
    )


Filtered = Annotated[FilterTexts, Depends(_filter_texts)]


def _kind(kind: str | None) -> str:
    names = [each.name for each in SUBMITTED]
    if kind is not None and kind not in names:
        raise BadInput(f"kind: {kind!r} is not a kind of job that is listed", hint=f"it is one of {', '.join(names)}")
    return kind or ""
