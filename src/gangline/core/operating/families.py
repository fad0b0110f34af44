"""Metrics of a server as values: families of samples, which know no format. No label names a job, a node or a user."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from gangline.core.job import JobState
from gangline.core.money.cost import Cause
from gangline.core.operating.readiness import ReadinessView
from gangline.core.reports.rows import NOT_TIME, NOT_WASTE

MeasuredKind = Literal["gauge", "counter"]
Labels = tuple[str, ...]
QUEUED: JobState = "queued"
HELD_BACK = "held"
"""The state in metrics of queued jobs that wait for their photos or for their experiment: no node may take them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFamily:
    """A metric with its samples by the values of its `labels`. Counters never fall, and their names end with `_total`."""

    name: str
    kind: MeasuredKind
    says: str
    labels: Labels = ()
    samples: Mapping[Labels, float]


def gauge(name: str, says: str, samples: Mapping[Labels, float] | float, *labels: str) -> MeasuredFamily:
    return MeasuredFamily(name=f"gangline_{name}", kind="gauge", says=says, labels=labels, samples=_samples(samples))


def counter(name: str, says: str, samples: Mapping[Labels, float] | float, *labels: str) -> MeasuredFamily:
    return MeasuredFamily(
        name=f"gangline_{name}_total", kind="counter", says=says, labels=labels, samples=_samples(samples)
    )


def _samples(samples: Mapping[Labels, float] | float) -> Mapping[Labels, float]:
    return samples if isinstance(samples, Mapping) else {(): samples}


@dataclass(slots=True, kw_only=True)
class Totals:
    """What was counted up to `until_ms`: attempts by pool, end and kind of failure; milliseconds and micro-dollars by pool and cause, and
    credits by pool."""

    until_ms: int = 0
    attempts: Counter[Labels] = field(default_factory=Counter)
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    ms: Counter[Labels] = field(default_factory=Counter)
    micro_usd: Counter[Labels] = field(default_factory=Counter)
    credit_micro_usd: Counter[Labels] = field(default_factory=Counter)

    def __add__(self, newer: "Totals") -> "Totals":
        return Totals(
            until_ms=newer.until_ms,
            attempts=Counter(self.attempts) + newer.attempts,
            checkpoints=self.checkpoints + newer.checkpoints,
            checkpoint_bytes=self.checkpoint_bytes + newer.checkpoint_bytes,
            ms=_added(self.ms, newer.ms),
            micro_usd=_added(self.micro_usd, newer.micro_usd),
            credit_micro_usd=_added(self.credit_micro_usd, newer.credit_micro_usd),
        )


def _added(first: Counter[Labels], second: Counter[Labels]) -> Counter[Labels]:
    """Add two counters, and keep what is 0: a sample that comes and goes cannot be compared."""
    found = Counter(first)
    found.update(second)
    return found


def families_of_jobs(by_state: Mapping[str, int], waiting: int, oldest_s: float) -> list[MeasuredFamily]:
    """Return how many jobs are in each state, 0 for none, and for how many seconds the oldest has waited for a node (0: none waits)."""
    counts: dict[Labels, float] = {(state,): by_state.get(state, 0) for state in get_args(JobState)}
    counts[QUEUED,] = waiting
    counts[HELD_BACK,] = max(0, by_state.get(QUEUED, 0) - waiting)
    return [
        gauge(
            "jobs",
            "Jobs by state; held: queued, and waiting for their photos or for their experiment.",
            counts,
            "state",
        ),
        gauge(
            "oldest_queued_seconds",
            "How long the oldest queued job has waited for a node; 0 if none waits.",
            max(0.0, oldest_s),
        ),
    ]


def families_of_totals(totals: Totals) -> list[MeasuredFamily]:
    """Return the counters of what has ended: attempts, leases, checkpoints, time and money."""
    expired = Counter[Labels]()
    for (pool, state, _), attempts in totals.attempts.items():
        expired[pool,] += attempts if state == "interrupted" else 0
    return [
        counter(
            "attempts_ended",
            "Attempts that have ended, by how; failure: the kind of failure, or empty.",
            totals.attempts,
            "pool",
            "outcome",
            "failure",
        ),
        counter("leases_expired", "Attempts whose node fell silent, so that their lease expired.", expired, "pool"),
        counter("checkpoints", "Checkpoints that were committed.", totals.checkpoints),
        counter("checkpoint_bytes", "Bytes of the checkpoints that were committed.", totals.checkpoint_bytes),
        counter(
            "node_seconds",
            "Time of attempts and idle nodes in the ledger, by pool and cause; useful: yes for training.",
            {_used(key): ms / 1000 for key, ms in totals.ms.items() if key[1] not in NOT_TIME},
            *USED,
        ),
        counter(
            "cost_usd",
            "Dollars in the ledger, by pool and cause; useful: no for what was wasted. Credits are apart.",
            {_used(key): usd / 1e6 for key, usd in totals.micro_usd.items()},
            *USED,
        ),
        counter(
            "credits_usd",
            "Dollars that providers did not bill although the ledger had them.",
            {key: usd / 1e6 for key, usd in totals.credit_micro_usd.items()},
            "pool",
        ),
    ]


def family_of_readiness(found: ReadinessView) -> MeasuredFamily:
    """Return 1 or 0 for each check of the server that was asked."""
    checks = {(check.name,): float(check.ok) for check in found.checks}
    return gauge("ready", "1 if this check of the server's readiness is ok, else 0.", checks, "check")


USED = ("pool", "cause", "useful")
CORRECTION: Cause = "correction"


def _used(key: Labels) -> Labels:
    pool, cause = key
    return pool, cause, "yes" if cause in USEFUL else "no"


USEFUL = frozenset[str]((*NOT_WASTE, *NOT_TIME)) - {CORRECTION}
"""As in reports, the time of nodes that was not training is wasted; storage and downloads are paid for what is kept. A correction that
is no credit is what a provider billed for a node after it was given up."""


def by_pool(pools: Iterable[str], counts: Mapping[str, float]) -> dict[Labels, float]:
    """Return the count of each pool, 0 for a known one that has none: a sample that comes and goes cannot be compared."""
    return {(pool,): counts.get(pool, 0) for pool in sorted({*pools, *counts})}
