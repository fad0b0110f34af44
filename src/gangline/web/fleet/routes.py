"""The fleet's screen, a node's page, and their streams."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from gangline.api.lanes import USERS, json_response
from gangline.api.who import NUMBER_MAX, Now, Operator, ThisDeployment, Viewer
from gangline.core.display import printable
from gangline.core.fleet.gauges import MINUTE_MS, MINUTES
from gangline.service.fleet.measured.gauges import gauges_of
from gangline.service.fleet.operating import node_bill
from gangline.service.fleet.pools import node_logs
from gangline.web.fleet.followed import FIRST, FleetScreen, NodeScreen
from gangline.web.fleet.node import shown_detail
from gangline.web.fleet.pools import shown_pools
from gangline.web.fleet.shown import ORDERS, STATES, AskedNodes, NodesAsked, ShownFleet, shown_fleet
from gangline.web.frame.routes import ProviderPageRoute, like, page_router, part, screen
from gangline.web.frame.visitor import Looking, LookingLater
from gangline.web.live.following import Following

router = page_router()
of_providers = page_router(ProviderPageRoute)
SPARKS_MAX = 60


@router.get("/fleet", **like("GET /v1/nodes"))
def fleet_screen(request: Request, deployment: ThisDeployment, now: Now, look: Looking, asked: NodesAsked) -> Response:
    """Show the nodes, and operators the pools."""
    fleet = shown_fleet(deployment, look.identity.project, asked, now)
    return screen(
        look,
        "fleet/screen.html",
        fleet=fleet,
        asked=asked,
        filters=asked.as_pairs(),
        pools=shown_pools(deployment, fleet, now) if look.sees("operator") else None,
        may=look.may("operator"),
        orders=ORDERS,
        states=STATES,
        server=deployment.url or str(request.base_url).rstrip("/"),
        **_rows(fleet, asked, 0),
    )


@router.get("/fleet/more", **like("GET /v1/nodes"))
def show_more_nodes(
    deployment: ThisDeployment,
    now: Now,
    look: Looking,
    asked: NodesAsked,
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
) -> Response:
    """Show the nodes after those that are shown already."""
    fleet = shown_fleet(deployment, look.identity.project, asked, now)
    return part("fleet/rows.html", may=look.may("operator"), **_rows(fleet, asked, after))


@router.get("/fleet/sparks", **like("GET /v1/nodes/{node}"))
def show_sparks(
    deployment: ThisDeployment,
    now: Now,
    _: Viewer,
    node: Annotated[tuple[str, ...], Query(max_length=SPARKS_MAX)] = (),
) -> Response:
    """Return for each of these nodes how busy its GPUs, or else its processor, were in each minute of the last hour, from 0 to 1."""
    found = dict[str, list[float]]()
    for each in dict.fromkeys(node):
        points = gauges_of(deployment, each, now)[1]
        recent = [point for point in points if point.at_ms > now - MINUTES * MINUTE_MS]
        busy = (point.cpu_load if point.gpu_utilisation is None else point.gpu_utilisation for point in recent)
        found[each] = [share for share in busy if share is not None]
    return json_response(found)


@router.get("/fleet/{node}", **like("GET /v1/nodes/{node}"))
def node_screen(deployment: ThisDeployment, now: Now, look: Looking, node: str) -> Response:
    """Show a node with its gauges, its machine and its attempts, and an operator what a rented one has cost."""
    shown = shown_detail(deployment, node, look.identity.project, now)
    bill = node_bill(deployment, node) if look.sees("operator") and shown.node.rental else None
    return screen(look, "fleet/node.html", shown=shown, bill=bill, may=look.may("operator"))


@of_providers.get("/fleet/{node}/log", **like("GET /v1/nodes/{node}/logs"))
def show_node_log(deployment: ThisDeployment, _: Operator, node: str) -> Response:
    """Show what a rented node printed last, as its provider has it."""
    return part("fleet/log.html", text=printable(node_logs(deployment, node), keep="\n\t"))


@router.get("/live/fleet", **like("GET /v1/nodes"))
async def follow_fleet(following: Following, look: LookingLater, asked: NodesAsked) -> Response:
    """Follow the nodes, and the pools if an operator looks."""
    seen = await USERS.run(look.get)
    operates, may, project = seen.sees("operator"), seen.may("operator"), seen.identity.project
    return await following.follow(
        seen, ("fleet", project, operates, may, asked), lambda: FleetScreen(project, asked, operates=operates, may=may)
    )


@router.get("/live/fleet/{node}", **like("GET /v1/nodes/{node}"))
async def follow_node(following: Following, look: LookingLater, node: str) -> Response:
    """Follow a node."""
    seen = await USERS.run(look.get)
    may, project = seen.may("operator"), seen.identity.project
    return await following.follow(seen, ("node", project, may, node), lambda: NodeScreen(node, project, may=may))


def _rows(fleet: ShownFleet, asked: AskedNodes, after: int) -> dict[str, Any]:
    """Return a part of the list, and the address of the next one; empty if there is none."""
    to = after + FIRST
    more = f"/fleet/more?{urlencode([*asked.as_pairs(), ('after', to)])}" if to < len(fleet.nodes) else ""
    return {"nodes": fleet.nodes[after:to], "next": more}
