"""Define jobs, attempts and nodes as the decisions see them: what the service knows of each, without its storage."""

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
    """A job. `version` guards the server's writes; `fencing` is the number of the newest attempt, 0 before the first."""

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
    """A try of a job on a node.

    `from_step` is the step it started from, `step` the last one reported, `committed_step` the last one in a checkpoint of this attempt
    (0: none). `price_micro_usd_per_hour` is the price of its slots; `kind` is the kind of its failure, empty if it did not fail.
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
        """Return whether the attempt made progress that cannot be lost: it committed a checkpoint or finished the job."""
        return self.committed_step > 0 or self.state == "succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A worker's machine.

    `numerics` names what decides the bits of a result: GPU, driver, libraries. Its cost is in the ledger up to `meter_ms`. If
    `price_known` is 0, `price_micro_usd_per_hour` has no meaning. `kinds` lists the kinds of jobs whose libraries it has (as `kinds_text`
    in `gangline.core.runs.proof`); `problems` is a JSON object with a sentence for each other kind.
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
        """Return the price of `slots` of the node's slots, in micro-dollars per hour: each slot costs the same."""
        return self.price_micro_usd_per_hour * slots // self.slots
