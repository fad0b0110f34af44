"""Simulate a rented machine on which the real agent runs."""

from collections.abc import Callable
from dataclasses import dataclass

from gangline.ports.server import Join
from gangline.sim.faults import Faults
from gangline.sim.node.gauges import SimGauges
from gangline.sim.node.host import SimHost
from gangline.sim.node.trainer import SimTrainer
from gangline.sim.objects import SimObjects, SimTransfer
from gangline.sim.scenario import JobModel, MachineModel
from gangline.sim.service import Link, SimService
from gangline.sim.world import World
from gangline.worker.agent import Agent
from gangline.worker.edges import Edges

STEP_S = 0.2
"""The least seconds between two steps of an agent, as in the agent's loop."""


class Surroundings:
    """What all nodes and providers share. `service` and `job_of` are set after construction, as the service needs the providers."""

    service: SimService
    job_of: Callable[[int], JobModel]

    def __init__(self, world: World, objects: SimObjects, faults: Faults) -> None:
        self.world = world
        self.objects = objects
        self.faults = faults
        self.skews_clocks = False

    def struck(self, kind: str) -> None:
        self.faults.struck[kind] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a node gets from its provider. `place` is empty for a provider that moves nothing."""

    pool: str
    name: str
    token: str
    place: str = ""
    skew_s: float = 0.0


class SimNode:
    """A rented machine that runs the real agent."""

    def __init__(
        self,
        around: Surroundings,
        given: Given,
        machine: MachineModel,
        *,
        take_back: Callable[["SimNode"], None],
        exited: Callable[["SimNode"], None],
    ) -> None:
        self.machine = machine
        self.name = given.name
        self.alive = True
        self.notice = ""
        self._world = around.world
        self._take_back = take_back
        self._exited = exited
        self._paused_until_ms = 0
        self._skew_s = given.skew_s
        self._stepping = False
        self._due_ms: int | None = None
        here = f"node {given.name}{f' at {given.place}' if given.place else ''}"
        rng = around.world.rng(here)
        host = SimHost()
        transfer = SimTransfer(
            world=self._world,
            objects=around.objects,
            faults=around.faults,
            rng=rng,
            up_bytes_per_s=machine.up_bytes_per_s,
            down_bytes_per_s=machine.down_bytes_per_s,
            arrived=host.arrived,
            written=host.written,
            news=self.wake,
            is_alive=lambda: self.alive,
        )
        self.trainer = SimTrainer(
            world=self._world,
            host=host,
            machine=machine,
            jobs=around.job_of,
            news=self.wake,
            die=lambda: take_back(self),
            struck=around.struck,
            rng=rng,
        )
        self.link = Link(self._world, around.service, around.faults, rng, given.token, given.pool)
        # What the agent draws decides nothing of what happens to its machine.
        own = around.world.rng(f"{here}, its agent")
        measured = around.world.rng(f"{here}, its gauges")
        gauges = SimGauges(machine, measured, lambda: self.is_busy, lambda: self.is_busy and self.trainer.has_spilled)
        edges = Edges(server=self.link, transfer=transfer, trainer=self.trainer, host=host, rng=own, gauges=gauges.take)
        facts = {"slots": machine.slots, "gpu": machine.gpu, "gpu_memory_gb": machine.gpu_memory_gb}
        join = Join(machine=machine.id, name=given.name, node=given.name, place=given.place, **facts)
        self.agent = Agent(edges, join, patient=True, notice=lambda: self.notice)
        self.wake()

    @property
    def is_busy(self) -> bool:
        return self.agent.is_busy

    def wake(self) -> None:
        self._step_at(self._world.now_ms + 1)

    def pause(self, seconds: float) -> None:
        self._paused_until_ms = self._world.now_ms + round(seconds * 1000)
        self._due_ms = None
        self._step_at(self._paused_until_ms)

    def warn(self, seconds: float) -> None:
        """Let the provider give notice, and take the machine back after `seconds`."""
        self.notice = self.notice or "the provider will take this machine back"
        self.wake()
        self._world.after(seconds, "taken back", lambda: self._take_back(self))

    def skew(self, seconds: float) -> None:
        """Make the node's clock jump, as after a virtual machine was frozen."""
        self._skew_s += seconds
        self.wake()

    def die(self) -> None:
        self.alive = False

    def _now_s(self) -> float:
        return self._world.now_s + self._skew_s

    def _step_at(self, ms: int) -> None:
        """Schedule the agent's next step; of all scheduled steps only the earliest counts."""
        ms = max(ms, self._paused_until_ms)
        if self._due_ms is not None and self._due_ms <= ms:
            return
        self._due_ms = ms
        self._world.at(ms, self.name, lambda: self._step(ms))

    def _step(self, due_ms: int) -> None:
        if not self.alive or self._due_ms != due_ms:
            return
        self._due_ms = None
        # An event during a request of this agent may be the agent's next step: an agent has one thread, so that step waits.
        if self._stepping or self._paused_until_ms > self._world.now_ms:
            self._step_at(self._world.now_ms + 1)
            return
        self._stepping = True
        try:
            self.agent.step(self._now_s())
        finally:
            self._stepping = False
        self.agent.news.clear()
        if self.agent.stopped:
            self._exited(self)
        else:
            wait_s = max(STEP_S, self.agent.due_s - self._now_s())
            self._step_at(self._world.now_ms + round(wait_s * 1000) + 1)
