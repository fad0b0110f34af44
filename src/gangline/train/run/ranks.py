"""The processes that share one run: which of them this one is, and how they agree.

torchrun's environment variables say it. A single process never starts torch.distributed. Ranks exchange only numbers, never objects, which
would be pickled.
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
from gangline.train.run.memory import is_out_of_memory


class PeerGone(RuntimeError):
    """Raised when another rank of this run has ended, so this one must end too."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process is `rank` of `count`; `local` is its index on this machine."""

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def device(self) -> torch.device:
        """Return this rank's device. Raise `BadInput` if there are fewer GPUs than ranks."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        if self.local >= torch.cuda.device_count():
            raise BadInput(
                f"this run needs {self.count} GPUs (needs.slots), but this machine has {torch.cuda.device_count()}",
                hint="set needs.slots to fewer, or run it on a machine with that many",
            )
        torch.cuda.set_device(self.local)
        return torch.device("cuda", self.local)

    def mesh(self, device: torch.device) -> DeviceMesh:
        return init_device_mesh(device.type, (self.count,))

    def most(self, *numbers: int) -> list[int]:
        """Return the maximum of each number over all ranks. Blocks until every rank has called it."""
        told = torch.tensor(numbers, dtype=torch.int64)
        if self.count > 1:
            dist.all_reduce(told, dist.ReduceOp.MAX)
        return told.tolist()

    def least(self, number: int) -> int:
        """Return the minimum over all ranks."""
        return -self.most(-number)[0]

    def meet(self) -> None:
        """Wait until every rank has called this."""
        self.most(0)

    def all(self, holds: bool) -> bool:
        """Return whether it holds on every rank."""
        return self.most(not holds) == [0]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks; `tensor` itself is not changed."""
        if self.count == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total)
        return total


def told() -> Ranks:
    """Return this process's ranks from the environment: one of one by default."""
    return Ranks(*(int(os.environ.get(name, default)) for name, default in _ENVIRONMENT.items()))


def exit_process(code: int) -> NoReturn:
    """End this process: one of several at once. What it has made is on the disk, and destructors of a process group would wait for its
    peers, and they for it; or its threads abort the process, though it has done its work.
    """
    if told().count > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _meet_peers(ranks: Ranks) -> None:
    """Start the process group over the store at MASTER_ADDR and MASTER_PORT.

    torchrun restarts ranks over the same store, which still holds the addresses of the previous ones, so each start uses a prefix.
    """
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = next(rendezvous("env://"))[0]
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend, store=dist.PrefixStore(f"start {start}", store), rank=ranks.rank, world_size=ranks.count
    )


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Yield this process's ranks while they form a process group. Raise `PeerGone` if another one ended."""
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
    if is_out_of_memory(error):  # even if the message is NCCL's
        return False
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in ("gloo", "nccl"))
