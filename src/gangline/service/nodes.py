"""Nodes come and go."""

from gangline.core.canonical import canonical_json
from gangline.ports.server import Join, Joined
from gangline.ports.store import guard, write
from gangline.service.access import adding
from gangline.service.attempts import ending_of_node
from gangline.service.deployment import Deployment


def join(at: Deployment, request: Join, now_ms: int) -> Joined:
    node, token = at.new_id("node"), at.new_secret()
    at.store.apply(
        write(
            "add_node",
            id=node,
            machine=request.machine,
            name=request.name,
            pool=request.pool,
            slots=request.slots,
            capabilities=canonical_json(request.capabilities),
            price_micro_usd_per_hour=at.price_micro_usd_per_hour,
            now=now_ms,
        ),
        adding(token, "node", node=node, now_ms=now_ms),
    )
    return Joined(
        node=node,
        token=token,
        heartbeat_interval_s=at.policy.heartbeat_interval_s,
        claim_interval_s=at.policy.claim_interval_s,
    )


def leave(at: Deployment, node: str, now_ms: int) -> None:
    """Nothing is to be expected from this node any more; what it still held goes back to the queue."""
    for writes in ending_of_node(at, node, now_ms):
        at.store.apply(*writes)
    at.store.apply(guard("node_gone", id=node))


def give_up_silent(at: Deployment, now_ms: int) -> None:
    """Nodes without a word for long are gone, unless it was we who could not hear."""
    silent_ms = round(at.policy.node_silent_s * 1000)
    if now_ms - at.up_since_ms < silent_ms:
        return
    for row in at.store.load("silent_nodes", before=now_ms - silent_ms):
        at.store.apply(guard("node_silent_gone", id=row["id"], before=now_ms - silent_ms))
