"""Test with chaos: each seed has another fleet, other jobs and all kinds of faults, then no faults, and every job must end."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from gangline.service.access.projects import set_allowance
from gangline.service.jobs import steer
from gangline.sim.cleaning import delete_some_job, pin_some_checkpoint, retry_some_from_checkpoint
from gangline.sim.faults import FaultRates
from gangline.sim.promises.violation import Violation
from gangline.sim.scenario import Fault, Fleet, Jobs, Machines, Scenario
from gangline.sim.simulation import Simulation, SimulationResult
from gangline.sim.world import START_MS, World

NODES_MIN, JOBS_MIN = 8, 20
SAFETY_S = 1800

KINDS = (
    "node killed",
    "node paused",
    "notice given",
    "clock off",
    "message lost",
    "message delayed",
    "message doubled",
    "message reordered",
    "api killed",
    "database restarted",
    "store failing",
    "store slow",
    "upload cut",
    "listing stale",
    "checkpoint damaged",
    "no capacity",
    "created although timed out",
    "instance lost",
    "instance moved",
    "two at once",
    "reallocated",
    "fleet reclaimed",
    "fails at once",
    "fails long",
    "slow 2x",
    "slow 12x",
    "false progress",
    "lying 65",
    "no libraries",
    "kills hosts",
    "memory",
    "cancel racing finish",
    "cancel racing claim",
    "cancel racing retry",
    "cancel racing budget",
    "job deleted",
    "checkpoint inherited",
    "checkpoint pinned",
)
"""Every kind of fault. A soak in which one of them never struck proves nothing about it."""

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


@dataclass(slots=True)
class Soak:
    """The sums over all seeds; `because` has the sentence of each violation."""

    seeds: int = 0
    attempts: int = 0
    events: int = 0
    violations: int = 0
    unfinished: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    because: list[str] = field(default_factory=list)

    def add(self, outcome: SimulationResult) -> None:
        self.seeds += 1
        self.attempts += outcome.attempts
        self.events += outcome.events
        self.unfinished += outcome.unfinished
        self.struck += outcome.struck

    def join(self, other: "Soak") -> None:
        self.seeds += other.seeds
        self.attempts += other.attempts
        self.events += other.events
        self.violations += other.violations
        self.unfinished += other.unfinished
        self.struck += other.struck
        self.because += other.because

    def never(self) -> list[str]:
        """Return the kinds of faults that never struck."""
        return [kind for kind in KINDS if not self.struck[kind]]


def soak(seeds: Iterable[int]) -> Soak:
    found = Soak()
    for seed in seeds:
        try:
            found.add(play(seed))
        except Exception as error:  # any error counts as a violation and must not end the soak
            found.seeds += 1
            found.violations += 1
            known = isinstance(error, Violation)
            found.because.append(str(error) if known else f"seed {seed}: {type(error).__name__}: {error}")
    return found


def play(seed: int) -> SimulationResult:
    """Run one seed through both phases. Raises `Violation`."""
    chaos = Chaos(seed)
    chaos.simulation.play(until_ms=START_MS + SAFETY_S * 1000)
    return chaos.simulation.live()


class Chaos:
    """The simulation of a seed, with its faults and users' actions scheduled."""

    def __init__(self, seed: int) -> None:
        rng = World(seed).rng("chaos")
        scenario = _with_samples(_scenario(rng), World(seed).rng("samples"))
        scenario = _with_slots(scenario, World(seed).rng("slots"))
        scenario = _with_pools(scenario, World(seed).rng("pools"))
        self.simulation = Simulation(scenario, seed, rates=_rates(rng))
        self._rng = rng
        self._world = self.simulation.world
        self.simulation.cloud.skew_clocks()
        for _ in range(rng.randrange(12, 30)):
            self._world.after(rng.uniform(60, SAFETY_S), "strike", self._strike)
        self._notices = World(seed).rng("notices")
        for _ in range(self._notices.randrange(4)):
            self._world.after(self._notices.uniform(60, SAFETY_S), "notice", self._give_notice)
        for _ in range(rng.randrange(6, 16)):
            self._world.after(rng.uniform(60, SAFETY_S), "user", self._user)

    def _strike(self) -> None:
        rng, simulation = self._rng, self.simulation
        if simulation.at_peace:
            return
        kind = rng.choice(("kill", "kill", "pause", "pause", "clock", "lose", "damage"))
        nodes = simulation.cloud.nodes()
        busy = [node for node in nodes if node.is_busy] or nodes
        if kind == "damage":
            self._damage()
        elif busy:
            simulation.strike_node(kind, rng.choice(busy), rng.uniform(20, 300))

    def _give_notice(self) -> None:
        nodes = self.simulation.cloud.nodes()
        if nodes and not self.simulation.at_peace:
            self.simulation.strike_node("notice", self._notices.choice(nodes), self._notices.uniform(20, 300))

    def _damage(self) -> None:
        """Damage the newest checkpoints of up to three jobs, and kill two nodes, so that attempts resume from them."""
        rows = self.simulation.store.look(
            "SELECT prefix FROM checkpoint JOIN job ON job.id = checkpoint.job WHERE checkpoint.state = 'committed' "
            "AND job.state IN ('running', 'queued', 'paused') ORDER BY checkpoint.committed_ms, checkpoint.id"
        )
        newest = dict.fromkeys(prefix.split("/attempts/")[0] for (prefix,) in rows)
        for job in self._rng.sample(list(newest), min(3, len(newest))):
            prefix = [prefix for (prefix,) in rows if prefix.startswith(job)][-1]
            stored = self.simulation.objects.objects.get(f"{prefix}/state.safetensors")
            if stored and not stored.damaged:
                stored.damaged = True
                self.simulation.faults.struck["checkpoint damaged"] += 1
        for node in [node for node in self.simulation.cloud.nodes() if node.is_busy][:2]:
            self.simulation.strike_node("kill", node, 0)

    def _user(self) -> None:
        """Do what users may do at any time: cancel, pause, resume, retry, delete, pin, and change a budget."""
        rng, simulation = self._rng, self.simulation
        if simulation.at_peace or not simulation.jobs:
            return
        job, now, deployment = rng.choice(simulation.jobs), self._world.now_ms, simulation.service.deployment
        project = simulation.store.look("SELECT project FROM job WHERE id = ?", job)[0][0]
        match rng.choice(
            (
                "cancel",
                "pause",
                "pause",
                "resume",
                "resume",
                "retry",
                "retry from checkpoint",
                "budget",
                "delete",
                "delete",
                "pin",
            )
        ):
            case "cancel":
                simulation.user(lambda: steer.cancel(deployment, job, now))
            case "pause":
                simulation.user(lambda: steer.pause(deployment, job, now))
            case "resume":
                simulation.user(lambda: steer.resume(deployment, job, now))
            case "retry":
                simulation.user(lambda: steer.submit_again(deployment, project, job, now))
            case "retry from checkpoint":
                self._clean(
                    "checkpoint inherited", lambda: retry_some_from_checkpoint(deployment, simulation.store, rng, now)
                )
            case "delete":
                self._clean("job deleted", lambda: delete_some_job(deployment, simulation.store, rng, now))
            case "pin":
                self._clean("checkpoint pinned", lambda: pin_some_checkpoint(deployment, simulation.store, rng))
            case _:
                budget = rng.choice((None, 0.2, 0.5))
                simulation.user(lambda: set_allowance(deployment, project, share=rng.choice((1, 2)), budget_usd=budget))

    def _clean(self, what: str, act: Callable[[], bool]) -> None:
        done: list[bool] = []
        self.simulation.user(lambda: done.append(act()))
        self.simulation.faults.struck[what] += any(done)


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


def _rates(rng: Random) -> FaultRates:
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
