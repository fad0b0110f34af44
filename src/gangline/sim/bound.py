"""What the work would have cost somebody who knows every machine and every hour to come."""

from collections.abc import Sequence

from gangline.sim.scenario import MachineModel


def clairvoyant_usd(machines: Sequence[MachineModel], *, steps: int, jobs: int, hours: float) -> float:
    """A lower bound for any scheduler that does `steps` steps of `jobs` jobs in `hours`.

    It fills the machines with the cheapest steps first, each for all of the time, as if it had known their paces before it
    rented them; nothing is ever interrupted, downloaded, saved or idle. Only each job's start on a machine is paid for: the
    shortest there is. More nodes than any pool may have are no help to it: it takes the fastest anyhow.
    """
    cheapest = sorted(machines, key=lambda machine: machine.price_micro_usd_per_hour * machine.seconds_per_step)
    left, micro_usd = float(steps), 0.0
    for machine in cheapest:
        taken = min(left, hours * 3600 / machine.seconds_per_step)
        micro_usd += taken * machine.seconds_per_step * machine.price_micro_usd_per_hour / 3600
        left -= taken
    assert left <= 0, "all machines together can do the work in the time"
    start = min(machine.start_s * machine.price_micro_usd_per_hour for machine in machines) / 3600
    return (micro_usd + jobs * start) / 1e6
