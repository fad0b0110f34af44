"""Test with chaos: each seed has another fleet, other jobs and all kinds of faults, then no faults, and every job must end."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from gangline.service.access.projects import set_allowance
from gangline.service.jobs import steer
from gangline.sim.cleaning import (
    ask_some_job,
    delete_some_job,
    extend_some_job,
    pin_some_checkpoint,
    retry_some_from_checkpoint,
)
from gangline.sim.drawing import SAFETY_S, draw_rates, draw_scenario
from gangline.sim.promises.violation import Violation
from gangline.sim.simulation import Simulation, SimulationResult
from gangline.sim.world import START_MS, World

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
    "checkpoint asked for",
    "pictures asked for",
    "finish asked for",
    "job extended",
)
"""Every kind of fault. A soak in which one of them never struck proves nothing about it."""


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
        self.simulation = Simulation(draw_scenario(rng, seed), seed, rates=draw_rates(rng))
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
        self._wishes = World(seed).rng("wishes")
        for _ in range(self._wishes.randrange(4, 12)):
            self._world.after(self._wishes.uniform(60, SAFETY_S), "wish", self._wish)

        self._extensions = World(seed).rng("extensions")
        for _ in range(self._extensions.randrange(6)):
            self._world.after(self._extensions.uniform(300, SAFETY_S), "extension", self._extend)

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

    def _wish(self) -> None:
        """Ask a job at work for what its owner may want at any time."""
        simulation, done = self.simulation, list[str]()
        if simulation.at_peace:
            return
        ask = partial(ask_some_job, simulation.service.deployment, simulation.store, self._wishes, self._world.now_ms)
        simulation.user(lambda: done.append(ask()))
        simulation.faults.struck.update(filter(None, done))

    def _extend(self) -> None:
        """Continue a job that has ended to more steps."""
        simulation = self.simulation
        if not simulation.at_peace:
            act = partial(
                extend_some_job, simulation.service.deployment, simulation.store, self._extensions, self._world.now_ms
            )
            self._clean("job extended", act)

    def _clean(self, what: str, act: Callable[[], bool]) -> None:
        done: list[bool] = []
        self.simulation.user(lambda: done.append(act()))
        self.simulation.faults.struck[what] += any(done)
