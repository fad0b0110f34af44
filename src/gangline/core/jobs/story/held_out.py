"""What training did to the loss of photos that it never saw, as the report of its result says."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

REPORT_BYTES_MAX = 2**20
"""A report of our own trainers is much shorter; a command's file of that name may be anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutChange:
    """The mean loss of the held-out photos with the base alone, and with the result."""

    photos: int
    before: float
    after: float

    @property
    def percent(self) -> str:
        """The change, such as -70%; empty if there was no loss before."""
        return f"{self.after / self.before - 1:+.0%}" if self.before else ""

    @property
    def in_words(self) -> str:
        """The change in one phrase, such as "0.5848 → 0.1738 (-70%)"."""
        return f"{self.before:.4f} → {self.after:.4f}" + (f" ({self.percent})" if self.percent else "")


def holds_out(spec: Mapping[str, object]) -> bool:
    """Return whether a job with this spec holds photos out, of one of its subjects at least."""
    subjects = spec.get("subjects")
    named = [spec, *(subjects if isinstance(subjects, list) else [])]
    return any(isinstance(each, Mapping) and each.get("held_out") for each in named)


def held_out_change(report: str) -> HeldOutChange | None:
    """Return what a report says; None if it says nothing of the kind."""
    try:
        photos = json.loads(report)["held_out"]
        before, after = (fmean(float(each[name]) for each in photos) for name in ("loss_before", "loss_after"))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):  # a node may have written anything
        return None
    if not (math.isfinite(before) and math.isfinite(after)):
        return None
    return HeldOutChange(photos=len(photos), before=before, after=after)
