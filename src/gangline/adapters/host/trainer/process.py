"""The trainers of a node as processes; one stands by that has loaded the libraries."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gangline.adapters.host.environments import Environments
from gangline.adapters.host.trainer.enclosures import Enclosure
from gangline.adapters.host.trainer.in_memory import MemoryOfRuns
from gangline.adapters.host.trainer.installing import Installation
from gangline.adapters.host.trainer.isolation import CACHE_OF_DATA, Isolation
from gangline.adapters.host.trainer.run import LOG, ProcessRun
from gangline.adapters.host.trainer.start import start_process, start_program
from gangline.core.runs.proof import PROBE, Proof
from gangline.core.specs.kinds import KINDS
from gangline.ports.trainer import NO_ACCESS, RunAccess
from gangline.posix import CORES, cores

MODULES = {name: kind.program for name, kind in KINDS.items() if kind.ours}
STANDBY = "gangline.train.run.standby"
OF_DATA = "GANGLINE_DATA_"
"""The prefix of variables in which a node's operator gives access to data sets in buckets. They reach the runs that read such, and no
other secret of the node reaches any."""
PROOF_S_MAX = 600.0
"""The longest time that loading the libraries may take: usually seconds, from a cold disk a minute or two."""


class ProcessTrainer:
    """Starts each run in a standby process, which has loaded the libraries already: loading takes longer than downloading a checkpoint. The
    standby holds a few hundred megabytes of memory; it is started on demand if there is none. The first one proves what this machine can
    do; `card` is the driver's name of its first GPU. `cards` are the GPUs of the node's slots by their names in CUDA_VISIBLE_DEVICES; none
    on a machine without; `environments` are where commands' packages are installed; `memory` has a folder for each run."""

    def __init__(
        self,
        *,
        card: str = "",
        cards: Sequence[str] = (),
        slots: int = 1,
        isolation: Isolation | None = None,
        environments: Environments | None = None,
        memory: MemoryOfRuns | None = None,
    ) -> None:
        self._card = card
        self._cards = cards
        self._slots = slots
        self._isolation = isolation or Isolation()
        self._environments = environments
        self._memory = memory
        self._standby: _Standby | None = None
        self._proving: _Proving | None = None

    def prove(self) -> Proof | None:
        if self._proving is None:
            reading, writing = os.pipe()
            self._standby = self._stand_by("--report", str(writing), "--card", self._card, pass_fds=(writing,))
            os.close(writing)
            self._proving = _Proving(reading, time.monotonic() + PROOF_S_MAX)
        proof = self._proving.look()
        if proof and PROBE in proof.problems and self._standby:
            self._standby.kill()
        return proof

    def prepare(self) -> None:
        if self._standby and self._standby.process.poll() is not None:
            self._standby.kill()
            self._standby = None
        self._standby = self._standby or self._stand_by()

    def _stand_by(self, *options: str, buckets: bool = False, pass_fds: Sequence[int] = ()) -> "_Standby":
        enclosure = self._isolation.make(network=buckets, buckets=buckets)
        # -P: no module in the working directory may shadow one of ours
        command = [sys.executable, "-P", "-m", STANDBY, *MODULES.values(), *options]
        process = start_process(
            command,
            enclosure,
            below="/",
            home="/nonexistent",
            stdin=subprocess.PIPE,
            log=subprocess.DEVNULL,
            pass_fds=pass_fds,
        )
        return _Standby(process, enclosure)

    def install(self, directory: Path) -> Installation:
        assert self._environments, "a node has a folder for them"
        return Installation(self._environments, self._isolation, directory)

    def start(
        self, kind: str, directory: Path, slots: tuple[int, ...] = (0,), access: RunAccess = NO_ACCESS
    ) -> ProcessRun:
        if kind in KINDS and not KINDS[kind].ours:
            program = [sys.executable, "-P", "-m", KINDS[kind].program, "."]
            enclosure = self._isolation.make(network=access.network, shows=access.environment)
            told = {"secrets": dict(access.secrets), "environment": str(access.environment or "")}
            return start_program(
                program, directory, enclosure=enclosure, memory=self._memory, more=self._of_slots(slots), told=told
            )
        standby = self._take_standby(access.buckets)
        (directory / LOG).touch()
        place = standby.enclosure.take(directory)
        memory = self._memory.enter(directory, place, standby.enclosure) if self._memory else None
        order = {
            "module": MODULES[kind],
            "directory": str(place),
            "log": str(place / LOG),
            "environment": self._of_slots(slots)
            | (self._keys_of_data() if access.buckets else {})
            | (memory.environment if memory else {}),
        }
        assert standby.process.stdin
        with suppress(BrokenPipeError), standby.process.stdin as told:
            told.write(json.dumps(order).encode() + b"\n")
        return ProcessRun(standby.process, place, standby.enclosure, memory.folder if memory else None)

    def _take_standby(self, buckets: bool) -> "_Standby":
        """Return the process that stands by, or a new one if the run reads buckets and that one has no network."""
        if buckets and self._isolation.level == "sandbox":
            return self._stand_by(buckets=True)
        self.prepare()
        taken, self._standby = self._standby, None
        assert taken
        return taken

    def _of_slots(self, slots: tuple[int, ...]) -> dict[str, str]:
        """Return what a trainer's environment says of its slots. Their number decides the threads that read pictures, and no result."""
        cards = {"CUDA_VISIBLE_DEVICES": ",".join(self._cards[slot] for slot in slots)} if self._cards else {}
        share = {CORES: str(max(1, cores() * len(slots) // self._slots))} if self._slots > 1 else {}
        return cards | share

    def _keys_of_data(self) -> dict[str, str]:
        """Return what a run needs that reads buckets; a user of its own cannot reach the folder that keeps what was read."""
        given = {name: value for name, value in os.environ.items() if name.startswith(OF_DATA)}
        return {name: given[name] for name in given if self._isolation.level != "uid" or name != CACHE_OF_DATA}


class _Standby(NamedTuple):
    process: "subprocess.Popen[bytes]"
    enclosure: Enclosure

    def kill(self) -> None:
        self.enclosure.kill(self.process)


class _Proving:
    """The report of the standby process, read without blocking until the process has closed its end."""

    def __init__(self, reading: int, until_s: float) -> None:
        os.set_blocking(reading, False)
        self._reading = reading
        self._until_s = until_s
        self._said = b""
        self._proof: Proof | None = None

    def look(self) -> Proof | None:
        if self._proof is None:
            self._proof = self._read()
            if self._proof:
                os.close(self._reading)
        return self._proof

    def _read(self) -> Proof | None:
        with suppress(BlockingIOError):
            while part := os.read(self._reading, 65_536):
                self._said += part
            return _proof_of(self._said)
        if time.monotonic() < self._until_s:
            return None
        return Proof(kinds=(), problems={PROBE: f"the libraries did not load in {PROOF_S_MAX / 60:.0f} min"})


def _proof_of(said: bytes) -> Proof:
    """Parse the complete report; it is cut off if the process died."""
    try:
        told = json.loads(said)
    except ValueError:
        return Proof(kinds=(), problems={PROBE: "the process that loads the libraries died"})
    return Proof(kinds=tuple(told["kinds"]), problems=told["problems"], measured=told["measured"])
