"""Load what a report is made of: a few statements for some jobs or nodes at a time, so that none takes long, however many there are."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from gangline.core.charts.timeline import Bar
from gangline.core.job import AttemptEnd, AttemptState
from gangline.core.jobs.lists.ids import as_list
from gangline.core.money.cost import Cause
from gangline.core.reports.overhead import NodeLine
from gangline.core.reports.rows import Expense, TriedJob, TriedOn
from gangline.ports.store import Row, StoreReader

STATES: tuple[AttemptState, ...] = ("live", *get_args(AttemptEnd))
AT_ONCE = 250
"""The jobs or nodes that one statement is asked about."""


def load_jobs(reader: StoreReader, ids: Sequence[str]) -> tuple[TriedJob, ...]:
    """Return these jobs with what their attempts came to."""
    return tuple(job for listed in _lists(ids) for job in _jobs(reader, listed))


def _jobs(reader: StoreReader, listed: Mapping[str, object]) -> Iterator[TriedJob]:
    tried = {row["job"]: row for row in reader.load("tries_of_jobs", **listed)}
    expenses: dict[str, dict[Cause, Expense]] = defaultdict(dict)
    for row in reader.load("expenses_of_jobs", **listed):
        expenses[row["job"]][row["cause"]] = _expense(row)
    for row in reader.load("reported_jobs", **listed):
        yield TriedJob(**row, **_tries(tried.get(row["id"])), expenses=expenses.get(row["id"], {}))


def _tries(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"attempts": {}}
    counts = {state: row[state] for state in STATES}
    rest = ("unpriced", "node_ms", "first_started_ms", "first_state", "steps_redone")
    return {name: row[name] for name in rest} | {"attempts": {state: count for state, count in counts.items() if count}}


def load_nodes(reader: StoreReader, ids: Sequence[str]) -> tuple[tuple[TriedOn, ...], dict[str, int]]:
    """Return what jobs did on the nodes of each GPU class and pool, and the time that they had slots of each node."""
    counts: dict[tuple[str, str], Counter[AttemptState]] = defaultdict(Counter)
    expenses: dict[tuple[str, str], dict[Cause, Expense]] = defaultdict(dict)
    slot_ms = Counter[str]()
    for listed in _lists(ids):
        for row in reader.load("tries_by_node", **listed):
            counts[row["gpu"], row["pool"]][row["state"]] += row["attempts"]
            slot_ms[row["node"]] += row["slot_ms"]
        for row in reader.load("expenses_by_gpu", **listed):
            of = expenses[row["gpu"], row["pool"]]
            of[row["cause"]] = of.get(row["cause"], Expense()) + _expense(row)
    nodes = (
        TriedOn(gpu=gpu, pool=pool, attempts=tried, expenses=expenses[gpu, pool])
        for (gpu, pool), tried in counts.items()
    )
    return tuple(nodes), dict(slot_ms)


def load_overhead(reader: StoreReader, nodes: Sequence[str], from_ms: int, to_ms: int) -> list[NodeLine]:
    """Return the time of these nodes that is of no job and began in this span."""
    return [
        _node_line(row)
        for listed in _lists(nodes)
        for row in reader.load("overhead_of_nodes", **listed, from_ms=from_ms, to_ms=to_ms)
    ]


def load_all_overhead(reader: StoreReader) -> list[NodeLine]:
    """Return the time of all nodes that is of no job."""
    return [_node_line(row) for row in reader.load("overhead_of_all")]


def load_work(reader: StoreReader, nodes: Sequence[str], from_ms: int, to_ms: int) -> dict[str, int]:
    """Return the time that jobs of all projects had slots of each of these nodes, in attempts that began in this span."""
    return {
        row["node"]: row["slot_ms"]
        for listed in _lists(nodes)
        for row in reader.load("work_of_nodes", **listed, from_ms=from_ms, to_ms=to_ms)
    }


def load_bars(reader: StoreReader, ids: Sequence[str], from_ms: int) -> tuple[Bar, ...]:
    """Return the attempts of these jobs in the order of their start, in milliseconds after `from_ms`."""
    bars = [
        Bar(
            job=row["job"],
            attempt=row["id"],
            machine=row["machine"],
            state=row["state"],
            because=row["because"],
            from_ms=row["started_ms"] - from_ms,
            to_ms=None if row["ended_ms"] is None else row["ended_ms"] - from_ms,
        )
        for listed in _lists(ids)
        for row in reader.load("bars_of_jobs", **listed)
    ]
    return tuple(sorted(bars, key=lambda bar: (bar.from_ms, bar.attempt)))


def _lists(ids: Sequence[str]) -> Iterator[dict[str, object]]:
    for start in range(0, len(ids), AT_ONCE):
        yield as_list(ids[start : start + AT_ONCE])


def _expense(row: Row) -> Expense:
    return Expense(row["ms"], row["micro_usd"])


def _node_line(row: Row) -> NodeLine:
    named = {name: row[name] for name in ("node", "gpu", "pool", "cause")}
    return NodeLine(**named, expense=_expense(row))
