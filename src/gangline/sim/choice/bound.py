"""Compute lower bounds of the cost: those of schedulers which know every machine and the future."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import harmonic_mean

from gangline.core.money.cost import GB
from gangline.core.server.settings import make_policy
from gangline.sim.cloud.machines import draw_machines, offers_for
from gangline.sim.scenario import Fleet, Jobs, MachineModel, Scenario
from gangline.sim.world import World


def clairvoyant_usd(scenario: Scenario, seed: int, *, hours: float) -> float:
    """Return a lower bound of the cost per finished job, for any scheduler that does the scenario's work in `hours`."""
    machines = draw_machines(scenario.machines, World(seed))
    jobs = sum(batch.count for batch in scenario.jobs)
    steps = sum(batch.count * batch.steps * batch.pace for batch in scenario.jobs)
    return cheapest_usd(machines, steps=steps, jobs=jobs, hours=hours) / jobs


def cheapest_usd(machines: Sequence[MachineModel], *, steps: float, jobs: int, hours: float) -> float:
    """Return the cost if the machines with the cheapest steps are filled first, each for the whole time.

    It assumes that their paces are known before they are rented, and that nothing is ever interrupted, downloaded, saved or idle. Only one
    start per job is paid for, the cheapest one. The pool's limit of nodes is ignored.
    """
    cheapest = sorted(machines, key=lambda machine: _slot_price(machine) * machine.seconds_per_step)
    left, micro_usd = steps, 0.0
    for machine in cheapest:
        taken = min(left, machine.slots * hours * 3600 / machine.seconds_per_step)
        micro_usd += taken * machine.seconds_per_step * _slot_price(machine) / 3600
        left -= taken
    assert left <= 0, "all machines together can do the work in the time"
    start = min(machine.start_s * _slot_price(machine) for machine in machines) / 3600
    return (micro_usd + jobs * start) / 1e6


def _slot_price(machine: MachineModel) -> float:
    return machine.price_micro_usd_per_hour / machine.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferModel:
    """What is true of an offer, which the service has to find out: the mean pace of its machines and the rate at which it loses them."""

    pool: Fleet
    offer: str
    price_micro_usd_per_hour: float
    seconds_per_step: float
    interruptions_per_hour: float
    start_s: float
    down_bytes_per_s: float


def offer_models(scenario: Scenario, seed: int) -> list[OfferModel]:
    """Return the offers that the pools of a scenario may rent, per slot."""
    pools = {pool.name: pool for pool in scenario.all_pools}
    found: dict[tuple[str, str], list[MachineModel]] = {}
    for machine in draw_machines(scenario.machines, World(seed)):
        for offer, priority in offers_for(machine):
            if pools[machine.pool].rents(offer.id):
                found.setdefault((machine.pool, offer.id), []).append(machine.at(priority))
    return [
        OfferModel(
            pool=pools[pool],
            offer=offer,
            price_micro_usd_per_hour=_slot_price(machines[0]),
            seconds_per_step=harmonic_mean([machine.seconds_per_step for machine in machines]),
            interruptions_per_hour=sum(machine.interruptions_per_hour for machine in machines) / len(machines),
            start_s=min(machine.start_s for machine in machines),
            down_bytes_per_s=max(machine.down_bytes_per_s for machine in machines),
        )
        for (pool, offer), machines in found.items()
    ]


def foreseen_usd(scenario: Scenario, seed: int) -> float:
    """Return a lower bound of the cost per finished job, for schedulers that get machines as the provider hands them out.

    Such a scheduler knows each offer's true pace and rate, and takes the cheapest one for every job, however many machines that has. It
    knows each interruption in advance and saves just before: no step is done twice, and no save stops training. But each interruption,
    also one during a start, costs another start: the node boots, downloads base and checkpoint, and the trainer starts. Each job costs the
    start of a trainer; the boots of the first nodes, idle time and storage cost nothing.

    With a rate r and a start that takes S seconds, each useful second is paid e^(rS) times: lives are exponential with the mean 1/r, and
    what is left of them after a start has the mean e^(-rS)/r.
    """
    offers = offer_models(scenario, seed)
    policy = make_policy(scenario.policy)
    micro_usd = sum(
        batch.count * min(_job_micro_usd(offer, batch, policy.egress_micro_usd_per_byte) for offer in offers)
        for batch in scenario.jobs
    )
    return micro_usd / 1e6 / sum(batch.count for batch in scenario.jobs)


def _job_micro_usd(offer: OfferModel, batch: Jobs, egress_micro_usd_per_byte: float) -> float:
    per_s, rate = offer.price_micro_usd_per_hour / 3600, offer.interruptions_per_hour / 3600
    size = batch.base_gb * GB + batch.checkpoint_mb * 1e6
    again_s = offer.pool.boot_s + size / offer.down_bytes_per_s + offer.start_s
    paid_s = (offer.start_s + batch.steps * batch.pace * offer.seconds_per_step) * exp(rate * again_s)
    return paid_s * (per_s + rate * size * egress_micro_usd_per_byte)
