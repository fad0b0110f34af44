"""End the attempts that were running when a backup was made, and bill nothing from then until now."""

from datetime import UTC, datetime

from gangline.ports.store import write
from gangline.service.attempts import conclude, load_node, stopped
from gangline.service.deployment import Deployment
from gangline.service.money import bill

EVER_MS = 2**62


def settle_restored(deployment: Deployment, made_ms: int, now_ms: int) -> int:
    """Hand every job that ran at `made_ms` back to the queue as of then, and bill its time until then. Return how many they were.

    Idle nodes are billed until then, and from now on. What a rented one costs in between, its provider's bill says.

    It may be repeated. A server that finds such attempts without it ends them as those of nodes that fell silent.
    """
    at = datetime.fromtimestamp(made_ms / 1000, UTC)
    because = f"the database was restored from a backup of {at:%Y-%m-%d %H:%M:%S} UTC"
    rows = deployment.store.load("overdue_leases", now=EVER_MS)
    ended = sum(conclude(deployment, row["attempt"], stopped(deployment, "", because), made_ms) for row in rows)
    for row in deployment.store.load("nodes_here"):
        node = load_node(deployment, row["id"])
        if node.state != "starting":
            until_ms = max(made_ms, node.meter_ms)
            metered = {"id": node.id, "seen": until_ms, "now": max(until_ms, now_ms), "heard": 0}
            deployment.store.apply(*bill.meter(node, until_ms, heard_ms=0), write("meter_node", **metered))
    return ended
