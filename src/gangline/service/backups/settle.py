"""End the attempts that were running when a backup was made: whoever holds them now holds nothing."""

from datetime import UTC, datetime

from gangline.service.attempts import conclude, stopped
from gangline.service.deployment import Deployment

EVER_MS = 2**62


def settle_restored(deployment: Deployment, made_ms: int) -> int:
    """Hand every job that ran at `made_ms` back to the queue as of then, and bill its time until then. Return how many they were.

    It may be repeated. A server that finds such attempts without it ends them as those of nodes that fell silent.
    """
    at = datetime.fromtimestamp(made_ms / 1000, UTC)
    because = f"the database was restored from a backup of {at:%Y-%m-%d %H:%M:%S} UTC"
    rows = deployment.store.load("overdue_leases", now=EVER_MS)
    return sum(conclude(deployment, row["attempt"], stopped(deployment, "", because), made_ms) for row in rows)
