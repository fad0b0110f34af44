"""Compute a lower bound of the cost: that of a scheduler which knows every machine and the future."""

from collections.abc import Sequence

from gangline.sim.cloud.machines import draw_machines
from gangline.sim.scenario import MachineModel, Scenario
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
