"""All providers of a scenario together."""

from collections.abc import Callable, Mapping

from gangline.core.fleet.autoscale import PoolLimits
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.sim.cloud.machines import draw_machines
from gangline.sim.cloud.node import SimNode, Surroundings
from gangline.sim.cloud.provider import SimMover, SimProvider
from gangline.sim.faults import Faults
from gangline.sim.objects import SimObjects
from gangline.sim.scenario import JobModel, Scenario
from gangline.sim.service import SimService
from gangline.sim.world import World


class Cloud:
    """The providers of a scenario, each behind a pool."""

    def __init__(self, world: World, scenario: Scenario, objects: SimObjects, faults: Faults) -> None:
        self._around = Surroundings(world, objects, faults)
        self.machines = draw_machines(scenario.machines, world)
        self.providers = [
            (SimMover if pool.moves else SimProvider)(
                self._around, pool, [machine for machine in self.machines if machine.pool == pool.name]
            )
            for pool in scenario.all_pools
        ]

    def serve(self, service: SimService, job_of: Callable[[int], JobModel]) -> None:
        """Let the nodes speak to this service."""
        self._around.service, self._around.job_of = service, job_of

    def pools(self) -> Mapping[str, RentedPool]:
        return {provider.fleet.name: _pool(provider) for provider in self.providers}

    def skew_clocks(self) -> None:
        """Let the clocks of some nodes be a day off."""
        self._around.skews_clocks = True

    def nodes(self) -> list[SimNode]:
        """Return the running nodes of all providers, each provider's in the order of their start."""
        return [node for provider in self.providers for node in provider.nodes()]

    def reclaim(self, node: SimNode) -> None:
        """Preempt the node's machine without notice."""
        for provider in self.providers:
            provider.reclaim(node)

    def lose(self, node: SimNode) -> None:
        """End the node's instance, which its provider does not list for a while."""
        for provider in self.providers:
            provider.hide(node)

    def invoice(self) -> dict[str, int]:
        """Return the cost of all ended instances in micro-dollars, by the name that each was given."""
        return {name: cost for provider in self.providers for name, cost in provider.bills().items()}

    def most_micro_usd_per_hour(self) -> int:
        """Return what all nodes cost in an hour, if each pool is full of its most expensive machines."""
        return sum(provider.fleet.nodes_max * provider.price_max for provider in self.providers)

    def running(self) -> int:
        return sum(provider.running() for provider in self.providers)

    def billed(self) -> int:
        """Return the number of ended instances, each of which must be settled."""
        return sum(provider.billed() for provider in self.providers)

    def ends_ms(self) -> int:
        """Return the sum of the times at which they ended."""
        return sum(provider.ends_ms() for provider in self.providers)


def _pool(provider: SimProvider) -> RentedPool:
    fleet = provider.fleet
    limits = PoolLimits(name=fleet.name, nodes_min=fleet.nodes_min, nodes_max=fleet.nodes_max)
    return RentedPool(limits, AtOnce(provider), terms=fleet.terms if fleet.offers else None)
