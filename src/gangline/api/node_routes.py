"""Routes for nodes, and the machines behind them, as operators see them."""

from typing import Annotated

from annotated_types import Gt, Le
from fastapi import APIRouter, Query

from gangline.api.lanes import ProviderRoute, UserRoute
from gangline.api.who import Now, Operator, ThisDeployment, Viewer
from gangline.core.display import Label
from gangline.core.fleet.nodes import MachineSummary, NodeBill, NodeDetail, NodeLogs, NodeView
from gangline.service.fleet import operating, pools
from gangline.service.fleet.measured.reputation import MACHINES_MAX, machines

router = APIRouter(prefix="/v1", tags=["nodes"], route_class=UserRoute)
of_providers = APIRouter(prefix="/v1", tags=["nodes"], route_class=ProviderRoute)

QUARANTINE_S = 86_400.0
StopsJobs = Annotated[bool, Query()]
QuarantineS = Annotated[float, Query(), Gt(0), Le(365 * 86_400)]


@router.get("/nodes")
def list_nodes(deployment: ThisDeployment, now: Now, viewer: Viewer) -> list[NodeView]:
    """List all nodes. A node's jobs are shown only to their own project and to operators."""
    return operating.nodes(deployment, viewer.project, now)


@router.get("/nodes/{node}")
def show_node(deployment: ThisDeployment, now: Now, viewer: Viewer, node: str) -> NodeDetail:
    """Show a node and its machine. Its jobs are shown only to their own project and to operators."""
    return operating.node_detail(deployment, node, viewer.project, now)


@router.post("/nodes/{node}/drain")
def drain_node(
    deployment: ThisDeployment, now: Now, operator: Operator, node: str, stop: StopsJobs = False
) -> NodeDetail:
    """Give a node no more work. With `stop` its jobs are saved and handed back; a rented node without a job is given back. Needs an
    operator's key.
    """
    operating.drain(deployment, node, now, stop=stop)
    return operating.node_detail(deployment, node, operator.project, now)


@router.post("/nodes/{node}/quarantine")
def quarantine_node(
    deployment: ThisDeployment,
    now: Now,
    operator: Operator,
    node: str,
    lasts_s: QuarantineS = QUARANTINE_S,
    stop: StopsJobs = False,
    reason: Annotated[Label, Query()] = "",
) -> NodeDetail:
    """Give the node's machine no work for `lasts_s` seconds, whatever node it joins as; then it is on trial. The `reason` is shown with the
    node, and in the events of jobs that it hands back. Needs an operator's key.
    """
    operating.quarantine(deployment, node, now, lasts_s=lasts_s, stop=stop, reason=reason.strip())
    return operating.node_detail(deployment, node, operator.project, now)


@router.post("/nodes/{node}/release")
def release_node(deployment: ThisDeployment, now: Now, operator: Operator, node: str) -> NodeDetail:
    """Let a node that drains, is in quarantine or on trial work again. Its machine's strikes are forgotten. Needs an operator's key."""
    operating.release(deployment, node, now)
    return operating.node_detail(deployment, node, operator.project, now)


@router.get("/machines")
def list_machines(
    deployment: ThisDeployment, now: Now, _: Operator, limit: Annotated[int, Query(), Gt(0), Le(MACHINES_MAX)] = 50
) -> list[MachineSummary]:
    """List the machines behind the nodes, in all pools and whatever the nodes were called: those that lost most attempts lately first.
    One in quarantine is among them however long ago it worked. Needs an operator's key.
    """
    return machines(deployment, now, limit)


@router.get("/nodes/{node}/bill")
def show_node_bill(deployment: ThisDeployment, _: Operator, node: str) -> NodeBill:
    """Show what a rented node's time has cost by its causes, and what its provider bills. Needs an operator's key."""
    return operating.node_bill(deployment, node)


@of_providers.get("/nodes/{node}/logs")
def show_node_logs(deployment: ThisDeployment, _: Operator, node: str) -> NodeLogs:
    """Show what a rented node printed last, as its provider has it: why did it never join? Needs an operator's key."""
    return NodeLogs(node=node, text=pools.node_logs(deployment, node))
