"""What operators do with nodes and pools from the page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt, Le
from fastapi import Response

from gangline.api.node_routes import QUARANTINE_S
from gangline.api.pool_routes import PoolChange
from gangline.api.who import Now, Operator, ThisDeployment
from gangline.core.display import Label
from gangline.core.errors import BadInput, GanglineError
from gangline.core.parsing import parse_as
from gangline.core.words import counted
from gangline.service.deployment import Deployment
from gangline.service.fleet import operating, pools
from gangline.web.frame.forms import SentFields, SentForm
from gangline.web.frame.routes import ProviderPageRoute, like, page_router, toast

router = page_router()
of_providers = page_router(ProviderPageRoute)
ACTED_MAX = 1000
HOUR_S = 3600
HOURS_MAX = 8760


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedQuarantine:
    """What the form of a quarantine sends."""

    hours: Annotated[float, Gt(0), Le(HOURS_MAX)] = QUARANTINE_S / HOUR_S
    reason: Label = ""


def _drain(deployment: Deployment, node: str, now_ms: int, sent: SentForm) -> None:
    operating.drain(deployment, node, now_ms, stop=sent.has("stop"))


def _drain_now(deployment: Deployment, node: str, now_ms: int, _: SentForm) -> None:
    operating.drain(deployment, node, now_ms, stop=True)


def _quarantine(deployment: Deployment, node: str, now_ms: int, sent: SentForm) -> None:
    given = {name: sent.text(name) for name in ("hours", "reason") if sent.text(name)}
    wanted = parse_as(WantedQuarantine, given, options=True)
    lasts_s = wanted.hours * HOUR_S
    operating.quarantine(deployment, node, now_ms, lasts_s=lasts_s, stop=sent.has("stop"), reason=wanted.reason)


def _release(deployment: Deployment, node: str, now_ms: int, _: SentForm) -> None:
    operating.release(deployment, node, now_ms)


ACTIONS: dict[str, tuple[Callable[..., None], str]] = {
    "drain": (_drain, "getting no more work"),
    "stop": (_drain_now, "saving and handing back their jobs"),
    "quarantine": (_quarantine, "in quarantine"),
    "release": (_release, "working again"),
}
"""What is done to nodes, each by the use case of the API, and how it is said."""


@router.post(
    "/fleet/actions",
    **like("POST /v1/nodes/{node}/drain", "POST /v1/nodes/{node}/quarantine", "POST /v1/nodes/{node}/release"),
)
def act_on_nodes(deployment: ThisDeployment, now: Now, _: Operator, sent: SentFields) -> Response:
    """Do one thing to each of the selected nodes. What one of them refuses is said, and the others are done."""
    action, nodes = sent.text("action"), tuple(dict.fromkeys(sent.texts("node")))
    if action not in ACTIONS or not 0 < len(nodes) <= ACTED_MAX:
        raise BadInput(f"from 1 to {ACTED_MAX} nodes can be selected, and something must be done to them")
    act, done = ACTIONS[action]
    refused = list[GanglineError]()
    for node in nodes:
        try:
            act(deployment, node, now, sent)
        except GanglineError as error:
            refused.append(error)
    if len(refused) == len(nodes):
        raise refused[0]
    why = f"; {counted(len(refused), 'node')} not: {refused[0]}" if refused else ""
    return toast(f"{counted(len(nodes) - len(refused), 'node')}: {done}{why}")


@router.post("/fleet/pools/{pool}/pause", **like("POST /v1/pools/{pool}/pause"))
def stop_renting(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> Response:
    pools.set_pool_state(deployment, pool, "paused", now)
    return toast(f"No further node is rented for {pool}. Those that are here work until they are idle.")


@router.post("/fleet/pools/{pool}/resume", **like("POST /v1/pools/{pool}/resume"))
def rent_again(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> Response:
    pools.set_pool_state(deployment, pool, "active", now)
    return toast(f"Nodes are rented for {pool} again.")


@router.post("/fleet/pools/{pool}/sync", **like("POST /v1/pools/{pool}/sync"))
def ask_provider(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> Response:
    pools.ask_now(deployment, pool, now)
    return toast(f"The provider of {pool} is asked now.")


@of_providers.post("/fleet/pools/{pool}/change", **like("PATCH /v1/pools/{pool}"))
def change_pool_limits(deployment: ThisDeployment, now: Now, _: Operator, pool: str, sent: SentFields) -> Response:
    """Change the limits of a pool: a field that the form does not have stays, and one that is empty is no highest price."""
    given: dict[str, Any] = {name: sent.text(name) for name in ("nodes_min", "nodes_max") if sent.text(name)}
    ceiling = sent.text("price_max_usd_per_hour")
    if ceiling:
        given["price_max_usd_per_hour"] = ceiling
    wanted = parse_as(PoolChange, given, options=True)
    changes = {name: getattr(wanted, name) for name in given}
    known = pools.pool_view(deployment, pool)
    if sent.has("price_max_usd_per_hour") and not ceiling:
        changes["price_max_usd_per_hour"] = None
    changes = {name: value for name, value in changes.items() if value != getattr(known, name)}
    found = pools.set_pool(deployment, pool, changes, now)
    return toast(f"{pool} has from {found.nodes_min} to {counted(found.nodes_max, 'node')} now.")
