"""What an examination of a machine comes to: for each thing that was looked at, how it is and what to do."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gangline.core.errors import GanglineError


class FindingState(StrEnum):
    ok = "ok"
    note = "note"
    """Not as it could be, or not there: fine for whoever does not need it."""
    wrong = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`says` is what was found; `hint`, where there is something to do, what that is."""

    about: str
    state: FindingState
    says: str
    hint: str = ""


def ok(about: str, says: str) -> Finding:
    return Finding(about=about, state=FindingState.ok, says=says)


def note(about: str, says: str, hint: str = "") -> Finding:
    return Finding(about=about, state=FindingState.note, says=says, hint=hint)


def wrong(about: str, says: str, hint: str = "") -> Finding:
    return Finding(about=about, state=FindingState.wrong, says=says, hint=hint)


def examined(about: str, look: Callable[[], Finding]) -> Finding:
    """Return what `look` finds; what it raises for users is what is wrong."""
    try:
        return look()
    except GanglineError as error:
        return wrong(about, error.message, error.hint)
