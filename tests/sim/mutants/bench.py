"""The real service over the real SQL, small enough for one race at a time: what probes work with."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from gangline.core.errors import Unreachable
from gangline.core.files import PART_BYTES, File, Grant
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.parsing import to_json
from gangline.core.policy import Policy
from gangline.core.runs.contract import Manifest
from gangline.core.server.settings import PoolSettings
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.ports.objects import Stat
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental
from gangline.ports.server import (
    Assignment,
    Beat,
    Commit,
    Failed,
    Grants,
    Hold,
    Join,
    NoWork,
    Reject,
    Released,
    Stale,
    Succeeded,
    Upload,
    Uploads,
)
from gangline.ports.store import Write, write
from gangline.service.access.access import DEFAULT_POOL, ensure_secret
from gangline.service.access.projects import create_project, set_allowance
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet import nodes
from gangline.service.fleet.fleet import tend
from gangline.service.jobs import checkpoint, query, renew
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.submit import blob_here, queue, submit
from gangline.service.recent import Recent
from gangline.sim.checks import Checks
from gangline.sim.faults import Faults
from gangline.sim.node.lineage import content_sha256, lineage_of
from gangline.sim.objects import Object, SimObjects, simulated_parts
from gangline.sim.promises.audit import Audit
from gangline.sim.service import NoHub
from gangline.sim.store import SimStore
from gangline.sim.world import World

PRICE = 360_000  # micro-dollars an hour: 100 a second
PROJECT = "default"
POOL = "cloud"
STEPS = 100


class Objects(SimObjects):
    """An object store that attests no SHA-256 of what is `unattested`."""

    unattested = False

    def stat(self, key: str) -> Stat | None:
        found = super().stat(key)
        return Stat(bytes=found.bytes, sha256=None) if found and self.unattested else found


class Provider:
    """The `pool` port: whatever is asked for is there at once, until the probe says otherwise."""

    def __init__(self, world: World, offers: list[Offer]) -> None:
        self._world = world
        self._offers = offers
        self._instances: dict[str, Instance] = {}
        self._numbers = count()
        self.tokens: dict[str, str] = {}
        """Of rentals, by name."""
        self.has_capacity = True
        self.away = False

    def offers(self) -> list[Offer]:
        return self._offers

    def start(self, offer: str, rental: Rental) -> None:
        if not self.has_capacity:
            raise NoCapacity("none left")
        self.tokens[rental.name] = rental.token
        self.add(rental.name)

    def add(self, name: str) -> str:
        instance = f"instance-{next(self._numbers)}"
        self._instances[instance] = Instance(
            id=instance, name=name, billed_from_ms=self._world.now_ms, billed_to_ms=None
        )
        return instance

    def stop(self, instance: str) -> None:
        found = self._instances.get(instance)
        if found and found.billed_to_ms is None:
            self._instances[instance] = replace(found, billed_to_ms=self._world.now_ms)

    def move(self, instance: str, place: str, because: str = "", machine: str = "") -> None:
        """Another machine has it."""
        at = {"place": place, "moved": because, "machine": machine}
        self._instances[instance] = replace(self._instances[instance], **at)

    def bill_not(self, instance: str, *spans: tuple[int, int]) -> None:
        """It ran on no machine then; spans of before are forgotten."""
        self._instances[instance] = replace(self._instances[instance], unbilled=spans)

    def lose(self, instance: str) -> None:
        """It is not in the list any more."""
        del self._instances[instance]

    def list(self) -> list[Instance]:
        if self.away:
            raise Unreachable("the provider is away")
        return list(self._instances.values())

    def running(self) -> Sequence[str]:
        return [instance.id for instance in self._instances.values() if instance.billed_to_ms is None]

    def instance_of(self, node: str) -> str:
        return next(instance.id for instance in self._instances.values() if instance.name == node)

    def invoice(self) -> dict[str, int]:
        """Micro-dollars by node, of what has ended."""
        total: dict[str, int] = {}
        for found in self._instances.values():
            if found.billed_from_ms is not None and found.billed_to_ms is not None:
                cost = PRICE * found.billed_to_ms // 3_600_000 - PRICE * found.billed_from_ms // 3_600_000
                total[found.name] = total.get(found.name, 0) + cost
        return total


class Bench:
    """A service that has been up for long. `meanwhile` lets others act between a load and its write."""

    def __init__(
        self, offers: list[Offer] | None = None, nodes_min: int = 0, nodes_max: int = 4, **policy: Any
    ) -> None:
        self.world = World(0)
        self.store = SimStore(self.world)
        self.objects = Objects(self.world, Faults(self.world))
        self.checks = Checks(self.world, self.store, self.objects, Policy(**policy))
        self.audit = Audit(self.world, self.store, self.objects)
        self.provider = Provider(self.world, offers or [Offer(id="any", price_micro_usd_per_hour=PRICE)])
        self._ids = count()
        self._photos = count()
        self._waiting: list[str] = []
        limits = PoolLimits(name=POOL, nodes_min=nodes_min, nodes_max=nodes_max)
        self.deployment = Deployment(
            store=self.store,
            objects=self.objects,
            hub=NoHub(),
            policy=Policy(**policy),
            new_id=lambda kind: f"{kind}-{next(self._ids):04d}",
            new_secret=lambda kind: f"gl_{kind}_secret-{next(self._ids)}",
            up_since_ms=0,
            settings_of_pools=dict.fromkeys((DEFAULT_POOL, POOL), PoolSettings(price_usd_per_hour=PRICE / 1e6)),
            pools={POOL: RentedPool(limits, AtOnce(self.provider))},
        )
        ensure_secret(self.deployment, "operator's", "operator", now_ms=0)
        self.wait(0)

    def close(self) -> None:
        """The end of a probe: what it set up has happened, and every promise holds."""
        try:
            assert not self._waiting, f"nobody wrote {self._waiting}"
            self.checks.after_event()
        finally:
            self.store.close()

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    @property
    def policy(self) -> Policy:
        return self.deployment.policy

    def restart(self) -> None:
        """The service was away, and is back now."""
        self.deployment = replace(self.deployment, up_since_ms=self.now_ms)

    def wait(self, seconds: float) -> None:
        self.checks.after_event()
        self.world.now_ms += round(seconds * 1000)
        tick = write("tick", now=self.now_ms, gap_ms=10**15, server=self.deployment.server, turn_ends_ms=self.now_ms)
        self.store.apply(tick)  # as if it had ticked all the while

    def meanwhile(self, statement: str, act: Callable[[], object]) -> None:
        """Once, just before the next transaction that writes `statement`, `act` happens."""
        self._waiting.append(statement)

        def hear(writes: tuple[Write, ...]) -> None:
            if any(write.name == statement for write in writes):
                self.store.meanwhile = lambda _: None
                self._waiting.remove(statement)
                recent, self.deployment = (
                    self.deployment.recent,
                    replace(self.deployment, recent=Recent()),
                )  # they ask another server
                act()
                self.deployment = replace(self.deployment, recent=recent)

        self.store.meanwhile = hear

    def look(self, sql: str, *values: object) -> list[Any]:
        """One column's values, or rows."""
        rows = self.store.look(sql, *values)
        return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows

    # What users do

    def spec(self, base: str = "base", **settings: Any) -> LoraSpec:
        files = [File(path=name, bytes=9, sha256=hashlib.sha256(name.encode()).hexdigest()) for name in (base, "photo")]
        values = {"base": FilesBase(files=(files[0],)), "photos": (files[1],), "prompt": "sks dog", "steps": STEPS}
        values["sample_result"] = False  # who ends one job is then as free as before it
        return LoraSpec(**(values | settings))

    def submit(self, project: str = PROJECT, request: str | None = None, **settings: Any) -> str:
        """Also for several GPUs: older versions took such LoRAs."""
        spec = self.spec(**settings)
        for file in spec.input_files().values():
            key = f"projects/{project}/blobs/{file.sha256}"
            self.objects.objects.setdefault(key, Object(file.bytes, file.sha256, 0))
            assert blob_here(self.deployment, project, file.sha256, file.bytes, self.now_ms).present
        if spec.needs.slots > 1:
            return queue(self.deployment, project, spec, name="", request=request, now_ms=self.now_ms)
        return submit(self.deployment, project, to_json(spec), name="", request=request, now_ms=self.now_ms)

    def budget(self, usd: float | None, project: str = PROJECT) -> None:
        create_project(self.deployment, project)
        set_allowance(self.deployment, project, share=1, budget_usd=usd)

    def state(self, job: str) -> str:
        return self.look("SELECT state FROM job WHERE id = ?", job)[0]

    def said(self, job: str) -> str:
        """Why it is in its state."""
        return self.look("SELECT because FROM job WHERE id = ?", job)[0]

    def because(self, job: str) -> str:
        """As its owner is told now."""
        return query.job(self.deployment, PROJECT, job, self.now_ms).summary.because

    def events(self, job: str) -> list[str]:
        return self.look("SELECT kind FROM event WHERE job = ? ORDER BY number", job)

    # What nodes do

    def join(self, name: str = "a", machine: str = "", pool: str = "", **facts: Any) -> str:
        """Without a `pool`: a rented node into the one that it was rented for."""
        pool = pool or (POOL if "node" in facts else DEFAULT_POOL)
        request = Join(machine=machine or f"machine-{name}", name=name, **facts)
        return nodes.join_pool(self.deployment, request, pool, self.now_ms, rental=facts.get("node")).node

    def claim(self, node: str) -> Assignment:
        answer = claim(self.deployment, node, self.now_ms)
        assert isinstance(answer, Assignment), answer
        return answer

    def claim_nothing(self, node: str) -> str:
        answer = claim(self.deployment, node, self.now_ms)
        assert isinstance(answer, NoWork), answer
        return answer.because

    def take(self, node: str, job: str) -> Hold:
        assignment = self.claim(node)
        assert assignment.job == job, f"{node} got {assignment.job}"
        return assignment.hold

    def beat(self, node: str, hold: Hold, step: int = 1, **said: Any) -> Any:
        beat = Beat(
            **({"phase": "training", "loss": 0.5, "seconds_per_step": 1.0, "step": step, "training_s": 0} | said)
        )
        return renew.renew(self.deployment, node, hold, beat, self.now_ms)

    def keep_beating(self, node: str, hold: Hold, seconds: float, step: Callable[[int], int] = lambda n: n) -> Any:
        """Heartbeats with ticks of the service in between; the last answer."""
        answer = None
        for number in range(int(seconds / self.policy.heartbeat_interval_s)):
            self.wait(self.policy.heartbeat_interval_s)
            answer = self.beat(node, hold, step(number))
            self.tick()
        return answer

    def upload(self, node: str, hold: Hold, folder: Any, file: File, step: int = 0) -> None:
        self.objects.receive(self.grant(node, hold, folder, file, step), file)

    def grant(self, node: str, hold: Hold, folder: Any, file: File, step: int = 0) -> Grant:
        parts = tuple(part.sha256 or "" for part in simulated_parts(file)) if file.bytes > PART_BYTES else ()
        declared = Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts)
        request = Uploads(folder=folder, step=step, files=(declared,))
        grants = checkpoint.sign_uploads(self.deployment, node, hold, request, self.now_ms)
        assert isinstance(grants, Grants), grants
        return grants.files[0]

    def manifest(self, hold: Hold, step: int, **changes: Any) -> Manifest:
        lineage = self.lineage(hold)
        file = File(path="state.safetensors", bytes=1_000_000, sha256=content_sha256(lineage, step))
        values = {"step": step, "spec_hash": lineage, "fingerprint": {}, "exact": True, "files": (file,)}
        return Manifest(**(values | changes))

    def commit(self, node: str, hold: Hold, step: int, *, upload: bool = True, **changes: Any) -> Any:
        manifest = self.manifest(hold, step, **changes)
        if upload:
            self.upload(node, hold, "checkpoints", manifest.files[0], step)
        request = Commit(manifest=json.loads(json.dumps(manifest.to_json())))
        return checkpoint.commit_checkpoint(self.deployment, node, hold, request, self.now_ms)

    def advance(self, node: str, hold: Hold, step: int = 10, seconds_per_step: float = 1.0) -> None:
        self.beat(node, hold, step, seconds_per_step=seconds_per_step)
        self.commit(node, hold, step)

    def reject(self, node: str, hold: Hold, found: str, because: str = "damaged") -> Any:
        return checkpoint.reject_damaged(
            self.deployment, node, hold, Reject(checkpoint=found, because=because), self.now_ms
        )

    def checkpoints(self, job: str, state: str = "committed") -> list[str]:
        return self.look("SELECT id FROM checkpoint WHERE job = ? AND state = ? ORDER BY step", job, state)

    def result(self, node: str, hold: Hold) -> Succeeded:
        sha256 = content_sha256(f"result of {self.lineage(hold)}", STEPS)
        file = File(path=DIFFUSERS_FILE, bytes=10, sha256=sha256)
        self.upload(node, hold, "output", file)
        return Succeeded(output=(file,))

    def succeed(self, node: str, hold: Hold) -> Any:
        return finish(self.deployment, node, hold, self.result(node, hold), self.now_ms)

    def fail(self, node: str, hold: Hold, kind: Any = "crashed", because: str = "boom") -> Any:
        return finish(self.deployment, node, hold, Failed(kind=kind, because=because), self.now_ms)

    def release(self, node: str, hold: Hold) -> Any:
        return finish(self.deployment, node, hold, Released(), self.now_ms)

    def lineage(self, hold: Hold) -> str:
        job = "SELECT job.spec FROM job JOIN attempt ON attempt.job = job.id WHERE attempt.id = ?"
        return lineage_of(json.loads(self.look(job, hold.attempt)[0]))

    # What the service does of itself

    def tick(self) -> None:
        Controller(self.deployment).tick(self.now_ms)

    def tend(self) -> None:
        tend(self.deployment, self.now_ms)

    def node(self, node: str) -> Mapping[str, Any]:
        return dict(self.store.load("node", id=node)[0])

    def ledger(self, node: str) -> list[tuple[str, int, int, int]]:
        """Cause, from, to, micro-dollars."""
        sql = "SELECT cause, from_ms, to_ms, micro_usd FROM ledger WHERE node = ? ORDER BY from_ms, to_ms"
        return self.store.look(sql, node)

    def rented(self) -> list[str]:
        return self.look("SELECT id FROM node WHERE rented = 1 AND state <> 'gone' ORDER BY id")

    def rent(self, jobs: int = 1, **settings: Any) -> list[str]:
        """So many jobs come, and as many nodes for them, which have joined."""
        for _ in range(jobs):
            self.submit(seed=next(self._photos), **settings)
        self.tend()
        self.tend()
        self.wait(5)
        found = self.rented()
        for number, node in enumerate(found):
            self.join(f"rented-{number}", node=node)
        return found


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    act: Callable[[Bench], None]
    setup: dict[str, Any]

    def run(self) -> None:
        bench = Bench(**self.setup)
        try:
            self.act(bench)
        except BaseException:
            bench.store.close()
            raise
        bench.close()


PROBES: list[Probe] = []


def probe(**setup: Any) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    def add(act: Callable[[Bench], None]) -> Callable[[Bench], None]:
        PROBES.append(Probe(act.__name__, act, setup))
        return act

    return add


def is_stale(answer: object) -> bool:
    return isinstance(answer, Stale)


def refused(error: type[Exception], act: Callable[[], object]) -> bool:
    try:
        act()
    except error:
        return True
    return False
