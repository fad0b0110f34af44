"""Parts of lists that are short in most projects: `limit` of them, after one that is named, and where the next part is (RFC 8288).

Lists of jobs have their own pages (`gangline.api.jobs.list_routes`): these here are read as a whole, and cut.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request

from gangline.api.lanes import json_response
from gangline.core.display import NAME_MAX
from gangline.core.errors import BadInput

T = TypeVar("T")
PART_MAX = 1000
PartLimit = Annotated[int | None, Query(ge=1, le=PART_MAX, description="List at most this many (default: all).")]
PartAfter = Annotated[str | None, Query(max_length=5 * NAME_MAX, description="List those after this one; see `Link`.")]


def next_link(query: Sequence[tuple[str, str]]) -> str:
    """Return the header that names the next page. The address is relative, as a proxy may have another one than this server."""
    return f'<?{urlencode(query)}>; rel="next"'


def part_in_order(items: Sequence[T], after: str | None, key: Callable[[T], str]) -> Sequence[T]:
    """Return the items in the order of their keys, and only those after this key. Its item may have been deleted meanwhile."""
    return sorted((item for item in items if after is None or key(item) > after), key=key)


def part_after(items: Sequence[T], after: str | None, key: Callable[[T], str]) -> Sequence[T]:
    """Return the items after the one with this key, of a list from which none is ever deleted. Raise `BadInput` if there is none."""
    if after is None:
        return items
    place = next((place for place, item in enumerate(items) if key(item) == after), None)
    if place is None:
        raise BadInput(f"after: {after!r} is not in this list", hint="begin without `after`")
    return items[place + 1 :]


def as_part(request: Request, items: Sequence[T], limit: int | None, key: Callable[[T], str]) -> object:
    """Return the first `limit` of the items, and the address of the next part if there are more."""
    if limit is None or len(items) <= limit:
        return items
    answer = json_response(items[:limit])
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    answer.headers["Link"] = next_link([*query, ("after", key(items[limit - 1]))])
    return answer
