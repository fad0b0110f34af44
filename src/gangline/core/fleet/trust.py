"""Decide which machines get work: strikes, rest, quarantine, trial and release.

A strike counts only if there is a contrast: the same workload succeeded on another machine of the class, or this machine failed two
workloads that do not share a cause, as they belong to two projects or one of them succeeded on any other machine. If a machine blamed a
job ("the input is bad"), that counts as a strike once the job succeeds elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.jobs.failure import MEANING, STRIKE, FailureKind
from gangline.core.policy import Policy
from gangline.core.words import counted

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A failure that may count against a machine, in `quarters` of a strike.

    `elsewhere` says that the workload (or the job itself, if it was blamed) succeeded on another machine of the class, `anywhere` that the
    workload succeeded on another machine of any class.
    """

    kind: FailureKind
    workload: str
    project: str
    quarters: int
    elsewhere: bool
    anywhere: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The record of a machine: its `quarantines` so far, and its latest `failures` in a row."""

    quarantines: int = 0
    failures: int = 0
    on_trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHealth:
    """The pool of a machine. `nodes` counts its working and quarantined nodes, `others` the working nodes on other machines,
    `quarantined_lately` the other machines that were quarantined within the last hour. `may_rent` says that a replacement can be rented."""

    nodes: int
    others: int
    quarantined_lately: int
    may_rent: bool


@dataclass(frozen=True, slots=True)
class Quarantine:
    until_ms: int
    because: str


@dataclass(frozen=True, slots=True)
class TrialDue:
    """A quarantine is due, but no other machine could work: this one continues after a rest, with one job at a time."""

    rest_until_ms: int
    because: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """A quarantine is due, but this many at once suggest a common cause, which an operator must find."""

    because: str


def judge(
    machine: Machine, strikes: Sequence[Strike], pool: PoolHealth, *, now_ms: int, policy: Policy
) -> Quarantine | TrialDue | Alarm | None:
    if not is_quarantine_due(machine, strikes, policy):
        return None
    counted = counting(strikes, on_trial=machine.on_trial)
    quarters = sum(strike.quarters for strike in counted)
    kinds = ", ".join(sorted({MEANING[strike.kind].says for strike in counted}))
    because = f"{quarters / STRIKE:g} strikes: {kinds}"
    if machine.on_trial:
        because = f"failed its trial: {kinds}"
    if not pool.others and not pool.may_rent:
        return _last(machine, because, now_ms, policy)
    # Even the smallest pool may quarantine one machine.
    if pool.quarantined_lately + 1 > max(1, policy.quarantined_share_max * pool.nodes):
        return Alarm(
            f"it has enough strikes for a quarantine ({kinds}), but more than {policy.quarantined_share_max:.0%} of its pool would be "
            "quarantined within an hour; an operator should look at what these machines have in common"
        )
    seconds = policy.quarantine_s * 2 ** min(machine.quarantines, 10)
    return Quarantine(now_ms + round(seconds * 1000), because)


def _last(machine: Machine, because: str, now_ms: int, policy: Policy) -> TrialDue:
    # At least the rest of two failures in a row: after a single one there is none.
    rest = rest_ms(max(2, machine.failures + 1), policy)
    return TrialDue(
        now_ms + rest,
        f"{because}; no other machine of its pool works and none can be started, so it continues with one job at a time, "
        f"after a rest of {rest / 1000:.0f} s",
    )


def quarantines_that_count(quarantines: int, last_ms: int | None, now_ms: int, policy: Policy) -> int:
    """Return how many of a machine's quarantines lengthen the next one: none if the last was too long ago, at `last_ms`."""
    return quarantines if last_ms is not None and now_ms - last_ms <= policy.reputation_s * 1000 else 0


def is_quarantine_due(machine: Machine, strikes: Sequence[Strike], policy: Policy) -> bool:
    """Return whether the strikes suffice for a quarantine; on trial, half a strike does."""
    quarters = sum(strike.quarters for strike in counting(strikes, on_trial=machine.on_trial))
    return quarters >= (STRIKE // 2 if machine.on_trial else policy.strikes_max * STRIKE)


def counting(strikes: Sequence[Strike], *, on_trial: bool = False) -> list[Strike]:
    """Return the strikes that count, as there is a contrast. On trial all of a machine's strikes count: earlier ones gave the contrast."""
    own = [strike for strike in strikes if MEANING[strike.kind].blame != "job"]
    its_own_fault = on_trial or _has_contrast(own)
    return [strike for strike in strikes if strike.elsewhere or (its_own_fault and strike in own)]


def _has_contrast(own: Sequence[Strike]) -> bool:
    """Return whether the machine rather than its jobs is the cause: all jobs of one project may share a fault."""
    if len({strike.workload for strike in own}) < 2:
        return False
    return len({strike.project for strike in own}) >= 2 or any(strike.anywhere for strike in own)


def rest_ms(failures: int, policy: Policy) -> int:
    """Return the milliseconds that a machine pauses after `failures` failures in a row, whatever the cause.

    This bounds how many jobs a bad machine can fail before enough strikes count.
    """
    if failures < 2:
        return 0
    return round(1000 * min(policy.rest_max_s, policy.rest_first_s * 2 ** min(failures - 2, 20)))


def record_says(
    *, pools: Sequence[str], succeeded: int, lost: int, moved: int, quarantines: int, lasts_s: float
) -> str:
    """Return the sentence of a machine's record over the last `lasts_s` seconds.

    >>> record_says(pools=("a", "b"), succeeded=9, lost=3, moved=0, quarantines=1, lasts_s=30 * 86_400)
    'in 30 days: 3 of 12 attempts lost in 2 pools, 1 quarantine'
    >>> record_says(pools=(), succeeded=0, lost=0, moved=0, quarantines=0, lasts_s=30 * 86_400)
    'in 30 days: no attempt'
    """
    attempts = succeeded + lost + moved
    said = (
        f"{lost} of {counted(attempts, 'attempt')} lost in {counted(len(pools), 'pool')}" if attempts else "no attempt"
    )
    more = [f"{moved} moved away from it"] if moved else []
    more += [counted(quarantines, "quarantine")] if quarantines else []
    return f"in {counted(max(1, round(lasts_s / DAY_S)), 'day')}: {', '.join([said, *more])}"
