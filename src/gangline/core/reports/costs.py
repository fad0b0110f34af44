"""What the API says of money: what a span of time cost, by what it is asked for, and which budgets there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from gangline.core.money.cost import Cause, CostPart
from gangline.core.money.forecast import CostSpan

CostKey = Literal["day", "pool", "job", "cause", "project", "node", "user", "gpu"]
"""What costs are summed by."""
CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """What one day, pool, job, cause, project, node, user or GPU cost.

    `key` is its id, or the date of a day; it is empty for the time of nodes that no job or no project caused. Of a user it is the id of the
    key that asked for the jobs, `unknown` if nobody wrote that down; of a GPU its class, `none` for nodes without one and `unknown` for
    nodes that are not known any more. `label` is its name for people. `parts` are the dollars of each cause of the ledger; they add up to
    `usd`.
    """

    key: str
    label: str
    usd: float
    parts: dict[Cause, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostForecast:
    """What the current day or month will have cost when it ends, at `until_ms`; `spent_usd` is spent since `from_ms`, with what runs now.

    `usd` is null from less than a day of data. `low_usd` and `high_usd` are what it would be if the fleet cost as much as now, or as much
    as it did lately, all the time that is left; jobs that nobody has submitted yet are in neither. `because` says how it was computed.
    """

    per: CostSpan
    from_ms: int
    until_ms: int
    spent_usd: float
    usd: float | None
    low_usd: float | None
    high_usd: float | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsView:
    """What the time from `since_ms` until `until_ms` cost, by the ledger (null: from its first line, to its last).

    `rows` are in the order of time if `by` is `day`, else those that cost most come first; `others` sums the `others_count` rows that the
    limit left out. The rows and `others` add up to `usd`, to the micro-dollar, and `usd` is the same for each `by`. A line of the ledger
    that lies in two days of `zone` costs in each as much as it has time in it. `running_usd` is not in it: the time of attempts that have
    not ended yet. `cost_lacks` lists the parts whose price is not known. `forecast` is of the current day and month in `zone`, whatever the
    span, if it was asked for.
    """

    by: CostKey
    since_ms: int | None
    until_ms: int | None
    zone: str
    rows: tuple[CostRow, ...]
    others: CostRow | None
    others_count: int
    usd: float
    parts: dict[Cause, float]
    running_usd: float
    cost_lacks: tuple[CostPart, ...] = ()
    forecast: tuple[CostForecast, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectBudget:
    """The budget of a project (None: no limit), what its attempts that have ended have spent, and what is reserved for running ones.
    `spent_usd` lacks the parts in `cost_lacks`."""

    project: str
    budget_usd: float | None
    spent_usd: float
    reserved_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentBudget:
    """The budget of an experiment that has not ended, and what its jobs have cost so far."""

    experiment: str
    name: str
    project: str
    budget_usd: float
    spent_usd: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsView:
    """The budgets of projects, and those of their newest experiments that have not ended, at most 50."""

    projects: tuple[ProjectBudget, ...]
    experiments: tuple[ExperimentBudget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpending:
    """What the nodes of a pool cost an hour now: `idle_usd_per_hour` of it for slots without a job, `starting_usd_per_hour` for nodes that
    have not joined yet. `unpriced` nodes have no known price, and are in no sum."""

    pool: str
    nodes: int
    slots: int
    slots_free: int
    unpriced: int
    usd_per_hour: float
    idle_usd_per_hour: float
    starting_usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What the fleet costs an hour now, and of it what is idle or starts; `pools` are those that have nodes."""

    pools: tuple[PoolSpending, ...]
    nodes: int
    unpriced: int
    usd_per_hour: float
    idle_usd_per_hour: float
    starting_usd_per_hour: float


def cost_row(key: str, label: str, micro_usd: Mapping[Cause, int]) -> CostRow:
    """Return the row of these costs, in micro-dollars by cause. Causes are in the order of the ledger."""
    return CostRow(key=key, label=label, usd=sum(micro_usd.values()) / 1e6, parts=dollars_by_cause(micro_usd))


def dollars_by_cause(micro_usd: Mapping[Cause, int]) -> dict[Cause, float]:
    return {cause: micro_usd[cause] / 1e6 for cause in CAUSES if micro_usd.get(cause)}
