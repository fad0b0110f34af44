"""Load what the sentence about a job is made of."""

from collections.abc import Sequence

from gangline.core.jobs.story.verdict import JobStanding, interruptions_of, lost_micro_usd, verdict
from gangline.core.money.cost import Lost
from gangline.core.views import JobSummary
from gangline.ports.store import Row
from gangline.service.attempts import as_attempt
from gangline.service.deployment import Deployment
from gangline.service.jobs.story.held_out import reported_held_out
from gangline.service.outage import silences


def verdict_of(
    deployment: Deployment, job: Row, summary: JobSummary, attempts: Sequence[Row], now_ms: int
) -> tuple[str, Lost]:
    """Return the sentence about a job, and what its interruptions cost, given its row, its summary and its attempts in order."""
    tried = [as_attempt(row) for row in attempts]
    handed_back = any(attempt.state in ("interrupted", "released") for attempt in tried)
    paused = (
        frozenset(row["attempt"] for row in deployment.store.load("attempts_paused", job=job["id"]))
        if handed_back
        else frozenset[str]()
    )
    rows = deployment.store.load("expenses_of_attempts", job=job["id"]) if handed_back else []
    expenses = {(row["attempt"], row["cause"]): row["micro_usd"] for row in rows}
    lost = interruptions_of(tried, paused)
    live = next((row for row in reversed(attempts) if row["state"] == "live"), None)
    silent = live if summary.phase == "silent" else None
    standing = JobStanding(
        **{name: getattr(summary, name) for name in ("state", "because", "steps", "step", "committed_step")},
        phase=silent["phase"] if silent else summary.phase,
        silent_ms=silences(deployment, now_ms)(silent["beat_ms"]) if silent else 0,
        lease_s=deployment.policy.lease_s,
        held_out=reported_held_out(deployment, job),
        **{name: getattr(summary, name) for name in ("node_name", "eta_s", "submitted_ms", "ended_ms", "cost_lacks")},
        since_ms=job["queued_ms"],
        busy_ms=sum((now_ms if row["ended_ms"] is None else row["ended_ms"]) - row["started_ms"] for row in attempts),
        micro_usd=summary.cost_usd * 1e6,
        lost=lost,
        lost_micro_usd=lost_micro_usd(tried, paused, expenses, now_ms),
        failure=next((attempt.kind for attempt in reversed(tried) if attempt.state == "failed"), ""),
    )
    return verdict(standing, now_ms), lost
