"""Name a data set, and one of its versions: `timber`, `timber@3`."""

import re
from dataclasses import dataclass

from gangline.core.display import printable
from gangline.core.errors import BadInput

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REFERENCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:@([1-9][0-9]{0,14}))?")
HINT = "use letters, digits, dots, hyphens and underscores, up to 100"
SHOWN_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetReference:
    """A data set, and the number of a version; None stands for the newest one that is ready."""

    name: str
    number: int | None = None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}@{self.number}"


def is_dataset_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def check_dataset_name(text: str) -> str:
    """Return the name. Raise `BadInput` if it is not valid."""
    if not is_dataset_name(text):
        raise BadInput(f"{printable(text)[:SHOWN_MAX]!r} is not a valid name for a data set", hint=HINT)
    return text


def is_dataset_reference(text: str) -> bool:
    """Return whether a text may name a data set or a version of one. No address of photos and no path with a folder does."""
    return REFERENCE.fullmatch(text) is not None


def parse_dataset_reference(text: str) -> DatasetReference:
    """Return what `NAME` or `NAME@NUMBER` names. Raise `BadInput`."""
    found = REFERENCE.fullmatch(text)
    if not found:
        raise BadInput(
            f"{printable(text)[:SHOWN_MAX]!r} names no data set",
            hint="write NAME, or NAME@NUMBER for one of its versions",
        )
    return DatasetReference(name=found[1], number=int(found[2]) if found[2] else None)
