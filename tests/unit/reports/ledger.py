"""A small ledger, made by hand: four jobs on two nodes."""

from typing import Any

from gangline.core.reports.overhead import NodeLine
from gangline.core.reports.rows import Expense, TriedJob

MINUTE_MS = 60_000


def a_job(name: str, **facts: Any) -> TriedJob:
    """Return a job that took ten minutes and a dollar at the first try, but for these facts."""
    known: dict[str, Any] = {
        "id": f"job-{name}",
        "project": "default",
        "name": name,
        "kind": "lora",
        "state": "succeeded",
        "because": "done",
        "steps": 100,
        "submitted_ms": 0,
        "ended_ms": 20 * MINUTE_MS,
        "first_started_ms": 2 * MINUTE_MS,
        "first_state": "succeeded",
        "attempts": {"succeeded": 1},
        "node_ms": 10 * MINUTE_MS,
        "expenses": {"training": Expense(10 * MINUTE_MS, 1_000_000)},
    }
    return TriedJob(**(known | facts))


QUIET = a_job("quiet")
ONCE = a_job(
    "once",
    first_state="interrupted",
    attempts={"interrupted": 1, "succeeded": 1},
    node_ms=20 * MINUTE_MS,
    steps_redone=7,
    first_started_ms=6 * MINUTE_MS,
    expenses={
        "download": Expense(2 * MINUTE_MS, 200_000),
        "training": Expense(15 * MINUTE_MS, 1_500_000),
        "redone steps": Expense(3 * MINUTE_MS, 300_000),
        "storage": Expense(0, 50_000),
    },
)
OFTEN = a_job(
    "often", attempts={"interrupted": 2, "released": 1, "succeeded": 1}, node_ms=60 * MINUTE_MS, steps_redone=3
)
FAILED = a_job(
    "failed",
    state="failed",
    because="the input is bad",
    first_state="failed",
    attempts={"failed": 1},
    node_ms=5 * MINUTE_MS,
    expenses={"failed": Expense(5 * MINUTE_MS, 500_000)},
)
WAITING = a_job(
    "waiting",
    state="queued",
    ended_ms=None,
    first_started_ms=None,
    first_state=None,
    attempts={},
    node_ms=0,
    expenses={},
)


def idle(node: str, minutes: float, micro_usd: int, gpu: str = "RTX 4090", pool: str = "salad") -> NodeLine:
    return NodeLine(node=node, gpu=gpu, pool=pool, cause="idle", expense=Expense(minutes * MINUTE_MS, micro_usd))
