"""Load what waits, what may take it, and what the ledger knows of the offers that could."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.fleet.choice import ClassPace, History, OfferFacts, interruptions_per_hour
from gangline.core.fleet.needs import NodeShape, QueuedWork, Room, fits
from gangline.core.money.cost import DAY_MS
from gangline.core.runs.daly import between_s
from gangline.core.runs.proof import kinds_in, kinds_text, offered_kinds
from gangline.core.server.isolation import LEVELS
from gangline.core.specs.kinds import KINDS
from gangline.ports.pool import Offer
from gangline.ports.store import Row
from gangline.service.deployment import Deployment

PACES_MAX = 500
"""The number of pairs of a workload and a class of GPU that are compared: the last that were measured."""


def load_needs(deployment: Deployment, now_ms: int) -> list[QueuedWork]:
    """Return the waiting jobs that could begin now, counted by what they need."""
    rows = deployment.store.load("needs", now=now_ms)
    shapes = [shape_of(row) for row in deployment.store.load("shapes_of_nodes")] if rows else []
    return [_need(row, shapes) for row in rows]


def _need(row: Row, shapes: Iterable[NodeShape]) -> QueuedWork:
    known = {name: row[name] for name in row.keys() if name != "barred"}  # noqa: SIM118 - a row is no mapping
    need = QueuedWork(**known)
    stuck = bool(row["barred"]) or not any(fits(need, shape) for shape in shapes)
    return replace(need, stuck=True) if stuck else need


def shape_of(row: Row) -> NodeShape:
    names = ("pool", "gpu", "gpu_memory_gb", "trust", "slots", "kinds", "numerics")
    return NodeShape(**{name: row[name] for name in names})


def free_slots(row: Row) -> int:
    """Return how many slots of a node may take work now. A node on trial has one job at a time."""
    busy = row["slots_free"] < row["slots"]
    return 0 if row["state"] == "on_trial" and busy else row["slots_free"]


def rooms_by_hand(deployment: Deployment, now_ms: int) -> list[Room]:
    """Return the free slots of nodes that no provider bills."""
    idle_ms = round(deployment.policy.idle_s * 1000)
    rows = deployment.store.load("nodes_by_hand")
    return [
        Room(node=row["id"], shape=shape_of(row), free=free_slots(row), old=now_ms - row["meter_ms"] >= idle_ms)
        for row in rows
        if free_slots(row)
    ]


def kinds_of_pool(deployment: Deployment, pool: str, now_ms: int) -> str:
    """Return the kinds of jobs that a new node of this pool is expected to offer: those of its recent nodes, or all if none came."""
    rows = deployment.store.load("kinds_of_pool", pool=pool, since=now_ms - round(deployment.policy.lacking_s * 1000))
    return kinds_text({kind for row in rows for kind in kinds_in(row["kinds"])} or offered_kinds(KINDS, LEVELS[-1]))


def shape_of_offer(offer: Offer, pool: str, kinds: str) -> NodeShape:
    return NodeShape(
        pool=pool, gpu=offer.gpu, gpu_memory_gb=offer.gpu_memory_gb, trust=offer.trust, slots=offer.slots, kinds=kinds
    )


def load_histories(deployment: Deployment, now_ms: int) -> dict[tuple[str, str], History]:
    """Return what is known of each pool's offers, of the last day."""
    since_ms, load, found = now_ms - DAY_MS, deployment.store.load, dict[tuple[str, str], dict[str, int]]()
    for row in (
        *load("billed_on_offers", now=now_ms, since=since_ms),
        *load("lost_on_offers", since=since_ms),
        *load("starts_on_offers", since=since_ms),
    ):
        known = {name: row[name] for name in row.keys() if name not in ("pool", "offer")}  # noqa: SIM118 - a row is no mapping
        found.setdefault((row["pool"], row["offer"]), {}).update(known)
    return {key: History(**known) for key, known in found.items()}


def expected_between_s(deployment: Deployment, node: str, now_ms: int) -> float:
    """Return the mean time between interruptions that is expected of a run on this node, from all runs of the last day on nodes of its
    offer; on one that joined by hand, from all on nodes that joined its pool by hand."""
    histories = deployment.recent.interruptions(now_ms, lambda: _load_interruptions(deployment, now_ms))
    found = deployment.store.load("node", id=node)[0]
    history = histories.get((found["pool"], found["offer"]), History())
    return between_s(per_node_hour=interruptions_per_hour(history), nodes=1)


def _load_interruptions(deployment: Deployment, now_ms: int) -> dict[tuple[str, str], History]:
    """Return for how long runs lasted in the last day on the nodes of each pool's offers, and how many of them were interrupted."""
    rows = deployment.store.load("interruptions_on_offers", now=now_ms, since=now_ms - DAY_MS)
    return {(row["pool"], row["offer"]): History(lost=row["lost"], ms=row["ms"]) for row in rows}


def load_paces(deployment: Deployment, now_ms: int) -> list[ClassPace]:
    rows = deployment.store.load("class_paces", since=now_ms - 30 * DAY_MS, limit=PACES_MAX)
    return [ClassPace(**row) for row in rows]


def facts_of_offers(
    deployment: Deployment,
    pool: PoolLimits,
    offers: Iterable[Offer],
    histories: Mapping[tuple[str, str], History],
    now_ms: int,
) -> list[OfferFacts]:
    """Return the pool's offers with what is known of them."""
    since_ms = now_ms - round(deployment.policy.lacking_s * 1000)
    rows = deployment.store.load("failed_probes_of_offers", pool=pool.name, since=since_ms)
    failed = {row["offer"]: row["nodes"] for row in rows}
    kinds = kinds_of_pool(deployment, pool.name, now_ms)
    return [
        OfferFacts(
            offer=offer.id,
            shape=shape_of_offer(offer, pool.name, kinds),
            price_micro_usd_per_hour=offer.price_micro_usd_per_hour,
            price_known=offer.price_known,
            history=histories.get((pool.name, offer.id), History()),
            failed_probes=failed.get(offer.id, 0),
            refused=deployment.recent.is_refused(pool.name, offer.id, now_ms),
        )
        for offer in offers
    ]
