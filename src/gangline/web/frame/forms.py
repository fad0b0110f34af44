"""Read what a form of the page sends: names and values, URL-encoded (WHATWG URL Standard, 5.1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from gangline.core.errors import BadInput

FIELDS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class SentForm:
    """The fields of a form, in the order in which they stand there. A name may have several values."""

    fields: Sequence[tuple[str, str]]

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of a field, without white space around it."""
        return next((value.strip() for given, value in reversed(self.fields) if given == name), default)

    def has(self, name: str) -> bool:
        """Return whether the form has this field, filled in or not."""
        return any(given == name for given, _ in self.fields)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(value for given, value in self.fields if given == name)

    def number(self, name: str) -> float | None:
        """Return a finite number; None for an empty field. Raise `BadInput`."""
        text = self.text(name)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise BadInput(f"{name}: {text!r} is not a number")
        return number

    def given(self) -> Mapping[str, str]:
        """Return the fields that are not empty, each with its last value."""
        return {name: value.strip() for name, value in self.fields if value.strip()}


async def _sent(request: Request) -> SentForm:
    try:
        text = (await request.body()).decode()
        return SentForm(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise BadInput("this is not a form that the page can have sent", hint="load the page again") from None


SentFields = Annotated[SentForm, Depends(_sent)]
