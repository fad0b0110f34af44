"""Say when a job has reached the state that somebody waits for."""

from typing import Literal

from gangline.core.job import ENDED, JobState

AwaitedState = Literal[JobState, "ended"]
"""A state of a job, or `ended`, which is any of `succeeded`, `failed` and `canceled`."""


def has_reached(state: JobState, awaited: AwaitedState) -> bool:
    """Return whether there is nothing more to wait for: the state is the awaited one, or the job has ended in another."""
    return state == awaited or state in ENDED
