"""Simulate a provider: machines for rent, nodes that start late, vanish or are missing from its list; and its invoice."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from gangline.core.errors import Unreachable
from gangline.core.money.cost import time_cost_micro_usd
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental
from gangline.ports.server import Join
from gangline.sim.faults import Faults
from gangline.sim.node.host import SimHost
from gangline.sim.node.trainer import SimTrainer
from gangline.sim.objects import SimObjects, SimTransfer
from gangline.sim.scenario import Fleet, JobModel, MachineModel
from gangline.sim.service import Link, SimService
from gangline.sim.world import World
from gangline.worker.agent import Agent
from gangline.worker.edges import Edges

STEP_S = 0.2
"""The least seconds between two steps of an agent, as in the agent's loop."""

DAY_S = 86_400.0
SEEN_MS = 3_600_000
"""Milliseconds that an instance stays in the list after its end."""


class SimNode:
    """A rented machine that runs the real agent."""

    def __init__(self, cloud: "Cloud", name: str, machine: MachineModel, token: str) -> None:
        self.machine = machine
        self.name = name
        self.alive = True
        self.notice = ""
        self._cloud = cloud
        self._world = cloud.world
        self._paused_until_ms = 0
        self._skew_s = cloud.rng.choice((0.0, DAY_S)) if cloud.skews_clocks else 0.0
        self._stepping = False
        self._due_ms: int | None = None
        rng = cloud.world.rng(f"node {name}")
        host = SimHost()
        transfer = SimTransfer(
            world=self._world,
            objects=cloud.objects,
            faults=cloud.faults,
            rng=rng,
            up_bytes_per_s=machine.up_bytes_per_s,
            down_bytes_per_s=machine.down_bytes_per_s,
            arrived=host.arrived,
            news=self.wake,
            is_alive=lambda: self.alive,
        )
        self.trainer = SimTrainer(
            world=self._world,
            host=host,
            machine=machine,
            jobs=cloud.job_of,
            news=self.wake,
            die=lambda: cloud.reclaim(self),
            struck=cloud.struck,
            rng=rng,
        )
        self.link = Link(self._world, cloud.service, cloud.faults, rng, token)
        edges = Edges(server=self.link, transfer=transfer, trainer=self.trainer, host=host, rng=rng)
        facts = {"slots": machine.slots, "gpu": machine.gpu, "gpu_memory_gb": machine.gpu_memory_gb}
        join = Join(machine=machine.id, name=name, node=name, **facts)
        self.agent = Agent(edges, join, patient=True, notice=lambda: self.notice)
        self.wake()

    @property
    def is_busy(self) -> bool:
        return self.agent.is_busy

    def wake(self) -> None:
        self._step_at(self._world.now_ms + 1)

    def pause(self, seconds: float) -> None:
        self._paused_until_ms = self._world.now_ms + round(seconds * 1000)
        self._due_ms = None
        self._step_at(self._paused_until_ms)

    def warn(self, seconds: float) -> None:
        """Let the provider give notice, and take the machine back after `seconds`."""
        self.notice = self.notice or "the provider will take this machine back"
        self.wake()
        self._world.after(seconds, "taken back", lambda: self._cloud.reclaim(self))

    def skew(self, seconds: float) -> None:
        """Make the node's clock jump, as after a virtual machine was frozen."""
        self._skew_s += seconds
        self.wake()

    def die(self) -> None:
        self.alive = False

    def _now_s(self) -> float:
        return self._world.now_s + self._skew_s

    def _step_at(self, ms: int) -> None:
        """Schedule the agent's next step; of all scheduled steps only the earliest counts."""
        ms = max(ms, self._paused_until_ms)
        if self._due_ms is not None and self._due_ms <= ms:
            return
        self._due_ms = ms
        self._world.at(ms, self.name, lambda: self._step(ms))

    def _step(self, due_ms: int) -> None:
        if not self.alive or self._due_ms != due_ms:
            return
        self._due_ms = None
        # An event during a request of this agent may be the agent's next step: an agent has one thread, so that step waits.
        if self._stepping or self._paused_until_ms > self._world.now_ms:
            self._step_at(self._world.now_ms + 1)
            return
        self._stepping = True
        try:
            self.agent.step(self._now_s())
        finally:
            self._stepping = False
        self.agent.news.clear()
        if self.agent.stopped:
            self._cloud.ended(self)
        else:
            wait_s = max(STEP_S, self.agent.due_s - self._now_s())
            self._step_at(self._world.now_ms + round(wait_s * 1000) + 1)


@dataclass(slots=True)
class SimInstance:
    """An instance of the provider, with the name and the join token that `start` was given."""

    id: str
    name: str
    token: str
    machine: MachineModel
    node: SimNode | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    hidden_until_ms: int = 0


class Cloud:
    """The `pool` port. `service` and `job_of` are set after construction, as the service needs the cloud."""

    service: SimService
    job_of: Callable[[int], JobModel]

    def __init__(
        self, world: World, machines: list[MachineModel], fleet: Fleet, objects: SimObjects, faults: Faults
    ) -> None:
        self.world = world
        self.objects = objects
        self.faults = faults
        self.rng = world.rng("cloud")
        self.rentals: dict[str, SimInstance] = {}
        self.skews_clocks = False
        self._fleet = fleet
        self._listed: dict[str, SimInstance] = {}
        self._free: dict[str, list[MachineModel]] = {}
        self._offers: dict[str, Offer] = {}
        for machine in machines:
            self._offers.setdefault(_offer_id(machine), _offer(machine))
            self._free.setdefault(_offer_id(machine), []).append(machine)
        self._lifetimes = world.rng("lifetimes")

    def struck(self, kind: str) -> None:
        self.faults.struck[kind] += 1

    def nodes(self) -> list[SimNode]:
        """Return the running nodes in the order of their start."""
        return [rental.node for rental in self._listed.values() if rental.node and rental.node.alive]

    # The port

    def offers(self) -> list[Offer]:
        self._answer()
        return list(self._offers.values())

    def start(self, offer: str, rental: Rental) -> None:
        self._answer()
        self._perhaps_refuse()
        if not self._free[offer]:
            raise NoCapacity("all machines of this offer are taken")
        times_out = self.faults.happens(self.rng, "start timed out", self.faults.rates.start_times_out)
        if times_out and self.rng.random() < 0.5:
            raise Unreachable("the provider's API timed out")
        self._rent(offer, rental)
        if times_out:
            self.struck("created although timed out")
            if self.rng.random() < 0.5 and self._free[offer]:
                self._rent(offer, rental)  # a duplicate, from a retry inside the provider
            raise Unreachable("the provider's API timed out")

    def stop(self, instance: str) -> None:
        self._answer()
        rental = self.rentals.get(instance)
        if rental and rental.to_ms is None:
            self._end(rental)

    def list(self) -> list[Instance]:
        self._answer()
        now = self.world.now_ms
        for key in [key for key, rental in self._listed.items() if rental.to_ms and now - rental.to_ms > SEEN_MS]:
            del self._listed[key]
        return [
            Instance(id=rental.id, name=rental.name, billed_from_ms=rental.from_ms, billed_to_ms=rental.to_ms)
            for rental in self._listed.values()
            if rental.hidden_until_ms <= now
        ]

    def _answer(self) -> None:
        """Raise `Unreachable` while the provider is down."""
        if self.faults.is_provider_down():
            raise Unreachable("the provider's API does not answer")

    # What happens to machines

    def reclaim(self, node: SimNode) -> None:
        """Preempt the node's machine without notice."""
        for rental in self._listed.values():
            if rental.node is node and rental.to_ms is None:
                self._end(rental)

    def ended(self, node: SimNode) -> None:
        """End the instance of a worker that has exited."""
        self.reclaim(node)

    def lose(self, node: SimNode) -> None:
        """End the node's instance, and hide it from the list for 5 to 25 minutes."""
        for rental in self._listed.values():
            if rental.node is node and rental.to_ms is None:
                rental.hidden_until_ms = self.world.now_ms + self.rng.randrange(300_000, 1_500_000)
                self._end(rental)

    def invoice(self) -> dict[str, int]:
        """Return the cost of all ended instances in micro-dollars, by the name that each was given."""
        total: dict[str, int] = {}
        for rental in self.rentals.values():
            if rental.from_ms is not None and rental.to_ms is not None:
                price = rental.machine.price_micro_usd_per_hour
                cost = time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=rental.from_ms, to_ms=rental.to_ms)
                total[rental.name] = total.get(rental.name, 0) + cost
        return total

    def running(self) -> int:
        return sum(rental.to_ms is None for rental in self._listed.values())

    def billed(self) -> int:
        """Return the number of ended instances, each of which must be settled."""
        return sum(rental.to_ms is not None for rental in self.rentals.values())

    def _perhaps_refuse(self) -> None:
        if self.faults.no_capacity_until_ms > self.world.now_ms:
            self.struck("no capacity")
            raise NoCapacity("the provider has no capacity")
        if self.faults.happens(self.rng, "no capacity", self.faults.rates.no_capacity):
            raise NoCapacity("the provider has no capacity")

    def _rent(self, offer: str, given: Rental) -> None:
        free = self._free[offer]
        machine = free.pop(self.rng.randrange(len(free)))
        number = len(self.rentals)
        rental = SimInstance(id=f"instance-{number:06d}", name=given.name, token=given.token, machine=machine)
        self.rentals[rental.id] = self._listed[rental.id] = rental
        seconds = self._fleet.start_s * self.rng.lognormvariate(0, self._fleet.start_spread)
        self.world.after(seconds, "instance starts", lambda: self._run(rental))

    def _run(self, rental: SimInstance) -> None:
        if rental.to_ms is not None:
            return
        rental.from_ms = self.world.now_ms
        rate = rental.machine.interruptions_per_hour
        if rate:
            lifetime_s = self._lifetimes.expovariate(rate / 3600)
            self.world.after(lifetime_s, "reclaimed", lambda: self._taken_back(rental))
        self.world.after(self._fleet.boot_s, "node boots", lambda: self._boot(rental))

    def _boot(self, rental: SimInstance) -> None:
        if rental.to_ms is None:
            if rental.machine.slowness >= 2:
                self.struck(f"slow {rental.machine.slowness:g}x")
            rental.node = SimNode(self, rental.name, rental.machine, rental.token)

    def _taken_back(self, rental: SimInstance) -> None:
        if rental.to_ms is None:
            self.struck("node killed")
            self._end(rental)

    def _end(self, rental: SimInstance) -> None:
        rental.to_ms = self.world.now_ms
        if rental.from_ms is None:
            rental.from_ms = rental.to_ms
        if rental.node:
            rental.node.die()
        self._free[_offer_id(rental.machine)].append(rental.machine)


def _offer_id(machine: MachineModel) -> str:
    count = f"{machine.slots} × " if machine.slots > 1 else ""
    return f"{count}{machine.gpu} {machine.gpu_memory_gb:g} GB at {machine.price_micro_usd_per_hour}"


def _offer(machine: MachineModel) -> Offer:
    return Offer(
        id=_offer_id(machine),
        gpu=machine.gpu,
        gpu_memory_gb=machine.gpu_memory_gb,
        slots=machine.slots,
        price_micro_usd_per_hour=machine.price_micro_usd_per_hour,
    )


def draw_machines(groups: "list", rng: Random) -> list[MachineModel]:
    """Return the machines of a scenario with random paces."""
    machines: list[MachineModel] = []
    for group in groups:
        for _ in range(group.count):
            pace = group.seconds_per_step * rng.lognormvariate(0, group.spread) * group.slowness
            machines.append(
                MachineModel(
                    id=f"machine-{len(machines):06d}",
                    slots=group.slots,
                    gpu=group.gpu,
                    gpu_memory_gb=group.gpu_memory_gb,
                    price_micro_usd_per_hour=round(group.price_usd_per_hour * 1e6),
                    seconds_per_step=max(pace, group.fastest),
                    slowness=group.slowness,
                    start_s=group.start_s,
                    save_s=group.save_s,
                    interruptions_per_hour=group.interruptions_per_hour,
                    up_bytes_per_s=group.uplink_mbit * 125_000,
                    down_bytes_per_s=group.downlink_mbit * 125_000,
                    trait=group.trait,
                    trait_s=group.trait_s,
                )
            )
    return machines
