"""The processes that share one run: who this one is, and what all of them agree on.

torchrun says it in the environment. Alone, torch.distributed is never started. Only numbers go between ranks, never objects,
which would be pickled.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED
from gangline.train.run.memory import is_out_of_memory


class PeerGone(RuntimeError):
    """Another rank of this run has ended, and with it this one."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """`rank` of `count`; `local` is its place on this machine."""

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def device(self) -> torch.device:
        """Raises `BadInput` where there are fewer GPUs than ranks."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        if self.local >= torch.cuda.device_count():
            raise BadInput(
                f"{self.count} GPUs are to share this run (needs.slots), and here are {torch.cuda.device_count()}",
                hint="--set needs.slots=…, or run it where there are as many",
            )
        torch.cuda.set_device(self.local)
        return torch.device("cuda", self.local)

    def mesh(self, device: torch.device) -> DeviceMesh:
        return init_device_mesh(device.type, (self.count,))

    def most(self, *numbers: int) -> list[int]:
        """Of each the greatest that a rank has. Blocks until all have said theirs."""
        told = torch.tensor(numbers, dtype=torch.int64)
        if self.count > 1:
            dist.all_reduce(told, dist.ReduceOp.MAX)
        return told.tolist()

    def least(self, number: int) -> int:
        """That a rank has."""
        return -self.most(-number)[0]

    def meet(self) -> None:
        """Nobody goes on before all have come here."""
        self.most(0)

    def all(self, holds: bool) -> bool:
        """Whether it holds on every rank."""
        return self.most(not holds) == [0]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Over all ranks; `tensor` itself is left alone."""
        if self.count == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total)
        return total


def told() -> Ranks:
    """Which one of how many the environment says that this process is."""
    return Ranks(*(int(os.environ.get(name, default)) for name, default in _ENVIRONMENT.items()))


def exit_process(code: int) -> NoReturn:
    """End this process. One of several that has failed ends at once: destructors of a process group would wait for its peers, and
    these for it."""
    if told().count > 1 and code not in (EXIT_DONE, EXIT_STOPPED):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _meet_peers(ranks: Ranks) -> None:
    """Over the store that MASTER_ADDR and MASTER_PORT name. torchrun starts ranks again over the same store, where those of before have
    left their addresses: each start has keys of its own."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = next(rendezvous("env://"))[0]
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend, store=dist.PrefixStore(f"start {start}", store), rank=ranks.rank, world_size=ranks.count
    )


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """This process among its peers, for as long as it lasts. Raises `PeerGone` where another one ended."""
    ranks = told()
    if ranks.count == 1:
        yield ranks
        return
    _meet_peers(ranks)
    try:
        yield ranks
    except RuntimeError as error:
        if _is_of_a_peer(error):
            raise PeerGone(f"another rank ended: {str(error).splitlines()[0]}") from error
        raise
    dist.destroy_process_group()


_ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def _is_of_a_peer(error: RuntimeError) -> bool:
    if is_out_of_memory(error):  # also where NCCL says so
        return False
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in ("gloo", "nccl"))
