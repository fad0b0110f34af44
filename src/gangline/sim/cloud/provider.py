"""Simulate a provider: machines for rent, nodes that start late, vanish, move or are missing from its list; and its invoice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gangline.core.errors import Unreachable
from gangline.core.money.cost import billed_micro_usd
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental
from gangline.sim.cloud.machines import Stock, make_stocks, purpose
from gangline.sim.cloud.node import Given, SimNode, Surroundings
from gangline.sim.scenario import Fleet, MachineModel

DAY_S = 86_400.0
SEEN_MS = 3_600_000
"""Milliseconds that an instance stays in the list after its end."""
PLACE_AGAIN_S = 60
"""Seconds after which a provider that moves an instance looks again for a free machine."""
TWO_AT_ONCE = 0.25
"""The share of moves at which the worker that was cut off works on, for up to `CUT_OFF_S` seconds, while the next one has begun."""
CUT_OFF_S = 900
MOVED = "the provider needed its machine"


@dataclass(slots=True)
class SimInstance:
    """An instance of the provider, with the name and the join token that `start` was given. `taken` is the machine that it has of the
    stock, and `place` what the list says of that, for a provider that moves instances. `lost_ms` is since when it has none that runs."""

    id: str
    name: str
    token: str
    stock: Stock
    taken: MachineModel | None
    places: int = 0
    place: str = ""
    node: SimNode | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)
    lost_ms: int | None = None
    hidden_until_ms: int = 0

    @property
    def machine(self) -> MachineModel:
        assert self.taken, "it has a machine"
        return self.taken.at(self.stock.priority)


class SimProvider:
    """The `pool` port."""

    def __init__(self, around: Surroundings, fleet: Fleet, machines: Iterable[MachineModel]) -> None:
        self.fleet = fleet
        self.instances: dict[str, SimInstance] = {}
        self._around = around
        self._world = around.world
        self._faults = around.faults
        self._rng = self._world.rng(purpose("cloud", fleet.name))
        self._listed: dict[str, SimInstance] = {}
        self._stocks = make_stocks(machines)
        self._lifetimes = self._world.rng(purpose("lifetimes", fleet.name))

    def nodes(self) -> list[SimNode]:
        """Return the running nodes in the order of their start."""
        return [rented.node for rented in self._listed.values() if rented.node and rented.node.alive]

    @property
    def price_max(self) -> int:
        """Return the highest price, in micro-dollars per hour."""
        return max(stock.offer.price_micro_usd_per_hour for stock in self._stocks.values())

    # The port

    def offers(self) -> list[Offer]:
        self._answer()
        return [stock.offer for stock in self._stocks.values()]

    def start(self, offer: str, rental: Rental) -> None:
        self._answer()
        self._perhaps_refuse()
        stock = self._stocks[offer]
        if not stock.free:
            raise NoCapacity("all machines of this offer are taken")
        times_out = self._faults.happens(self._rng, "start timed out", self._faults.rates.start_times_out)
        if times_out and self._rng.random() < 0.5:
            raise Unreachable("the provider's API timed out")
        self._rent(stock, rental)
        if times_out:
            self._around.struck("created although timed out")
            if self._rng.random() < 0.5 and stock.free:
                self._rent(stock, rental)  # a duplicate, from a retry inside the provider
            raise Unreachable("the provider's API timed out")

    def stop(self, instance: str) -> None:
        self._answer()
        rented = self.instances.get(instance)
        if rented and rented.to_ms is None:
            self._end(rented)

    def list(self) -> list[Instance]:
        self._answer()
        now = self._world.now_ms
        for key in [key for key, rented in self._listed.items() if rented.to_ms and now - rented.to_ms > SEEN_MS]:
            del self._listed[key]
        return [
            Instance(
                id=rented.id,
                name=rented.name,
                billed_from_ms=rented.from_ms,
                billed_to_ms=rented.to_ms,
                place=rented.place,
                moved=MOVED if rented.places > 1 else "",
                unbilled=tuple(rented.gaps),
            )
            for rented in self._listed.values()
            if rented.hidden_until_ms <= now
        ]

    def _answer(self) -> None:
        """Raise `Unreachable` while the provider is down."""
        if self._faults.is_provider_down():
            raise Unreachable("the provider's API does not answer")

    # What happens to machines

    def reclaim(self, node: SimNode) -> None:
        """Preempt the node's machine without notice."""
        for rented in self._of(node):
            self._lose(rented)

    def exited(self, node: SimNode) -> None:
        """End the instance of a worker that has exited."""
        for rented in self._of(node):
            self._end(rented)

    def hide(self, node: SimNode) -> None:
        """End the node's instance, and hide it from the list for 5 to 25 minutes."""
        for rented in self._of(node):
            rented.hidden_until_ms = self._world.now_ms + self._rng.randrange(300_000, 1_500_000)
            self._end(rented)

    def _of(self, node: SimNode) -> Iterator[SimInstance]:
        """Yield the instance that the node is on, if it still is."""
        for rented in self._listed.values():
            if rented.node is node and rented.to_ms is None:
                yield rented

    def bills(self) -> dict[str, int]:
        """Return the cost of all ended instances in micro-dollars, by the name that each was given."""
        total: dict[str, int] = {}
        for rented in self.instances.values():
            if rented.from_ms is not None and rented.to_ms is not None:
                price = rented.stock.offer.price_micro_usd_per_hour
                cost = billed_micro_usd(price, rented.from_ms, rented.to_ms, rented.gaps)
                total[rented.name] = total.get(rented.name, 0) + cost
        return total

    def running(self) -> int:
        return sum(rented.to_ms is None for rented in self._listed.values())

    def billed(self) -> int:
        """Return the number of ended instances, each of which must be settled."""
        return sum(rented.to_ms is not None for rented in self.instances.values())

    def ends_ms(self) -> int:
        """Return the sum of the times at which they ended."""
        return sum(rented.to_ms or 0 for rented in self.instances.values())

    def _perhaps_refuse(self) -> None:
        if self._faults.no_capacity_until_ms > self._world.now_ms:
            self._around.struck("no capacity")
            raise NoCapacity("the provider has no capacity")
        if self._faults.happens(self._rng, "no capacity", self._faults.rates.no_capacity):
            raise NoCapacity("the provider has no capacity")

    def _rent(self, stock: Stock, given: Rental) -> None:
        number = len(self.instances)
        rented = SimInstance(
            id=f"instance-{number:06d}", name=given.name, token=given.token, stock=stock, taken=self._take(stock)
        )
        self.instances[rented.id] = self._listed[rented.id] = rented
        self._start(rented)

    def _take(self, stock: Stock) -> MachineModel:
        return stock.free.pop(self._rng.randrange(len(stock.free)))

    def _start(self, rented: SimInstance) -> None:
        """Let the instance run on its machine, once that is ready."""
        if self.fleet.moves:
            rented.places += 1
            rented.place = f"{rented.id}-{rented.places}"
        place = rented.place
        seconds = self.fleet.start_s * self._rng.lognormvariate(0, self.fleet.start_spread)
        self._world.after(seconds, "instance starts", lambda: self._run(rented, place))

    def _run(self, rented: SimInstance, place: str) -> None:
        if not _is_at(rented, place):
            return
        rented.from_ms = rented.from_ms or self._world.now_ms
        self._end_gap(rented)
        rate = rented.machine.interruptions_per_hour
        if rate:
            lifetime_s = self._lifetimes.expovariate(rate / 3600)
            self._world.after(lifetime_s, "reclaimed", lambda: self._taken_back(rented, place))
        self._world.after(self.fleet.boot_s, "node boots", lambda: self._boot(rented, place))

    def _boot(self, rented: SimInstance, place: str) -> None:
        if _is_at(rented, place):
            machine = rented.machine
            if machine.slowness >= 2:
                self._around.struck(f"slow {machine.slowness:g}x")
            skew_s = self._rng.choice((0.0, DAY_S)) if self._around.skews_clocks else 0.0
            given = Given(pool=self.fleet.name, name=rented.name, token=rented.token, place=place, skew_s=skew_s)
            rented.node = SimNode(self._around, given, machine, take_back=self.reclaim, exited=self.exited)

    def _taken_back(self, rented: SimInstance, place: str) -> None:
        if _is_at(rented, place):
            self._around.struck("node killed")
            self._lose(rented)

    def _lose(self, rented: SimInstance) -> None:
        """End an instance whose machine is gone, or move it to another one."""
        if not self.fleet.moves:
            self._end(rented)
            return
        self._around.struck("instance moved")
        node, rented.node = rented.node, None
        if node and self._rng.random() < TWO_AT_ONCE:
            self._around.struck("two at once")
            self._world.after(self._rng.uniform(1, CUT_OFF_S), "cut off", node.die)
        elif node:
            node.die()
        self._give_back(rented)
        if rented.from_ms is not None and rented.lost_ms is None:
            rented.lost_ms = self._world.now_ms
        self._place(rented)

    def _place(self, rented: SimInstance) -> None:
        if rented.to_ms is not None:
            return
        if rented.stock.free:
            rented.taken = self._take(rented.stock)
            self._start(rented)
        else:
            rented.place = ""
            self._world.after(PLACE_AGAIN_S, "place again", lambda: self._place(rented))

    def _end_gap(self, rented: SimInstance) -> None:
        """Note the time without a machine, which nobody bills."""
        if rented.lost_ms is not None and rented.lost_ms < self._world.now_ms:
            rented.gaps.append((rented.lost_ms, self._world.now_ms))
        rented.lost_ms = None

    def _give_back(self, rented: SimInstance) -> None:
        if rented.taken:
            rented.stock.free.append(rented.taken)
            rented.taken = None

    def _end(self, rented: SimInstance) -> None:
        rented.to_ms = self._world.now_ms
        if rented.from_ms is None:
            rented.from_ms = rented.to_ms
        self._end_gap(rented)
        if rented.node:
            rented.node.die()
        self._give_back(rented)


class SimMover(SimProvider):
    """A provider that moves instances by itself, and on request."""

    def reallocate(self, instance: str, because: str) -> None:
        self._answer()
        rented = self.instances.get(instance)
        if rented and rented.to_ms is None and rented.node:
            self._around.struck("reallocated")
            self._lose(rented)


def _is_at(rented: SimInstance, place: str) -> bool:
    return rented.to_ms is None and rented.taken is not None and rented.place == place
