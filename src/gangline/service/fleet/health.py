"""Judge machines by their strikes, and end attempts that make no progress."""

import logging

from gangline.core.fleet.autoscale import may_rent
from gangline.core.fleet.trust import (
    Alarm,
    Machine,
    PoolHealth,
    Quarantine,
    Strike,
    TrialDue,
    is_quarantine_due,
    judge,
    quarantines_that_count,
)
from gangline.core.jobs.failure import MEANING
from gangline.core.jobs.watch import WatchedAttempt, no_progress
from gangline.core.money.cost import HOUR_MS
from gangline.core.specs.kinds import KINDS
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import conclude, failure
from gangline.service.deployment import Deployment
from gangline.service.fleet.nodes import saying
from gangline.service.fleet.speed import heed_speed
from gangline.service.outage import back_since_ms

log = logging.getLogger("gangline.health")


def judge_machines(deployment: Deployment, now_ms: int) -> None:
    """Judge every machine with recent strikes again: the contrast, another machine that succeeds at the same work, may come after the
    strike.
    """
    since = now_ms - round(deployment.policy.strike_window_s * 1000)
    for machine in deployment.store.load("struck_machines", since=since, now=now_ms):
        judge_machine(deployment, machine["id"], machine["pool"], now_ms)


def judge_machine(deployment: Deployment, machine_id: str, pool: str, now_ms: int) -> None:
    row = deployment.store.load("machine", id=machine_id)[0]
    strikes = _strikes(deployment, machine_id, now_ms)
    if not strikes or row["quarantined_until_ms"] > now_ms:
        return
    counted = quarantines_that_count(row["quarantines"], row["quarantined_ms"], now_ms, deployment.policy)
    machine = Machine(quarantines=counted, failures=row["failures"], on_trial=bool(row["on_trial"]))
    if not is_quarantine_due(machine, strikes, deployment.policy):
        return
    verdict = judge(
        machine, strikes, _pool(deployment, pool, machine_id, now_ms), now_ms=now_ms, policy=deployment.policy
    )
    match verdict:
        case Quarantine():
            _quarantine(deployment, row, verdict, counted, now_ms)
        case TrialDue():
            _try(deployment, row, verdict, now_ms)
        case Alarm() if verdict.because != row["because"]:
            _alarm(deployment, machine_id, verdict.because)


def _pool(deployment: Deployment, name: str, machine: str, now_ms: int) -> PoolHealth:
    """Return the health of a machine's pool."""
    here = deployment.store.load("nodes_working", pool=name, machine=machine)[0]
    own = sum(node["rented"] for node in deployment.store.load("nodes_of_machine", machine=machine))
    rented = deployment.store.load("rented_in_pool", pool=name)[0]["nodes"]
    limits = deployment.pools[name].limits if name in deployment.pools else None
    return PoolHealth(
        nodes=here["nodes"],
        others=here["others"],
        quarantined_lately=deployment.store.load("quarantined_lately", pool=name, id=machine, since=now_ms - HOUR_MS)[
            0
        ]["machines"],
        may_rent=may_rent(limits, rented=rented, gives_back=own),
    )


def _strikes(deployment: Deployment, machine: str, now_ms: int) -> list[Strike]:
    since = now_ms - round(deployment.policy.strike_window_s * 1000)
    return [as_strike(row) for row in deployment.store.load("strikes", machine=machine, since=since)]


def as_strike(row: Row) -> Strike:
    """Return a strike with its contrast."""
    return Strike(
        kind=row["kind"],
        workload=row["workload"],
        project=row["project"],
        quarters=row["quarters"],
        elsewhere=bool(row["job_elsewhere" if MEANING[row["kind"]].blame == "job" else "workload_elsewhere"]),
        anywhere=bool(row["workload_anywhere"]),
    )


def judged_ms(machine: Row) -> int:
    """Return when a machine was judged last, by which the next judgement is guarded; -1 if it never was."""
    return -1 if machine["quarantined_ms"] is None else machine["quarantined_ms"]


def _quarantine(deployment: Deployment, machine: Row, verdict: Quarantine, before: int, now_ms: int) -> None:
    because = f"quarantined: {verdict.because}"
    once = guard(
        "quarantine_machine",
        id=machine["id"],
        quarantines=before + 1,
        judged_ms=judged_ms(machine),
        until_ms=verdict.until_ms,
        because=because,
        now=now_ms,
    )
    deployment.store.apply(once, *saying(deployment, machine["id"], because, "quarantined"))


def _try(deployment: Deployment, machine: Row, verdict: TrialDue, now_ms: int) -> None:
    because = f"on trial: {verdict.because}"
    log.warning("machine %s: %s", machine["id"], because)
    rest = {"rest_until_ms": verdict.rest_until_ms, "because": because, "now": now_ms}
    once = guard("try_machine", id=machine["id"], judged_ms=judged_ms(machine), **rest)
    deployment.store.apply(once, *saying(deployment, machine["id"], because, "on_trial"))


def _alarm(deployment: Deployment, machine: str, because: str) -> None:
    log.warning("machine %s: %s", machine, because)
    deployment.store.apply(write("alarm", id=machine, because=because), *saying(deployment, machine, because))


def begin_trials(deployment: Deployment, now_ms: int) -> None:
    """Put machines on trial whose quarantine is over: they get work again, and return to quarantine at their first failure."""
    for row in deployment.store.load("quarantines_over", now=now_ms):
        because = "on trial after a quarantine"
        deployment.store.apply(
            write("set_node_state", id=row["id"], before="quarantined", state="on_trial", because=because)
        )


def watch_attempts(deployment: Deployment, now_ms: int) -> None:
    """End attempts that make no progress, and move jobs that another machine would do for less."""
    leases, back_ms = deployment.store.load("live_leases"), back_since_ms(deployment, now_ms)
    for lease in leases:
        because = no_progress(_watched(lease), now_ms, back_ms, deployment.policy)
        if because:
            conclude(deployment, lease["attempt"], failure(deployment, "no progress", because), now_ms)
            judge_machine(deployment, lease["machine"], lease["pool"], now_ms)
    heed_speed(deployment, leases, now_ms)


def _watched(lease: Row) -> WatchedAttempt:
    return WatchedAttempt(
        phase=lease["phase"],
        step=lease["step"],
        started_ms=lease["started_ms"],
        training_ms=lease["training_ms"],
        stepped_ms=lease["stepped_ms"],
        committed_ms=lease["committed_ms"],
        save_s=lease["save_s"],
        reports_steps=KINDS[lease["job_kind"]].ours,
    )
