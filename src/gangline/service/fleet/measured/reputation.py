"""Load what a machine did in all pools, whatever its nodes were called, and which machines did worst."""

from collections import Counter

from gangline.core.fleet.nodes import MachineLoss, MachineRecord, MachineSummary
from gangline.core.fleet.trust import quarantines_that_count, record_says
from gangline.core.jobs.failure import MEANING
from gangline.core.runs.proof import kinds_text
from gangline.ports.store import Row
from gangline.service.deployment import Deployment

LOSSES_MAX = 20
MACHINES_MAX = 200
JOB_KINDS = kinds_text(kind for kind, meaning in MEANING.items() if meaning.blame == "job")
"""The kinds of failure that are not held against a machine."""


def load_record(deployment: Deployment, machine: Row, project: str | None, now_ms: int) -> MachineRecord:
    """Return the record of a machine. Jobs are shown to their own project, and to operators (`project` is None)."""
    since_ms = _since_ms(deployment, now_ms)
    tally, pools = Counter[str](), dict[str, None]()
    of = {"machine": machine["id"], "since": since_ms, "job_kinds": JOB_KINDS}
    for row in deployment.store.load("machine_tally", **of):
        pools[row["pool"]] = None
        tally[row["fate"]] += row["attempts"]
    rows = deployment.store.load("machine_losses", **of, limit=LOSSES_MAX)
    counts = {
        "pools": tuple(sorted(pools)),
        "succeeded": tally["succeeded"],
        "lost": tally["lost"],
        "moved": tally["moved"],
        "quarantines": quarantines_that_count(
            machine["quarantines"], machine["quarantined_ms"], now_ms, deployment.policy
        ),
    }
    return MachineRecord(
        **counts,
        since_ms=since_ms,
        known_ms=machine["known_ms"],
        quarantined_ms=machine["quarantined_ms"],
        losses=tuple(_loss(row, project) for row in rows),
        says=record_says(**counts, lasts_s=deployment.policy.reputation_s),
    )


def machines(deployment: Deployment, now_ms: int, limit: int = MACHINES_MAX) -> list[MachineSummary]:
    """Return the machines with attempts lately, or in quarantine, those that lost most first."""
    since_ms = _since_ms(deployment, now_ms)
    return [
        MachineSummary(
            **{name: row[name] for name in ("id", "attempts", "lost", "moved", "pools", "last_ms", "because")},
            since_ms=since_ms,
            quarantines=quarantines_that_count(row["quarantines"], row["quarantined_ms"], now_ms, deployment.policy),
            quarantined_until_ms=row["quarantined_until_ms"] if row["quarantined_until_ms"] > now_ms else None,
            on_trial=bool(row["on_trial"]),
        )
        for row in deployment.store.load(
            "machines_by_losses", since=since_ms, now=now_ms, job_kinds=JOB_KINDS, limit=limit
        )
    ]


def _since_ms(deployment: Deployment, now_ms: int) -> int:
    return now_ms - round(deployment.policy.reputation_s * 1000)


def _loss(row: Row, project: str | None) -> MachineLoss:
    is_seen = project in (None, row["project"])
    return MachineLoss(
        **{name: row[name] for name in ("at_ms", "pool", "node", "state")},
        because=row["because"] if is_seen else "",
        job=row["job"] if is_seen else None,
    )
