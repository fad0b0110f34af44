"""Define jobs, attempts and nodes as decisions see them, without their storage, and the moves between their states.

A job moves along `JOB_MOVES` alone: `gangline.service.attempts.moving` asserts it. Attempts and nodes are moved by guarded statements;
a test plays every move of these tables against the real service and finds no other. docs/contributing/states.md draws them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

JobState = Literal["queued", "running", "paused", "succeeded", "failed", "canceled"]
AttemptEnd = Literal["succeeded", "failed", "interrupted", "released", "canceled"]
AttemptState = Literal["live", AttemptEnd]
NodeState = Literal["starting", "ready", "on_trial", "draining", "quarantined", "gone"]

HELD = 2
"""The value of `job.fetching` of a queued job that waits for its experiment: no node may take it, and none is started for it."""
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


# Every move between two states, with its cause

New = Literal["new"]
"""Before the row exists."""

JOB_MOVES: Mapping[tuple[JobState | New, JobState], str] = {
    ("new", "queued"): "submitted",
    ("queued", "running"): "a node claims it",
    ("queued", "paused"): "its owner or its experiment pauses it",
    ("queued", "failed"): "its photos cannot be fetched, or no node that it needs came",
    ("queued", "canceled"): "its owner or its experiment cancels it, or its pictures are not wanted any more",
    ("paused", "queued"): "its owner resumes it, or its experiment lets it continue",
    ("paused", "failed"): "its photos cannot be fetched",
    ("paused", "canceled"): "its owner or its experiment cancels it",
    ("running", "queued"): "interrupted, released, or failed with tries left",
    (
        "running",
        "paused",
    ): "its owner or its experiment paused it, and the node has handed it back, or its checkpoint needs an older node",
    ("running", "succeeded"): "its result is stored",
    ("running", "failed"): "confirmed to be bad, or failed attempts_max times",
    ("running", "canceled"): "its owner or its experiment cancels it",
}

_ENDS: Mapping[AttemptEnd, str] = {
    "succeeded": "its result is stored",
    "failed": "a failure that counts",
    "interrupted": "its lease is overdue, or its node is gone",
    "released": "its node had notice and handed the job back",
    "canceled": "its job is canceled",
}
ATTEMPT_MOVES: Mapping[tuple[AttemptState | New, AttemptState], str] = {
    ("new", "live"): "a node claims the job",
    **{("live", end): because for end, because in _ENDS.items()},
}

_JOINS: Mapping[NodeState, str] = {
    "ready": "its worker joins",
    "on_trial": "its worker joins on a machine on trial",
    "quarantined": "its worker joins, but failed its probe or the machine is in quarantine",
}
_DRAINS = "it is not needed any more, another machine does its work for less, or its provider gives notice"
NODE_MOVES: Mapping[tuple[NodeState | New, NodeState], str] = {
    ("new", "starting"): "rented from a provider",
    **{("new", joined): because for joined, because in _JOINS.items()},
    **{("starting", joined): because for joined, because in _JOINS.items()},
    ("ready", "on_trial"): "strikes, but it is the last machine of its pool",
    ("ready", "quarantined"): "strikes with a contrast",
    ("on_trial", "ready"): "an attempt succeeds there",
    ("on_trial", "quarantined"): "it fails its trial",
    ("quarantined", "on_trial"): "the quarantine is over",
    ("quarantined", "ready"): "an operator releases it",
    ("draining", "ready"): "an operator releases it",
    ("ready", "draining"): _DRAINS,
    ("on_trial", "draining"): _DRAINS,
    ("quarantined", "draining"): "another machine does the work that it still holds, or its provider gives notice",
    **{
        (state, "gone"): "it left, fell silent, or its provider ended it"
        for state in get_args(NodeState)
        if state != "gone"
    },
}
