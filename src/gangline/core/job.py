"""What the service knows of a job, its attempts and the nodes that try, as decisions see them."""

from dataclasses import dataclass
from typing import Literal

JobState = Literal["queued", "running", "paused", "succeeded", "failed", "canceled"]
AttemptState = Literal["live", "succeeded", "failed", "interrupted", "released", "canceled"]

ENDED: frozenset[str] = frozenset({"succeeded", "failed", "canceled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`version` guards the server's writes; `fencing` is the number of the newest attempt, 0 before the first."""

    id: str
    project: str
    state: JobState
    fencing: int
    version: int
    attempts_failed: int
    attempts_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Steps: where it went on from, and the last that was heard of. `price_micro_usd_per_hour` is that of its slots."""

    id: str
    job: str
    node: str
    fencing: int
    state: AttemptState
    slots: int
    price_micro_usd_per_hour: int
    from_step: int
    step: int
    seconds_per_step: float | None
    started_ms: int
    training_ms: int | None
    beat_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    id: str
    machine: str
    name: str
    slots_free: int
    price_micro_usd_per_hour: int
    slots: int

    def price_of(self, slots: int) -> int:
        """Micro-dollars an hour for `slots` of this node's: money splits by slot."""
        return self.price_micro_usd_per_hour * slots // self.slots
