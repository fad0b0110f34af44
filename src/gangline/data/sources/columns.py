"""Decide which columns of a source besides image and caption are kept, under which names and types."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from gangline.core.errors import BadInput
from gangline.data.images.captions import CHARACTERS_MAX, text_of

OURS = ("image", "width", "height", "captions", "sha256", "dhash", "source", "aspect")
CAPTIONS = ("caption", "captions", "text", "texts", "prompt", "description", "top_caption", "all_captions")
NAME_MAX = 60
NO_OBJECT = "all of a .json (no object)"
TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


@lru_cache(4096)
def named_apart(name: str) -> str:
    """Return the source's name for a column, changed if a data set has another column of that name. SQL does not distinguish `WIDTH` from
    `width`."""
    plain = name.replace(".", "_").encode(errors="replace").decode()  # Lance takes no dots
    rest = plain.lower()
    while rest.startswith("source_"):  # else `width` and `source_width` of one source would get one name
        rest = rest.removeprefix("source_")
    ours = not rest or rest in OURS or rest.startswith(("latents_", "texts", "_row"))
    return f"source_{plain}" if ours else plain


def inferred(samples: Iterable[Mapping[str, Any]], left_out: Iterable[str]) -> pa.Schema:
    """Return a column for each name in JSON objects that has a number, a text or a truth value, with the widest type in `samples`."""
    found: dict[str, pa.DataType] = {}
    for sample in samples:
        for name, value in sample.items():
            kind = TYPES.get(type(value))
            if kind is not None and name not in left_out:
                apart = named_apart(name)
                found[apart] = wider(found.get(apart, kind), kind)
    return pa.schema([pa.field(name, kind) for name, kind in sorted(found.items())])


def _cast(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that converts a value to the type. It returns None, or raises TypeError, ValueError or OverflowError, if it
    cannot."""
    if pa.types.is_string(kind):
        return lambda value: (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace").decode()
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        least, most = -(1 << kind.bit_width - 1) if signed else 0, (1 << kind.bit_width - signed) - 1

        def whole(value: Any) -> int | None:
            number = int(value) if not isinstance(value, float) or value.is_integer() else None
            return number if number is not None and least <= number <= most else None

        return whole
    return lambda value: number if math.isfinite(number := float(value)) else None


class Split:
    """A function that splits a line into the values that `columns` hold, and the fields that they cannot hold, named with the reason.
    Fields in `used` have another purpose, such as the caption."""

    def __init__(self, columns: pa.Schema, used: Iterable[str]) -> None:
        self._empty = dict.fromkeys(columns.names)
        self._casts = {field.name: (_cast(field.type), field.type) for field in columns}
        self._used = frozenset(used)

    def __call__(self, line: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        own, lost, seen = dict(self._empty), [], set[str]()
        for name, value in line.items():
            if value is None or name in self._used:
                continue
            apart = named_apart(name)
            if apart in seen:
                lost.append(dropped_column(name, "too similar to another name"))
                continue
            cast, kind = self._casts.get(apart, (None, None))
            try:
                stored = cast(value) if cast else None
            except (TypeError, ValueError, OverflowError):
                stored = None
            if stored is not None:
                own[apart] = stored
                seen.add(apart)
            elif not (isinstance(value, float) and math.isnan(value)):
                lost.append(dropped_column(name, _why(value, kind)))
        return own, tuple(lost)


def _why(value: Any, kind: pa.DataType | None) -> str:
    """Return why a value is not in a column of this type, or not in any."""
    if type(value) not in TYPES:
        return _kind(value)
    return f"{_kind(value)}, not {kind}" if kind else "in none of the first samples"


def dropped_column(name: str, why: str) -> str:
    """Return the label by which a dropped field is counted."""
    shown, reason = (text.encode(errors="replace").decode() for text in (name, why))
    short, brief = (text if len(text) <= NAME_MAX else f"{text[:NAME_MAX]}…" for text in (shown, reason))
    return f"{short} ({brief})"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "neither a number nor a text"


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds values of both."""
    if one == other:
        return one
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else pa.string()


def clean(text: str) -> str:
    """Return a caption on one line, without invisible characters, cut at `CHARACTERS_MAX`."""
    seen = "".join(character for character in text if character.isprintable() or character.isspace())
    return " ".join(seen.split())[:CHARACTERS_MAX]


def captions_in(content: bytes, name: str) -> tuple[str, ...]:
    """Return the captions in a text file; empty if it is not a text."""
    try:
        return captions_of(text_of(content, name))
    except BadInput:
        return ()


def object_in(content: bytes) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if it is damaged or not an object."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def captions_of(value: Any) -> tuple[str, ...]:
    """Return the captions in a cell, which holds one text or several; empty if it has none."""
    texts = value if isinstance(value, list | tuple) else [value]
    cleaned = (clean(text) for text in texts if isinstance(text, str))
    return tuple(dict.fromkeys(text for text in cleaned if text))
