"""Draw the machines of a scenario, and name the offers under which they are rented out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gangline.ports.pool import Offer
from gangline.sim.scenario import DEFAULT_POOL, MachineModel, Machines, Priority
from gangline.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """An offer, the priority at which it rents, and the machines that are free for it, which it shares with the other priorities."""

    offer: Offer
    priority: Priority | None
    free: list[MachineModel]


def make_stocks(machines: Iterable[MachineModel]) -> dict[str, Stock]:
    """Return the offers of a provider with these machines by id: machines with equal GPUs and prices are one."""
    alike: dict[tuple[str, ...], list[MachineModel]] = {}
    for machine in machines:
        alike.setdefault(tuple(offer.id for offer, _ in offers_for(machine)), []).append(machine)
    return {
        offer.id: Stock(offer=offer, priority=priority, free=free)
        for free in alike.values()
        for offer, priority in offers_for(free[0])
    }


def offers_for(machine: MachineModel) -> Iterator[tuple[Offer, Priority | None]]:
    """Yield what this machine is rented as: an offer for each of its priorities, or one."""
    for priority in machine.priorities or (None,):
        yield _offer(machine.at(priority), priority), priority


def _offer(machine: MachineModel, priority: Priority | None) -> Offer:
    count = f"{machine.slots} × " if machine.slots > 1 else ""
    usd = machine.price_micro_usd_per_hour / 1e6
    at = f"${usd:{'g' if machine.price_micro_usd_per_hour % 10_000 else '.2f'}}/h{f' ({priority.name})' if priority else ''}"
    return Offer(
        id=f"{count}{machine.gpu} {machine.gpu_memory_gb:g} GB at {at}",
        gpu=machine.gpu,
        gpu_memory_gb=machine.gpu_memory_gb,
        slots=machine.slots,
        price_micro_usd_per_hour=machine.price_micro_usd_per_hour,
    )


def draw_machines(groups: Sequence[Machines], world: World) -> list[MachineModel]:
    """Return the machines of a scenario with random paces. Those of a pool are the same whatever other pools there are."""
    machines: list[MachineModel] = []
    for pool in dict.fromkeys(group.pool for group in groups):
        rng = world.rng(purpose("machines", pool))
        for group in (group for group in groups if group.pool == pool):
            for _ in range(group.count):
                pace = group.seconds_per_step * rng.lognormvariate(0, group.spread) * group.slowness
                machines.append(_machine(group, f"machine-{len(machines):06d}", pace))
    return machines


def purpose(what: str, pool: str) -> str:
    """Return what chance is for, in this pool: each has its own, so that one more pool changes no other."""
    return what if pool == DEFAULT_POOL else f"{what} of {pool}"


def _machine(group: Machines, name: str, pace: float) -> MachineModel:
    return MachineModel(
        id=name,
        pool=group.pool,
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
        spills=group.spills,
        priorities=group.priorities,
    )
