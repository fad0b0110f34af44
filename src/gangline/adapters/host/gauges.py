"""Measure the gauges of this machine: its processor, its memory, the disk of a folder, its network, and its GPUs."""

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread

from gangline.adapters.cards import Card, may_spill, measure_cards
from gangline.adapters.host.host import memory_bytes
from gangline.core.fleet.gauges import GAUGES_EVERY_S, GPUS_MAX, Gauges
from gangline.posix import CGROUPS, OWN_CGROUPS, cores, memory_cgroups, memory_left

BUSY = (1, 2, 3, 6, 7, 8)
"""The fields of a processor in /proc/stat in which it works (proc_stat(5)): user, nice, system, irq, softirq, steal."""
INSIDE = ("lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "tun", "tap", "wg")
"""How network devices begin that carry within the machine, or a second time what another one carries."""
log = logging.getLogger("gangline.gauges")


class MeasuredMachine:
    """Measures this machine. The load of its processor and of its network is that since the measurement before, or since this object was
    made."""

    def __init__(self, folder: Path, cards: Sequence[Card]) -> None:
        self._folder = folder
        self._cards = cards[:GPUS_MAX]
        self._cgroups = memory_cgroups()
        self._before = time.monotonic(), busy_s()
        self._carried = time.monotonic(), carried_bytes()

    def measure(self) -> Gauges:
        """Return the gauges of now. It may take seconds, as it asks the driver of the GPUs. Raise `OSError` if the folder is gone."""
        memory, disk = memory_bytes(), shutil.disk_usage(self._folder)
        left = min([memory, *memory_left(self._cgroups)])
        received, sent = self._network()
        return Gauges(
            cpu_load=self._load(),
            memory_used_bytes=memory - max(0, left),
            memory_bytes=memory,
            disk_free_bytes=disk.free,
            disk_bytes=disk.total,
            received_bytes_per_s=received,
            sent_bytes_per_s=sent,
            gpu_memory_spills=may_spill() if self._cards else None,
            gpus=measure_cards(self._cards),
        )

    def _load(self) -> float | None:
        (then_s, busy_then_s), now_s, busy_now_s = self._before, time.monotonic(), busy_s()
        self._before = now_s, busy_now_s
        if busy_then_s is None or busy_now_s is None or now_s <= then_s:
            return None
        share = (busy_now_s - busy_then_s) / ((now_s - then_s) * cores())
        return round(min(max(share, 0.0), 1.0), 3)

    def _network(self) -> tuple[float | None, float | None]:
        (then_s, before), now_s, now = self._carried, time.monotonic(), carried_bytes()
        self._carried = now_s, now
        if before is None or now is None or now_s <= then_s:
            return None, None
        received, sent = (
            max(0, after - earlier) / (now_s - then_s) for earlier, after in zip(before, now, strict=True)
        )
        return round(received), round(sent)


def carried_bytes(devices: Path = Path("/proc/net/dev")) -> tuple[int, int] | None:
    """Return how many bytes the network of this machine, or of its container, has received and sent; None if that cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        rows = (line.partition(":") for line in devices.read_text().splitlines()[2:])
        counts = [counts.split() for name, _, counts in rows if not name.strip().startswith(INSIDE)]
        return sum(int(row[0]) for row in counts), sum(int(row[8]) for row in counts)
    return None


def busy_s(own: Path = OWN_CGROUPS, root: Path = CGROUPS, stat: Path = Path("/proc/stat")) -> float | None:
    """Return for how many seconds processors have worked: for the cgroup around this process that has a quota of them, else those that
    this process may use, for whomever. None if that cannot be read."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        limited = _with_quota(own, root)
        if limited is not None:
            lines = (limited / "cpu.stat").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [line.split() for line in stat.read_text().splitlines() if line.partition(" ")[0] in mine]
        return sum(int(row[field]) for row in rows for field in BUSY) / os.sysconf("SC_CLK_TCK") if rows else None
    return None


def _with_quota(own: Path, root: Path) -> Path | None:
    """Return the folder of the innermost cgroup around this process that has a quota of processors (cgroups(7), version 2)."""
    path = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    inner = PurePosixPath(path.lstrip("/"))
    for folder in (inner, *inner.parents):  # in a container its cgroup is the root, so this path may not exist
        with suppress(OSError):
            if not (root / folder / "cpu.max").read_text().startswith("max"):
                return root / folder
    return None


class NodeGauges:
    """What an agent sends of its machine. `measure` runs in a thread, every `GAUGES_EVERY_S`: an agent does not wait for a driver."""

    def __init__(self, measure: Callable[[], Gauges]) -> None:
        self._measure = measure
        self._measured = SimpleQueue[Gauges | None]()
        self._measuring = False
        self._next_s = -math.inf

    def take(self, now_s: float) -> Gauges | None:
        """Return what was measured since the last call, None if nothing was; begin to measure again if it is time."""
        found = None
        with suppress(Empty):
            found = self._measured.get_nowait()
            self._measuring = False
        if not self._measuring and now_s >= self._next_s:
            self._measuring, self._next_s = True, now_s + GAUGES_EVERY_S
            Thread(target=self._run, name="gauges", daemon=True).start()
        return found

    def _run(self) -> None:
        found = None
        try:
            found = self._measure()
        except (OSError, ValueError) as error:  # the next time it may go well, and no job depends on it
            log.debug("no gauges were measured: %s", error)
        finally:
            self._measured.put(found)
