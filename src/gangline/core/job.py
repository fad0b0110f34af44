"""What the service knows of a job, its attempts and the nodes that try, as decisions see them."""

from dataclasses import dataclass
from typing import Literal

JobState = Literal["queued", "running", "paused", "succeeded", "failed", "canceled"]
AttemptEnd = Literal["succeeded", "failed", "interrupted", "released", "canceled"]
AttemptState = Literal["live", AttemptEnd]
NodeState = Literal["starting", "ready", "on_trial", "draining", "quarantined", "gone"]

ENDED: frozenset[str] = frozenset({"succeeded", "failed", "canceled"})
WORKING: frozenset[str] = frozenset({"ready", "on_trial"})


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
    gpu_memory_gb: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Steps: where it went on from, the last that was heard of, and the last committed (0: none by this attempt).

    `price_micro_usd_per_hour` is that of its slots; `kind` is that of its failure, empty where it did not fail.
    """

    id: str
    job: str
    node: str
    machine: str
    gpu: str
    gpu_memory_gb: float
    fencing: int
    state: AttemptState
    kind: str
    slots: int
    price_micro_usd_per_hour: int
    from_step: int
    step: int
    committed_step: int
    seconds_per_step: float | None
    started_ms: int
    training_ms: int | None
    beat_ms: int
    ended_ms: int | None

    @property
    def advanced(self) -> bool:
        """Whether it brought its job further for good."""
        return self.committed_step > 0 or self.state == "succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`numerics` names what decides the bits of a result: GPU, driver, libraries. `meter_ms`: its bill is written up to here.

    Where `price_known` is 0, `price_micro_usd_per_hour` says nothing. `kinds` (see `kinds_text` in `gangline.core.runs.proof`) are those of
    the jobs whose libraries it has; `problems` is JSON: a sentence for each other kind.
    """

    id: str
    machine: str
    name: str
    pool: str
    state: NodeState
    gpu: str
    gpu_memory_gb: float
    trust: int
    numerics: str
    slots: int
    slots_free: int
    price_micro_usd_per_hour: int
    meter_ms: int
    joined_ms: int | None
    kinds: str
    problems: str
    price_known: int = 1
    rented: int = 0
    rest_until_ms: int = 0
    quarantined_until_ms: int = 0
    because: str = ""

    def price_of(self, slots: int) -> int:
        """Micro-dollars an hour for `slots` of this node's: money splits by slot."""
        return self.price_micro_usd_per_hour * slots // self.slots
