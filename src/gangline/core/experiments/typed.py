"""Read how the jobs of an experiment differ as somebody types it: `rank=8,16`."""

from collections.abc import Iterable, Iterator
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.specs.changes import parse_value


def parse_vary(kind: str, texts: Iterable[str], option: str = "--vary") -> dict[str, list[Any]]:
    """Return the values of each setting of several `NAME=VALUE,VALUE`, each parsed as the setting's own; those of one name are joined.
    `option` stands before them in errors.

    Raise `BadInput`.
    """
    found = dict[str, list[Any]]()
    for text in texts:
        name, equals, values = text.partition("=")
        name, parts = name.strip(), list(_parts(values))
        if not equals or not name or "" in parts:
            raise BadInput(
                f"{option} {text} has an empty value"
                if equals and name
                else f"{option} {text} does not name a setting and its values",
                hint='write NAME=VALUE,VALUE, e.g. rank=8,16; an empty text is ""',
            )
        found.setdefault(name, []).extend(parse_value(kind, name, part, option) for part in parts)
    return found


def _parts(text: str) -> Iterator[str]:
    """Yield what is between commas, but for those in quotes that begin a value, and in brackets."""
    part, quote, depth, escaped = "", "", 0, False
    for character in text:
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = character == "\\" and not escaped
        elif character in "\"'" and (not part.strip() or depth):
            quote, escaped = character, False
        elif character == "," and not depth:
            yield part.strip()
            part = ""
            continue
        else:
            depth = max(0, depth + (character in "[{") - (character in "]}"))
        part += character
    yield part.strip()
