"""What a list of jobs leaves out, and where a page of it begins."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.core.job import JobState
from gangline.core.jobs.lists.labels import why_no_key, why_no_value

ME = "me"
"""The owner that means the key which asks."""
LABELS_ASKED_MAX = 8
"""The most labels that one list is filtered by."""
BREAK = "\n"
"""Separates the values of a filter that has several; none of them contains it."""


class LabelFilter(NamedTuple):
    """Jobs with this label; with any value if `value` is None."""

    key: str
    value: str | None = None

    @property
    def text(self) -> str:
        return self.key if self.value is None else f"{self.key}={self.value}"


class ListPosition(NamedTuple):
    """A place in a list of jobs, which is in the order of their submission, the newest first; ids tell those of one millisecond apart."""

    at_ms: int
    id: str


NEWEST = ListPosition(2**62, "")
OLDEST = ListPosition(-1, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilters:
    """A job is listed if it meets every filter that is given, and one of several `states`.

    `owner` is the id or the name of a key. `since_ms` counts, `until_ms` does not. `named` is a name, an id, or its beginning or end.
    `search` is a text that a job has somewhere (`core/jobs/lists/search.py`); it is compared with what the other filters let through.
    """

    states: tuple[JobState, ...] = ()
    kind: str = ""
    owner: str = ""
    labels: tuple[LabelFilter, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    named: str = ""
    search: str = ""

    @property
    def count(self) -> int:
        """Return how many filters the statements have beside the time: every index has the order of time."""
        return sum(map(bool, (self.states, self.kind, self.owner, self.named))) + len(self.labels)

    @property
    def digest(self) -> str:
        """Return a hash by which a cursor of a list with other filters is recognised."""
        said = asdict(self) | {"states": sorted(self.states), "labels": sorted(map(list, self.labels), key=str)}
        if not self.search:  # cursors that servers of the version before have written stay what they are
            del said["search"]
        return digest(said)[:16]

    @property
    def start(self) -> ListPosition:
        """Return the position before the first job that may be listed."""
        return NEWEST if self.until_ms is None else ListPosition(self.until_ms, "")

    @property
    def end(self) -> ListPosition:
        """Return the position of the last job that may be listed."""
        return OLDEST if self.since_ms is None else ListPosition(self.since_ms, "")


def parse_label_filters(texts: Iterable[str]) -> tuple[LabelFilter, ...]:
    """Return the filters of `KEY=VALUE` and `KEY`, each once. Raise `BadInput`.

    A key with a value leaves nothing to the key alone.
    """
    found = [
        LabelFilter(key, value if equals else None) for key, equals, value in (text.partition("=") for text in texts)
    ]
    for key, value in found:
        why = why_no_key(key) or why_no_value(value or "")
        if why:
            raise BadInput(f"the label {key!r} {why}", hint="write KEY=VALUE, or KEY for any value")
    exact = {key for key, value in found if value is not None}
    wanted = tuple(dict.fromkeys(each for each in found if each.value is not None or each.key not in exact))
    if len(wanted) > LABELS_ASKED_MAX:
        raise BadInput(f"a list is filtered by at most {LABELS_ASKED_MAX} labels, not {len(wanted)}")
    return wanted


RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})", re.IGNORECASE
)


def parse_moment(text: str, called: Literal["since", "until"]) -> int:
    """Return the milliseconds UTC of a time as RFC 3339 writes it. Raise `BadInput`."""
    try:
        at = datetime.fromisoformat(text.upper()) if RFC_3339.fullmatch(text) else None
    except ValueError:
        at = None
    if at is None:
        raise BadInput(
            f"{called}: {text!r} is not a time with its zone", hint="write it as 2026-01-31T18:00:00Z (RFC 3339)"
        )
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
