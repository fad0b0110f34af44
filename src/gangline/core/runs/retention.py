"""Decide which checkpoints a job keeps, and how long its objects are kept after its end."""

from dataclasses import dataclass

from gangline.core.job import JobState
from gangline.core.policy import Policy
from gangline.core.runs.contract import SAMPLES
from gangline.core.words import counted

PREVIEWS = f"{SAMPLES}/step-"
"""The prefix of artifacts that are samples of a step, not of the result."""
DAY_S, HOUR_S = 86_400, 3_600
_ENDED: dict[str, str] = {"succeeded": "succeeded", "failed": "failed", "canceled": "was canceled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """A committed checkpoint. `pinned` says that it is needed, however old it is; `best`: when it was made, held-out samples had never been
    better."""

    id: str
    step: int
    verified: bool
    pinned: bool = False
    best: bool = False


def to_prune(checkpoints: list[KeptCheckpoint], *, keep: int) -> list[KeptCheckpoint]:
    """Return the checkpoints to delete, from `checkpoints`, the newest first.

    The newest `keep`, pinned ones, the best and the last verified one stay. None is deleted until one is verified: the newest may all be
    damaged.
    """
    last_verified = next((checkpoint for checkpoint in checkpoints if checkpoint.verified), None)
    if last_verified is None:
        return []
    best = next((checkpoint for checkpoint in checkpoints if checkpoint.best), None)
    older = (checkpoint for checkpoint in checkpoints[keep:] if not checkpoint.pinned)
    return [checkpoint for checkpoint in older if checkpoint is not last_verified and checkpoint is not best]


def checkpoints_s(state: JobState, policy: Policy) -> float:
    """Return how many seconds after its end a job's checkpoints are kept, given how it ended."""
    return policy.checkpoints_succeeded_s if state == "succeeded" else policy.checkpoints_ended_s


def before_ms(now_ms: int, kept_s: float) -> int:
    """Return the time in ms before which a job must have ended so that its objects, which are kept for `kept_s`, are deleted now."""
    return now_ms - round(kept_s * 1000)


def why_deleted(what: str, state: JobState, kept_s: float) -> str:
    """Return the sentence that says why something was deleted by its age.

    >>> why_deleted("2 checkpoints were deleted", "succeeded", 86_400.0)
    '2 checkpoints were deleted: the job succeeded more than 1 day ago'
    """
    return f"{what}: the job {_ENDED[state]} more than {age(kept_s)} ago"


def age(seconds: float) -> str:
    """Return an age in words, in the largest unit that it fills."""
    for unit_s, unit in ((DAY_S, "day"), (HOUR_S, "hour"), (60, "minute")):
        if seconds >= unit_s:
            return counted(round(seconds / unit_s), unit)
    return counted(round(seconds), "second")
