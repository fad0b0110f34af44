"""What a pool's terms admit of its provider's offers, and what the provider said last, which its row keeps for all servers."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace

from gangline.core.canonical import canonical_json
from gangline.core.fleet.pools import PoolTerms, excluded
from gangline.ports.pool import Offer
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment, RentedPool


def refresh_pools(deployment: Deployment, *, asks: bool) -> None:
    """Open and close drivers as the rows say. A server that does not ask the providers itself learns what they said."""
    rows = deployment.store.load("pools")
    deployment.open_pools(rows)
    if not asks:
        for row in rows:
            (offers, away), pool = seen_of(row), deployment.pools.get(row["name"])
            known = None if offers is None or pool is None else admitted(pool, offers)
            deployment.recent.note_offers(row["name"], known, away)


def admitted(pool: RentedPool, offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers that the pool may rent, with the trust that its terms give their nodes."""
    terms = pool.terms
    if terms is None:
        return list(offers)
    return [replace(offer, trust=trust_of(offer, terms)) for offer in offers if not why_excluded(offer, terms)]


def trust_of(offer: Offer, terms: PoolTerms | None) -> int:
    """Return the trust tier of this offer's nodes in a pool with these terms."""
    return offer.trust if terms is None or terms.trust is None else terms.trust


def note_seen(deployment: Deployment, pool: RentedPool, offers: Iterable[Offer], away: str, now_ms: int) -> None:
    """Keep for the other servers what the provider said."""
    if pool.terms is not None:
        # A server of an earlier version reads it, too: it does not know what few offers have.
        told = [{name: value for name, value in asdict(offer).items() if value is not None} for offer in offers]
        seen = canonical_json({"offers": told, "away": away})
        answered_ms = None if away else now_ms
        deployment.store.apply(write("see_pool", name=pool.limits.name, seen=seen, answered_ms=answered_ms))


def seen_of(row: Row) -> tuple[list[Offer] | None, str]:
    """Return the provider's last offers, None if there are none to go by, and why."""
    seen = json.loads(row["seen"])
    away = seen.get("away", "")
    return (None if away or not seen else [Offer(**each) for each in seen["offers"]]), away


def why_excluded(offer: Offer, terms: PoolTerms) -> str:
    """Return why a pool with these terms may not rent this offer; empty if it may."""
    price = {"price_micro_usd_per_hour": offer.price_micro_usd_per_hour, "price_known": offer.price_known}
    return excluded(terms, offer=offer.id, **price)
