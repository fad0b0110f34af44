"""Hand a list of ids to a statement."""

from collections.abc import Sequence


def as_list(ids: Sequence[str]) -> dict[str, object]:
    """Return ids, at least one, as the values of a statement: neither engine takes a list in the words of the other."""
    width = max(map(len, ids))
    return {"ids": "".join(each.ljust(width) for each in ids), "width": width, "count": len(ids)}
