"""Simulate what a node measures of itself."""

from collections.abc import Callable
from random import Random

from gangline.core.fleet.gauges import GAUGES_EVERY_S, Gauges, GpuGauges
from gangline.sim.scenario import MachineModel

GB, GIB = 10**9, 2**30
DISK_BYTES, MEMORY_BYTES = 500 * GB, 64 * GB


class SimGauges:
    """The gauges of a node, drawn by `rng`: its GPUs are busy, full and hot while it `is_busy`, and quite full if a job `has_spilled`."""

    def __init__(
        self, machine: MachineModel, rng: Random, is_busy: Callable[[], bool], has_spilled: Callable[[], bool]
    ) -> None:
        self._machine = machine
        self._rng = rng
        self._is_busy = is_busy
        self._has_spilled = has_spilled
        self._next_s = 0.0

    def take(self, now_s: float) -> Gauges | None:
        if now_s < self._next_s:
            return None
        self._next_s = now_s + GAUGES_EVERY_S
        busy = 0.9 if self._is_busy() else 0.0
        return Gauges(
            cpu_load=self._drawn(busy / 3),
            memory_used_bytes=round(MEMORY_BYTES * self._drawn(0.1 + busy / 4)),
            memory_bytes=MEMORY_BYTES,
            disk_free_bytes=round(DISK_BYTES * (1 - self._drawn(0.1 + busy / 5))),
            disk_bytes=DISK_BYTES,
            gpu_memory_spills=self._machine.spills,
            gpus=tuple(self._gpu(busy) for _ in range(self._machine.slots if self._machine.gpu else 0)),
        )

    def _gpu(self, busy: float) -> GpuGauges:
        memory_bytes = round(self._machine.gpu_memory_gb * GIB)
        throttles = busy > 0 and self._machine.trait == "throttles"
        return GpuGauges(
            utilisation=self._drawn(busy),
            memory_used_bytes=round(memory_bytes * (0.98 if self._has_spilled() else self._drawn(busy * 0.8))),
            memory_bytes=memory_bytes,
            temperature_c=91 if throttles else round(35 + 40 * self._drawn(busy)),
            limited_by=("heat",) if throttles else ("power cap",) if busy else (),
        )

    def _drawn(self, least: float) -> float:
        """Return a share that is up to 0.1 more than `least`."""
        return round(least + 0.1 * self._rng.random(), 3)
