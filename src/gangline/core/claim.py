"""Which job a node that asks gets."""

from dataclasses import dataclass

from gangline.core.job import Node

SLOTS_OF_A_JOB = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A queued job as the queue gave it: interrupted ones before fresh ones, then by age."""

    id: str
    project: str
    fencing: int
    version: int


@dataclass(frozen=True, slots=True)
class Choice:
    job: Candidate
    because: str


@dataclass(frozen=True, slots=True)
class Nothing:
    because: str


def choose(candidates: list[Candidate], node: Node) -> Choice | Nothing:
    if node.slots_free < SLOTS_OF_A_JOB:
        return Nothing(f"all {node.slots} slots of {node.name} are taken")
    if not candidates:
        return Nothing("no job is waiting")
    first = candidates[0]
    if first.fencing:
        return Choice(first, f"goes on after an interruption, on {node.name}")
    return Choice(first, f"the longest waiting, on {node.name}")
