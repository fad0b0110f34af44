"""Draw the scenarios of the soak: another fleet, other pools, other jobs and other faults for each seed."""

from dataclasses import replace
from random import Random

from gangline.sim.faults import FaultRates
from gangline.sim.scenario import Fault, Fleet, Jobs, Machines, Scenario
from gangline.sim.world import World

NODES_MIN, JOBS_MIN = 8, 20
SAFETY_S = 1800

POLICY: dict[str, float | int | str | bool] = {
    "heartbeat_interval_s": 20,
    "save_interval_s": 20,
    "lease_s": 60,
    "node_silent_s": 180,
    "stall_s": 300,
    "start_s": 900,
    "commit_s": 600,
    "ban_yields_s": 300,
    "retry_first_s": 5,
    "retry_max_s": 60,
    "quarantine_s": 600,
    "rest_max_s": 120,
    "starting_s": 600,
    "stop_grace_s": 60,
    "reserve_s": 300,
    "move_s": 60,
    "orphans_s": 300,
    "unmatched_s": 1800,
    "samples_wait_s": 900,
    "results_wait_s": 1800,
    "tick_interval_s": 10,
    "claim_interval_s": 15,
    "scale_interval_s": 20,
    "checkpoints_succeeded_s": 300,
    "checkpoints_ended_s": 600,
    "logs_s": 900,
    "previews_s": 900,
    "inputs_s": 900,
    "uploads_s": 900,
    "storage_usd_per_gb_month": 100.0,
    "egress_usd_per_gb": 1.0,
}


def draw_scenario(rng: Random, seed: int) -> Scenario:
    scenario = _with_samples(_scenario(rng), World(seed).rng("samples"))
    scenario = _with_slots(scenario, World(seed).rng("slots"))
    return _with_pools(scenario, World(seed).rng("pools"))


def _scenario(rng: Random) -> Scenario:
    """Return a random scenario with at least 8 nodes and 20 jobs; some machines and jobs are faulty."""
    good = Machines(
        count=rng.randrange(14, 24),
        seconds_per_step=1.0,
        spread=0.15,
        start_s=5,
        interruptions_per_hour=rng.choice((0.2, 1.0, 3.0)),
        uplink_mbit=rng.choice((10, 40, 200)),
    )
    odd: list[Machines] = []
    for traits in rng.sample(_ODD, rng.randrange(2, 5)):
        odd.append(Machines(count=1, **traits))
    jobs = [
        Jobs(
            count=rng.randrange(20, 40),
            steps=rng.randrange(40, 200),
            checkpoint_every_s=40,
            checkpoint_mb=20,
            base_gb=0.2,
        ),
        Jobs(count=rng.randrange(40, 90), steps=rng.randrange(8, 30), at_s=rng.uniform(0, 900)),
        Jobs(count=rng.randrange(6, 16), project="other", at_s=rng.uniform(0, 600), steps=90, checkpoint_every_s=30),
    ]
    for traits in rng.sample(_ODD_JOBS, rng.randrange(0, 3)):
        jobs.append(Jobs(count=rng.randrange(1, 3), at_s=rng.uniform(0, 300), steps=200, **traits))
    faults = [
        Fault(kind=kind, at_s=rng.uniform(120, SAFETY_S * 0.8), seconds=rng.uniform(5, 120))
        for kind in ("api", "database", "store_down", "store_slow", "listing_stale", "no_capacity")
        if rng.random() < 0.6
    ]
    if rng.random() < 0.4:
        faults.append(Fault(kind="reclaim", at_s=rng.uniform(300, SAFETY_S * 0.8), share=0.8))
    large = [Machines(count=3, gpu="A100", gpu_memory_gb=80, price_usd_per_hour=1.2)] if rng.random() < 0.5 else []
    return Scenario(
        title="chaos",
        fleet=Fleet(nodes_min=rng.choice((0, 0, 1)), nodes_max=rng.randrange(NODES_MIN, 15), start_s=40, boot_s=2),
        machines=(good, *odd, *large),
        jobs=tuple(jobs),
        faults=tuple(faults),
        policy=POLICY,
    )


def _with_samples(scenario: Scenario, rng: Random) -> Scenario:
    """Return the scenario with samples for some of the jobs, during training or at the end."""
    jobs = [replace(batch, sample_every_steps=rng.choice((None, 10, 40))) for batch in scenario.jobs]
    return replace(scenario, jobs=tuple(replace(batch, sample_result=rng.random() < 0.5) for batch in jobs))


def _with_slots(scenario: Scenario, rng: Random) -> Scenario:
    """Return the scenario with several GPUs in some of the machines, in half of all seeds."""
    if rng.random() < 0.5:
        return scenario
    machines = [replace(group, slots=rng.choice((1, 2, 4))) for group in scenario.machines]
    return replace(scenario, machines=tuple(machines))


def _with_pools(scenario: Scenario, rng: Random) -> Scenario:
    """Return the scenario with a provider that moves what it takes back, in a third of all seeds, and in another with one beside it."""
    kind = rng.choice(("as it is", "moves", "two pools"))
    if kind == "as it is":
        return scenario
    moving = replace(scenario.fleet, moves=True)
    if kind == "moves":
        return replace(scenario, fleet=moving)
    here, *odd = scenario.machines
    there = replace(here, pool="moving", count=6, price_usd_per_hour=0.25)
    return replace(
        scenario,
        fleet=Fleet(),
        pools=(scenario.fleet, replace(moving, name="moving", nodes_min=0, nodes_max=4)),
        machines=(here, *odd, there),
    )


_ODD: tuple[dict, ...] = (
    {"trait": "fails_at_once"},
    {"trait": "fails_long", "trait_s": 90},
    {"trait": "false_progress"},
    {"trait": "lies_65"},
    {"trait": "no_libraries"},
    {"slowness": 2.0},
    {"slowness": 12.0},
)
_ODD_JOBS: tuple[dict, ...] = (
    {"trait": "kills_hosts", "trait_s": 20},
    {"trait": "bad_input"},
    {"memory_gb": 40, "says_gb": 10},
)


def draw_rates(rng: Random) -> FaultRates:
    """Return random rates: two thirds of the seeds have a bad network, killed servers, and concurrent requests, each independently."""
    bad = rng.choice((0.0, 0.02, 0.1))
    return FaultRates(
        request_lost=bad,
        answer_lost=bad,
        delayed=bad / 2,
        doubled=bad / 2,
        upload_cut=rng.choice((0.0, 0.05, 0.2)),
        start_times_out=rng.choice((0.0, 0.3)),
        no_capacity=rng.choice((0.0, 0.2)),
        api_killed=rng.choice((0.0, 0.001, 0.003)),
        meanwhile=rng.choice((0.0, 0.05, 0.2)),
        cancel_races=rng.choice((0.0, 0.01, 0.03)),
    )
