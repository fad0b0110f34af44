"""Play a scenario at other interruption rates, with each offer alone and with all of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from gangline.sim.choice.bound import foreseen_usd, offer_models
from gangline.sim.scenario import Scenario
from gangline.sim.simulation import Simulation

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
OURS = ""
"""The name of the play in which the service may rent every offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A run to make. `choice` is the only offer that is rented, by pool and name; `OURS` for all."""

    scenario: Scenario
    factor: float
    choice: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a play: the whole ledger, divided by the jobs that succeeded."""

    factor: float
    choice: str
    usd_per_job: float
    bound_usd_per_job: float
    hours: float
    unfinished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """The dollars per finished job at one factor of the interruption rates, means over the seeds: of each offer alone, of the service's own
    choice, and of the clairvoyant bound."""

    factor: float
    alone: dict[str, float]
    best: str
    ours: float
    bound: float
    above_best: float
    above_bound: float
    unfinished: int


def plays(scenario: Scenario, factors: Sequence[float], seeds: Iterable[int]) -> list[Play]:
    """Return all runs of a map, the longest-lasting first: those with most interruptions."""
    return [
        Play(scenario=scenario, factor=factor, choice=choice, seed=seed)
        for factor in sorted(factors, reverse=True)
        for seed in seeds
        for choice in (OURS, *choices(scenario))
    ]


def choices(scenario: Scenario) -> list[str]:
    return [f"{offer.pool.name}: {offer.offer}" for offer in offer_models(scenario, 0)]


def play_once(play: Play) -> Played:
    at = interrupted(play.scenario, play.factor)
    simulation = Simulation(alone(at, play.choice) if play.choice != OURS else at, play.seed, checked=False)
    simulation.run()
    [(micro_usd,)] = simulation.store.look("SELECT COALESCE(SUM(micro_usd), 0) FROM ledger")
    [(succeeded, jobs)] = simulation.store.look("SELECT SUM(state = 'succeeded'), COUNT(*) FROM job")
    return Played(
        factor=play.factor,
        choice=play.choice,
        usd_per_job=micro_usd / 1e6 / max(1, succeeded),
        bound_usd_per_job=foreseen_usd(at, play.seed),
        hours=simulation.world.now_s / 3600,
        unfinished=jobs - succeeded,
    )


def interrupted(scenario: Scenario, factor: float) -> Scenario:
    """Return the scenario with all interruption rates multiplied."""
    machines = [
        replace(
            group,
            interruptions_per_hour=group.interruptions_per_hour * factor,
            priorities=tuple(
                replace(priority, interruptions_per_hour=priority.interruptions_per_hour * factor)
                for priority in group.priorities
            ),
        )
        for group in scenario.machines
    ]
    return replace(scenario, machines=tuple(machines))


def alone(scenario: Scenario, choice: str) -> Scenario:
    """Return the scenario with one pool that rents one offer."""
    name, _, offer = choice.partition(": ")
    [pool] = [replace(pool, offers=(offer,)) for pool in scenario.all_pools if pool.name == name]
    machines = tuple(group for group in scenario.machines if group.pool == name)
    kept = {"pools": (pool,)} if scenario.pools else {"fleet": pool}
    return replace(scenario, machines=machines, **kept)


def make_map(played: Sequence[Played]) -> Iterator[MapRow]:
    """Yield a row for each factor, the lowest first."""
    for factor in sorted({each.factor for each in played}):
        here = [each for each in played if each.factor == factor]
        usd = {
            choice: fmean(each.usd_per_job for each in here if each.choice == choice)
            for choice in dict.fromkeys(each.choice for each in here)
        }
        ours, bound = usd.pop(OURS), fmean(each.bound_usd_per_job for each in here)
        best = min(usd, key=lambda choice: usd[choice])
        yield MapRow(
            factor=factor,
            alone=usd,
            best=best,
            ours=ours,
            bound=bound,
            above_best=ours / usd[best] - 1,
            above_bound=ours / bound - 1,
            unfinished=sum(each.unfinished for each in here),
        )
