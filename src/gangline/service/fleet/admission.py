"""Apply the terms of a join token to nodes that join with it: their price, their trust, and how many there may be."""

from collections.abc import Mapping, Sequence
from typing import Any

from gangline.core.errors import TooMany
from gangline.core.money.cost import HOUR_MS
from gangline.core.server.settings import PoolSettings
from gangline.ports.store import Write, guard, write
from gangline.service.deployment import Deployment


def terms_of(deployment: Deployment, pool: str, join_token: str | None, now_ms: int) -> dict[str, Any]:
    """Return the price and trust of a node that joins by hand: its join token's (an id), else those of its pool's settings."""
    settings, said = deployment.settings_of_pools.get(pool, PoolSettings()), _said(deployment, join_token, now_ms)
    price = _first(said.get("price_micro_usd_per_hour"), settings.price_micro_usd_per_hour)
    return {
        "price_micro_usd_per_hour": price or 0,
        "price_known": int(price is not None),
        "trust": _first(said.get("trust"), settings.trust_of_joined),
        "join_token": join_token,
    }


def _first(said: int | None, otherwise: int | None) -> int | None:
    return otherwise if said is None else said


def admit(deployment: Deployment, join_token: str | None, joining: Sequence[Write], now_ms: int) -> None:
    """Write a new node. Raise `TooMany` if its join token admits no more now."""
    since_ms = now_ms - HOUR_MS
    counted = [
        write("hold_join_token", id=join_token),
        guard("join_token_admits", id=join_token, now=now_ms, since=since_ms),
    ]
    if deployment.store.apply(*(counted if join_token else []), *joining):
        return
    said = _said(deployment, join_token, now_ms)
    if said["nodes_max"] is not None and said["here"] >= said["nodes_max"]:
        raise TooMany(
            f"{said['here']} nodes that joined with the token {said['name']} are active, and it admits no more at once",
            hint="wait until one of them has left, or use another token: gangline join-tokens add",
            wait_s=deployment.policy.node_silent_s,
        )
    raise TooMany(
        f"{said['joined']} nodes joined with the token {said['name']} within an hour, and it admits no more",
        wait_s=((said["first_ms"] or now_ms) - since_ms) / 1000,
    )


def _said(deployment: Deployment, join_token: str | None, now_ms: int) -> Mapping[str, Any]:
    rows = deployment.store.load("join_token", id=join_token, since=now_ms - HOUR_MS) if join_token else []
    return dict(rows[0]) if rows else {}
