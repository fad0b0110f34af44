"""What a report is made of: one value for each job, and sums of the ledger's lines."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.core.job import AttemptState, JobState
from gangline.core.money.cost import Cause

NOT_TIME: tuple[Cause, ...] = ("storage", "egress")
NOT_WASTE: tuple[Cause, ...] = ("training", "correction")


@dataclass(frozen=True, slots=True)
class Expense:
    """The node time and the money of one cause. They are whole numbers, except for a part of a node's time that several jobs share."""

    ms: float = 0
    micro_usd: float = 0

    def __add__(self, other: "Expense") -> "Expense":
        return Expense(self.ms + other.ms, self.micro_usd + other.micro_usd)


Expenses = Mapping[Cause, Expense]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedJob:
    """A job with what its attempts came to.

    `attempts` are counts by state. `node_ms` is the time of those that have ended, and `expenses` the job's lines of the ledger by cause.
    `steps_redone` were reported by an attempt and repeated by the next one.
    """

    id: str
    project: str
    name: str
    kind: str
    state: JobState
    because: str
    steps: int
    submitted_ms: int
    ended_ms: int | None
    first_started_ms: int | None = None
    first_state: AttemptState | None = None
    attempts: Mapping[AttemptState, int]
    unpriced: int = 0
    node_ms: int = 0
    steps_redone: int = 0
    expenses: Expenses

    @property
    def micro_usd(self) -> float:
        return sum(part.micro_usd for part in self.expenses.values())

    @property
    def wait_ms(self) -> int | None:
        """Return the time from submission to the first claim; None if the job was never claimed."""
        return None if self.first_started_ms is None else self.first_started_ms - self.submitted_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedOn:
    """The attempts of some jobs on the nodes of one GPU class in one pool: counts by state, and lines of the ledger by cause.

    `expenses` include the nodes' own time: their start-up and what they were idle. `gpu` is empty for nodes without a GPU.
    """

    gpu: str
    pool: str
    attempts: Mapping[AttemptState, int]
    expenses: Expenses


def added(*several: Expenses) -> dict[Cause, Expense]:
    """Return the sums by cause."""
    found = dict[Cause, Expense]()
    for expenses in several:
        for cause, part in expenses.items():
            found[cause] = found.get(cause, Expense()) + part
    return found
