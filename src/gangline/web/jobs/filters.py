"""The filters of the list as a form of the page sends them: a field that is empty is none.

A `label` of an address is one, whatever it has in it; `labels` is the line that somebody has typed.
"""

from collections.abc import Iterator
from typing import Annotated, get_args

from fastapi import Depends, Request

from gangline.api.jobs.filters import FILTER_TEXTS_MAX, FilterTexts
from gangline.core.display import NAME_MAX
from gangline.core.job import JobState
from gangline.web.frame.labels import texts_of_line

STATES: tuple[JobState, ...] = get_args(JobState)


async def _asked(request: Request) -> FilterTexts:
    given = [(name, value.strip()[:NAME_MAX]) for name, value in request.query_params.multi_items()]
    texts = {name: value for name, value in given if value}
    states = dict.fromkeys(value for name, value in given if name == "state")
    return FilterTexts(
        state=tuple(state for state in STATES if state in states),
        kind=texts.get("kind"),
        owner=texts.get("owner"),
        label=tuple(_labels(request))[:FILTER_TEXTS_MAX],
        since=texts.get("since"),
        until=texts.get("until"),
        named=texts.get("named"),
        search=texts.get("search"),
    )


def _labels(request: Request) -> Iterator[str]:
    for name, value in request.query_params.multi_items():
        if name == "label" and value.strip():
            yield value
        elif name == "labels":
            yield from texts_of_line(value)


def as_pairs(asked: FilterTexts) -> list[tuple[str, str]]:
    """Return the filters as the fields of an address, those that are set."""
    one = {name: getattr(asked, name) for name in ("kind", "owner", "since", "until", "named", "search")}
    several = [("state", each) for each in asked.state] + [("label", each) for each in asked.label]
    return [*several, *((name, value) for name, value in one.items() if value)]


AskedFilters = Annotated[FilterTexts, Depends(_asked)]
