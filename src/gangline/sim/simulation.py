"""Run a scenario: a safety phase with its faults, then a liveness phase without faults, in which every job must end."""

import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.files import File
from gangline.core.job import ENDED
from gangline.core.jobs.keys import blob_key
from gangline.core.money.cost import HOUR_MS
from gangline.core.parsing import to_json
from gangline.core.server.settings import make_policy
from gangline.core.specs.fields import FilesBase, Needs
from gangline.core.specs.lora import LoraSpec
from gangline.ports.store import Write
from gangline.service.access.projects import set_allowance
from gangline.service.facts import number_facts
from gangline.service.jobs import steer
from gangline.service.jobs.submit import blob_here, submit
from gangline.service.outage import take_turn
from gangline.sim.checks import Checks
from gangline.sim.cleaning import age_all, sweep_all
from gangline.sim.cloud.cloud import Cloud
from gangline.sim.cloud.node import SimNode
from gangline.sim.faults import FaultRates, Faults
from gangline.sim.objects import Object, SimObjects
from gangline.sim.promises.audit import Audit
from gangline.sim.scenario import Fault, JobModel, Jobs, Scenario
from gangline.sim.service import SimService
from gangline.sim.store import ServerKilled, SimStore
from gangline.sim.world import START_MS, World

LIVENESS_HOURS_MAX = 24
LOOK_EVERY = 64


@dataclass(slots=True)
class SimulationResult:
    """The result of a simulation. After a liveness phase `unfinished` must be 0, else promise 4 is broken."""

    seed: int
    events: int
    trace: str
    seconds: float
    attempts: int
    unfinished: int
    states: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)


class Simulation:
    """A simulation of a scenario. `run` runs it to the end; with chaos, `play` and `live` are its safety and liveness phases."""

    def __init__(self, scenario: Scenario, seed: int, *, rates: FaultRates | None = None, checked: bool = True) -> None:
        self.scenario = scenario
        self.world = World(seed)
        self.faults = Faults(self.world)
        self.store = SimStore(self.world)
        self.objects = SimObjects(self.world, self.faults)
        self.policy = make_policy(scenario.policy)
        self.checks = Checks(self.world, self.store, self.objects, self.policy)
        self.audit = Audit(self.world, self.store, self.objects)
        self.cloud = Cloud(self.world, scenario, self.objects, self.faults)
        late_s = self.policy.heartbeat_interval_s + self.policy.stop_grace_s
        self.checks.overshoot = round(self.cloud.most_micro_usd_per_hour() * late_s / 3600)
        pools = self.cloud.pools()
        self.service = SimService(self.world, self.store, self.objects, self.faults, self.checks, self.policy, pools)
        self.cloud.serve(self.service, lambda index: self._models[index])
        self.after_event: Callable[[], None] = lambda: None
        """A function that is called after each event, between two transactions."""
        self.at_peace = False
        self.jobs: list[str] = []
        self._models: list[JobModel] = []
        self._checked = checked
        self._nested = 0
        self._meanwhile = self.world.rng("meanwhile")
        self.faults.rates = rates or FaultRates()
        if rates and rates.meanwhile:
            self.store.meanwhile = self._others_act
        for batch in scenario.jobs:
            self.world.after(batch.at_s, "jobs come", lambda batch=batch: self._come(batch))
        for fault in scenario.faults:
            self.world.after(fault.at_s, fault.kind, lambda fault=fault: self.strike(fault))

    def run(self) -> SimulationResult:
        self.play(until_ms=START_MS + round(self.scenario.hours_max * HOUR_MS))
        self.faults.over()
        return self.outcome()

    def play(self, *, until_ms: int) -> None:
        """Run until every job has ended, at most until `until_ms`."""
        steps = 0
        with _no_garbage():
            while self.world.step(until_ms=until_ms):
                if self._checked:
                    self.checks.after_event()
                self.after_event()
                steps += 1
                if steps % LOOK_EVERY == 0 and self.is_over():
                    break

    def is_over(self) -> bool:
        """Return whether all jobs were submitted and ended, the fleet is at its minimum, and every bill is settled."""
        if len(self.jobs) < sum(batch.count for batch in self.scenario.jobs):
            return False
        look = self.store.look
        if look("SELECT 1 FROM job WHERE ended_ms IS NULL ORDER BY rowid DESC LIMIT 1"):
            return False
        here = look("SELECT COUNT(*) FROM node WHERE state <> 'gone'")[0][0]
        if max(here, self.cloud.running()) > self.scenario.nodes_min:
            return False
        # By their ends, too: one that its provider hides is settled by an estimate until it shows the end.
        settled, ends_ms = look("SELECT COUNT(*), COALESCE(SUM(billed_to_ms), 0) FROM instance WHERE settled = 1")[0]
        return settled >= self.cloud.billed() and ends_ms == self.cloud.ends_ms()

    def outcome(self) -> SimulationResult:
        states = Counter(dict(self.store.look("SELECT state, COUNT(*) FROM job GROUP BY state")))
        return SimulationResult(
            seed=self.world.seed,
            events=self.world.events,
            trace=self.world.trace(),
            seconds=self.world.now_s,
            attempts=self.store.look("SELECT COUNT(*) FROM attempt")[0][0],
            unfinished=sum(count for state, count in states.items() if state not in ENDED),
            states=states,
            struck=self.faults.struck,
        )

    def live(self) -> SimulationResult:
        """Run the liveness phase: there are no more faults, users resume paused jobs and lift their budgets. Check the end."""
        self.at_peace = True
        self.faults.over()
        self.store.meanwhile = lambda _: None
        self.store.kill_in, self.store.down_until_ms = None, 0
        for project in self._projects():
            self._insist(
                lambda project=project: set_allowance(self.service.deployment, project, share=1, budget_usd=None)
            )
        for job in self.jobs:
            self._insist(lambda job=job: self._resume(job))
        self.play(until_ms=self.world.now_ms + LIVENESS_HOURS_MAX * HOUR_MS)
        outcome = self.outcome()
        if self._checked:
            self._check_the_end()
        return outcome

    def _check_the_end(self) -> None:
        deployment = self.service.deployment
        self.audit.at_the_end(self.cloud.invoice(), self.scenario.nodes_min)
        self.audit.against_the_store(self.policy)
        sweep_all(deployment, self.store)
        self.audit.no_orphans()
        age_all(deployment, self.world, self.store, self.objects)
        self.checks.after_event()
        self.checks.kept.at_the_end()
        take_turn(deployment, self.world.now_ms)
        number_facts(deployment, self.world.now_ms)
        self.checks.facts.at_the_end()

    def _resume(self, job: str) -> None:
        with suppress(BadInput):  # the job has ended
            steer.resume(self.service.deployment, job, self.world.now_ms)

    def _projects(self) -> list[str]:
        return [row[0] for row in self.store.look("SELECT id FROM project ORDER BY id")]

    # What users do

    def _come(self, batch: Jobs) -> None:
        first = len(self._models)
        self._models += [_model(batch)] * batch.count
        self._submit(batch, list(range(first, first + batch.count)))

    def _submit(self, batch: Jobs, left: list[int]) -> None:
        """Submit the rest of a batch. While the server is down, retry with the same request ids, so that no job is submitted twice."""
        for done, index in enumerate(left):
            try:
                self.service.run("submit", lambda index=index: self._submit_one(batch, index))
            except Unreachable:
                self.world.after(5, "submit again", lambda rest=left[done:]: self._submit(batch, rest))
                return

    def _submit_one(self, batch: Jobs, index: int) -> None:
        photo = File(path="photo.png", bytes=300_000, sha256=hashlib.sha256(f"photo {index}".encode()).hexdigest())
        spec = LoraSpec(
            base=FilesBase(files=(self._base(batch),)),
            photos=(photo,),
            prompt="sks dog",
            steps=batch.steps,
            seed=index,
            checkpoint_every_s=batch.checkpoint_every_s,
            checkpoint_every_steps=batch.checkpoint_every_steps,
            sample_every_steps=batch.sample_every_steps,
            sample_result=batch.sample_result,
            attempts_max=batch.attempts_max,
            priority=batch.priority,
            needs=Needs(gpu_memory_gb=batch.says_gb),
        )
        deployment, now = self.service.deployment, self.world.now_ms
        for file in spec.input_files().values():
            key = blob_key(batch.project, file.sha256)
            self.objects.objects.setdefault(key, Object(file.bytes, file.sha256, 0))
            blob_here(deployment, batch.project, file.sha256, file.bytes, now)
        job = submit(deployment, batch.project, to_json(spec), name="", request=f"request {index}", now_ms=now)
        self.jobs.append(job)

    def _base(self, batch: Jobs) -> File:
        size = round(batch.base_gb * 1e9)
        content = hashlib.sha256(f"{batch.base} {size}".encode())
        return File(path=f"{batch.base}.safetensors", bytes=size, sha256=content.hexdigest())

    def user(self, act: Callable[[], object]) -> bool:
        """Make a user's request. Return False if it was refused or lost, as the server is down."""
        try:
            self.service.run("user", act)
        except GanglineError:
            return False
        return True

    def _insist(self, act: Callable[[], object]) -> None:
        """Make a user's request, and retry until it succeeds."""
        if not self.user(act):
            self.world.after(5, "user again", lambda: self._insist(act))

    # What others do during a request

    def _others_act(self, writes: tuple[Write, ...]) -> None:
        """Let another event, or the owner's cancel of this job, happen between the load and the write of a request."""
        rates, rng = self.faults.rates, self._meanwhile
        if self._nested or rates.meanwhile <= 0:
            return
        race, job = self._race(self.service.doing[-1] if self.service.doing else "", writes)
        self._nested += 1
        # A kill that is scheduled is meant for the outer request, so it is set aside while the other one runs.
        life, kill, self.store.kill_in = self.service.life, self.store.kill_in, None
        try:
            if race and job and self.faults.happens(rng, f"cancel racing {race}", rates.cancel_races):
                self.user(lambda: steer.cancel(self.service.deployment, job, self.world.now_ms))
            elif rng.random() < rates.meanwhile:
                self.world.step(until_ms=self.world.now_ms + 2000)
        finally:
            self._nested -= 1
        if self.service.life != life:
            raise ServerKilled  # the process died, so the interrupted request dies with it
        self.store.kill_in = kill

    def _race(self, doing: str, writes: tuple[Write, ...]) -> tuple[str, str | None]:
        """Return the name of the race between these writes and a cancel, and the job to cancel; an empty name if there is none."""
        values = {write.name: write.values for write in writes}
        if doing == "beat" and "extend_reservation" in values:
            return "budget", self.checks.job_of(values["extend_reservation"]["attempt"])
        if doing == "claim" and "take_job" in values:
            return "claim", values["take_job"]["id"]
        if doing == "finish" and "set_job_state" in values:
            moved = values["set_job_state"]
            return "retry" if moved["state"] == "queued" else "finish", moved["id"]
        return "", None

    # What goes wrong

    def strike(self, fault: Fault) -> None:
        if self.at_peace:
            return
        until_ms = self.world.now_ms + round(fault.seconds * 1000)
        match fault.kind:
            case "store_down":
                self.faults.store_down_until_ms = until_ms
            case "store_slow":
                self.faults.store_slow_until_ms = until_ms
            case "listing_stale":
                self.faults.stale_until_ms = until_ms
            case "no_capacity":
                self.faults.no_capacity_until_ms = until_ms
            case "provider":
                self.faults.provider_down_until_ms = until_ms
            case "api":
                self.faults.struck["api down"] += 1
                self.service.stop_for(fault.seconds)
            case "database":
                self.faults.struck["database restarted"] += 1
                self.store.down_until_ms = until_ms
            case _:
                self._strike_nodes(fault)

    def _strike_nodes(self, fault: Fault) -> None:
        nodes = self.cloud.nodes()
        rng = self.world.rng(f"strike {self.world.now_ms} {fault.kind}")
        for node in rng.sample(nodes, round(len(nodes) * fault.share) if fault.share < 1 else len(nodes)):
            self.strike_node(fault.kind, node, fault.seconds)

    def strike_node(self, kind: str, node: SimNode, seconds: float) -> None:
        match kind:
            case "kill":
                self.faults.struck["node killed"] += 1
                self.cloud.reclaim(node)
            case "reclaim":
                self.faults.struck["fleet reclaimed"] += 1
                self.cloud.reclaim(node)
            case "lose":
                self.faults.struck["instance lost"] += 1
                self.cloud.lose(node)
            case "notice":
                self.faults.struck["notice given"] += 1
                node.warn(seconds)
            case "pause":
                self.faults.struck["node paused"] += 1
                node.pause(seconds)
            case "clock":
                self.faults.struck["clock off"] += 1
                node.skew(86_400)


def _model(batch: Jobs) -> JobModel:
    return JobModel(
        pace=batch.pace,
        memory_gb=batch.memory_gb,
        checkpoint_bytes=round(batch.checkpoint_mb * 1e6),
        trait=batch.trait,
        trait_s=batch.trait_s,
    )


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Turn off cyclic garbage collection: its cost grows with the fleet, and it finds almost no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
