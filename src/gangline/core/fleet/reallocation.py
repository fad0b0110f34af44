"""Decide which nodes on bad machines are moved to other machines instead of being given back and replaced."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.fleet.autoscale import PoolLimits, Rented, SeenInstance
from gangline.core.fleet.choice import OfferFacts, is_paid
from gangline.core.fleet.needs import QueuedWork, fits
from gangline.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The queued work for a kind of node: `takable` jobs could run on a further one, and `stuck` of them on none of the existing nodes."""

    takable: int
    stuck: int


def demand_for(offer: OfferFacts, needs: Sequence[QueuedWork], policy: Policy) -> Demand:
    """Return the waiting jobs that a node of this offer could take, and that their projects' budgets pay for."""
    could = [need for need in needs if fits(need, offer.shape) and is_paid(need, offer, policy)]
    return Demand(takable=sum(need.jobs for need in could), stuck=sum(need.jobs for need in could if need.stuck))


def may_reallocate(node: Rented, instance: SeenInstance | None) -> bool:
    """Return whether a node has nothing left to do on its machine, which is in quarantine, and its provider still shows it there.

    A node that failed its probe may do so on any machine, as its image is the same: it is given back.
    """
    if instance is None or instance.ended or node.state != "quarantined" or node.idle_since_ms is None or node.unfit:
        return False
    return node.instance == instance.id and node.place == instance.place != ""


def is_wanted(limits: PoolLimits, nodes: Sequence[Rented], demand: Demand) -> bool:
    """Return whether the pool, of these nodes, would rent another one for a node that it gives back."""
    working = [node for node in nodes if node.state in ("ready", "on_trial")]
    idle = sum(node.idle_since_ms is not None for node in working)
    coming = sum(node.state == "starting" for node in nodes)
    for_work = demand.takable - min(idle, max(0, demand.takable - demand.stuck)) - coming
    for_minimum = limits.nodes_min - len(working) - coming
    return len(nodes) <= limits.nodes_max and max(for_work, for_minimum) > 0
