"""Compare how fast nodes are with the machines that do the same work."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.core.fleet.pace import compare_paces
from gangline.service.deployment import Deployment
from gangline.service.fleet.speed import peer_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpeed:
    """The speed of a node at its job, in seconds per step. `usual_s` is that of `machines` at the same work on the same class of GPU, and
    above `slow_s` the job moves to another machine; both are None while too few machines are known."""

    seconds_per_step: float
    usual_s: float | None
    slow_s: float | None
    machines: int

    @property
    def ratio(self) -> float | None:
        """How many times as long as usual a step takes."""
        return self.seconds_per_step / self.usual_s if self.usual_s else None

    @property
    def is_slow(self) -> bool:
        return self.slow_s is not None and self.seconds_per_step > self.slow_s


def node_speeds(deployment: Deployment) -> Mapping[str, NodeSpeed]:
    """Return the speeds of the nodes that train and have measured one, by their ids; of several jobs on a node, that of the slowest."""
    found = dict[str, NodeSpeed]()
    for group in peer_groups(deployment, deployment.store.load("live_leases")):
        peers = compare_paces(group.seen.sorted, deployment.policy)
        for lease in group.leases:
            known = found.get(lease["node"])
            if known is None or lease["seconds_per_step"] > known.seconds_per_step:
                found[lease["node"]] = NodeSpeed(
                    seconds_per_step=lease["seconds_per_step"],
                    usual_s=peers.usual if peers else None,
                    slow_s=peers.slow if peers else None,
                    machines=len(group.seen.sorted),
                )
    return found
