"""Decide which part of nodes' own time belongs to a set of jobs: their start-up, what they were idle, and corrections of their bills."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gangline.core.money.cost import Cause
from gangline.core.reports.rows import Expense, Expenses, TriedOn


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """Time of a node that belongs to no job, summed by cause."""

    node: str
    gpu: str
    pool: str
    cause: Cause
    expense: Expense


def share_overhead(
    lines: Iterable[NodeLine], own_slot_ms: Mapping[str, int], all_slot_ms: Mapping[str, int]
) -> Iterator[NodeLine]:
    """Yield the part of each line that a set of jobs bears.

    A node's own time is split by the time that jobs had its slots: `own_slot_ms` is that of the set, `all_slot_ms` that of all jobs, by
    node. So the parts of several reports of one span never add up to more than the node cost.
    """
    for line in lines:
        share = min(1.0, own_slot_ms.get(line.node, 0) / (all_slot_ms.get(line.node, 0) or 1))
        yield replace(line, expense=Expense(line.expense.ms * share, line.expense.micro_usd * share))


def sum_overhead(lines: Iterable[NodeLine]) -> Expenses:
    found = dict[Cause, Expense]()
    for line in lines:
        found[line.cause] = found.get(line.cause, Expense()) + line.expense
    return found


def group_overhead(lines: Iterable[NodeLine]) -> tuple[TriedOn, ...]:
    """Return the lines by the GPU class and the pool of their nodes."""
    found: dict[tuple[str, str], list[NodeLine]] = {}
    for line in lines:
        found.setdefault((line.gpu, line.pool), []).append(line)
    return tuple(
        TriedOn(gpu=gpu, pool=pool, attempts={}, expenses=sum_overhead(several))
        for (gpu, pool), several in found.items()
    )
