"""The cursor of a list of jobs: where its next page begins, as an opaque text.

It is checked, not signed. A cursor holds a position alone, and every page is read within the project of the key that asks: whoever made one
up would see what the same key sees without it. The checksum is there for a text that was cut or altered, and the digest of the filters
for one that belongs to another list; either would otherwise leave jobs out in silence.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.filters import JobFilters, ListPosition

CURSOR_MAX = 400
"""A longer text, in characters, is no cursor."""
WRITTEN = re.compile(r"(-?\d{1,18})\.([0-9A-Za-z-]{0,200})\.([0-9a-f]{16})\.([0-9a-f]{16})")
HINT = "use `next` of the page before with the same filters, or begin without a cursor"


def write_cursor(position: ListPosition, filters: JobFilters) -> str:
    """Return the cursor of the page after this position."""
    said = f"{position.at_ms}.{position.id}.{filters.digest}"
    return urlsafe_b64encode(f"{said}.{_checksum(said)}".encode()).decode().rstrip("=")


def read_cursor(text: str, filters: JobFilters) -> ListPosition:
    """Return the position of a cursor. Raise `BadInput` if it is damaged, or of a list with other filters."""
    found = WRITTEN.fullmatch(_decoded(text))
    if found is None or _checksum(".".join(found.groups()[:3])) != found[4]:
        raise BadInput("this cursor is not one that a list of jobs had, or it was altered", hint=HINT)
    if found[3] != filters.digest:
        raise BadInput("this cursor is of a list with other filters", hint=HINT)
    return ListPosition(int(found[1]), found[2])


def _decoded(text: str) -> str:
    """Return what was encoded; '' for a text that is no encoding, or not the one that `write_cursor` chooses."""
    if len(text) > CURSOR_MAX or not text.isascii():
        return ""
    try:
        said = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return said.decode() if urlsafe_b64encode(said).decode().rstrip("=") == text else ""
    except ValueError:
        return ""


def _checksum(said: str) -> str:
    return sha256(f"a list of jobs {said}".encode()).hexdigest()[:16]
