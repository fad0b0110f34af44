"""Compute what a job had cost at each moment, from its lines of the ledger."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.money.cost import LedgerLine

POINTS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentPoint:
    """What a job had cost at a moment, in US dollars."""

    at_ms: int
    usd: float


def spending(lines: Sequence[LedgerLine], from_ms: int, points_max: int = POINTS_MAX) -> tuple[SpentPoint, ...]:
    """Return the cost since `from_ms` as points to join by straight lines: each line of the ledger costs evenly from its start to its end.

    The first point is at `from_ms`, or where a line begins before; the last one has the sum of all lines exactly. At most `points_max` (at
    least 2) points are returned.
    """
    total, cuts = sum(line.micro_usd for line in lines), _cuts(lines)
    at_ms = min([from_ms, *cuts])
    spent = rate = 0.0
    found = [(at_ms, spent)]
    for next_ms in sorted(cuts):
        spent += rate * (next_ms - at_ms)
        found.append((next_ms, spent))
        jump, change = cuts[next_ms]
        if jump:
            found.append((next_ms, spent + jump))
        spent, rate, at_ms = spent + jump, rate + change, next_ms
    found[-1] = (found[-1][0], total)
    kept = found if len(found) <= points_max else _thinned(found, points_max)
    return tuple(SpentPoint(at_ms=at, usd=min(max(0, round(micro_usd)), total) / 1e6) for at, micro_usd in kept)


def _cuts(lines: Sequence[LedgerLine]) -> dict[int, tuple[float, float]]:
    """Return the moments at which the cost jumps by an amount, or begins to rise by more or less for each millisecond."""
    jumps, changes = defaultdict[int, float](float), defaultdict[int, float](float)
    for line in lines:
        if line.to_ms <= line.from_ms:
            jumps[line.from_ms] += line.micro_usd
            continue
        rate = line.micro_usd / (line.to_ms - line.from_ms)
        changes[line.from_ms] += rate
        changes[line.to_ms] -= rate
    return {at_ms: (jumps[at_ms], changes[at_ms]) for at_ms in jumps.keys() | changes.keys()}


def _thinned(found: list[tuple[int, float]], points_max: int) -> list[tuple[int, float]]:
    """Return evenly chosen points, the first and the last among them."""
    last = len(found) - 1
    return [found[round(number * last / (points_max - 1))] for number in range(points_max)]
