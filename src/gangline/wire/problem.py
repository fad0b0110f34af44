"""Convert errors to `application/problem+json` (RFC 9457), and back on the other side."""

from dataclasses import dataclass, field
from typing import Any

from gangline.core.display import printable
from gangline.core.errors import (
    BadInput,
    Changed,
    Damaged,
    Denied,
    Forbidden,
    GanglineError,
    InProgress,
    NotFound,
    TooLarge,
    TooMany,
    TooSlow,
    Unreachable,
    UserError,
)
from gangline.core.parsing import InvalidSpec, Problem
from gangline.ports.server import Refused, Stale

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:gangline:problem:"
STALE = "stale"
REFUSED = "refused"
TITLES: dict[str, tuple[int, str]] = {
    BadInput.code: (422, "The values of the request cannot be used"),
    InvalidSpec.code: (422, "The request is not valid"),
    Damaged.code: (422, "The bytes do not match their description"),
    Denied.code: (401, "Not authenticated"),
    Forbidden.code: (403, "Not allowed"),
    NotFound.code: (404, "Not found"),
    InProgress.code: (409, "The same request is being answered"),
    Changed.code: (412, "Changed since it was read"),
    UserError.code: (400, "The request cannot be served"),
    STALE: (409, "The lease is lost"),
    REFUSED: (422, "Refused"),
    TooLarge.code: (413, "Too large"),
    TooSlow.code: (408, "Too slow"),
    TooMany.code: (429, "Too many requests"),
    Unreachable.code: (503, "Not available now"),
    GanglineError.code: (500, "The server failed"),
}
ERRORS: dict[str, type[GanglineError]] = {
    kind.code: kind
    for kind in (
        *(BadInput, Changed, Damaged, Denied, Forbidden, InProgress, NotFound, TooLarge, TooMany, TooSlow, UserError),
        Unreachable,
    )
}


class Refusal(GanglineError):
    """An expected refusal as an exception; a client returns its `value`."""

    def __init__(self, value: Stale | Refused) -> None:
        super().__init__(value.because)
        self.value = value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """A problem. `type` names its kind; `hint` says what to do; `problems` lists every invalid field."""

    type: str
    title: str
    status: int
    detail: str
    hint: str = ""
    problems: tuple[dict[str, str], ...] = field(default=())


def details(code: str, message: str, *, hint: str = "", problems: tuple[Problem, ...] = ()) -> ProblemDetails:
    """Return the problem to send. It quotes the request, so characters that no text may have (lone surrogates) are escaped."""
    status, title = TITLES[code]
    fields = tuple({"field": printable(each.field), "message": printable(each.message)} for each in problems)
    return ProblemDetails(
        type=f"{TYPE}{code}",
        title=title,
        status=status,
        detail=printable(message, keep="\n"),
        hint=printable(hint, keep="\n"),
        problems=fields,
    )


def of_error(error: GanglineError) -> ProblemDetails:
    problems = error.problems if isinstance(error, InvalidSpec) else ()
    return details(error.code, error.message, hint=error.hint, problems=problems)


def is_from_gangline(body: dict[str, Any]) -> bool:
    """Return whether a Gangline server wrote this, and not a proxy in front of it."""
    return str(body.get("type", "")).startswith(TYPE)


def problem_code(body: dict[str, Any]) -> str:
    return str(body.get("type", "")).removeprefix(TYPE)


def to_error(status: int, body: dict[str, Any]) -> GanglineError:
    """Return the error of a problem. An unknown one becomes `Unreachable` from status 500 on, as it may pass, and `UserError` below."""
    code, message, hint = problem_code(body), str(body.get("detail", "")), str(body.get("hint", ""))
    if code == InvalidSpec.code:
        found = [part for part in body.get("problems", []) if isinstance(part, dict)]
        return InvalidSpec(tuple(Problem(str(part.get("field")), str(part.get("message"))) for part in found))
    if code in (STALE, REFUSED):
        return Refusal(Stale(because=message) if code == STALE else Refused(because=message))
    if code in ERRORS:
        return ERRORS[code](message, hint=hint)
    if status >= 500:
        return Unreachable(f"the server failed (HTTP {status})", hint="see its log")
    return UserError(message or f"the server refused the request (HTTP {status})", hint=hint)
