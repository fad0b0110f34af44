"""How many samples go through a network at a time: found by trying, on all ranks the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from gangline.train.checkpoints import shards
from gangline.train.run.ranks import Ranks
from gangline.train.scratch.average import Average
from gangline.train.scratch.intake import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Forward and backward passes without a step: the weights and their gradients are left as they are."""

    network: Callable[[Samples], torch.Tensor]
    weights: dict[str, Any]
    optimizer: torch.optim.Optimizer
    average: Average | None
    ranks: Ranks
    in_dtype: Callable[[], AbstractContextManager[Any]]

    def largest(self, samples: Samples, resolution: int) -> int:
        """Return how many fit. Raises `MemoryError` where not even one does."""
        reserved = self._reserved()
        most = largest(len(samples), lambda count: self.ranks.all(self._fits(samples, count)))
        del reserved
        torch.cuda.empty_cache()
        if most == 0:
            raise too_large(1, resolution)
        return most

    def _fits(self, samples: Samples, count: int) -> bool:
        try:
            self.run(samples, count)
        except torch.OutOfMemoryError:
            return False
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        return True

    def run(self, samples: Samples, count: int) -> None:
        with self.in_dtype():
            loss = self.network(next(samples.pieces(count))).sum()
        loss.backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _reserved(self) -> list[torch.Tensor]:
        """Room for what only comes with the first steps: two moments, and the average."""
        copies = (0 if self.optimizer.state else 2) + (self.average is not None and not self.average.tensors)
        return [torch.empty_like(shards.local(weight)) for weight in self.weights.values() for _ in range(copies)]


def too_large(samples: int, resolution: int) -> MemoryError:
    fewer = "set microbatch lower, " if samples > 1 else ""
    return MemoryError(
        f"{samples} samples of {resolution} pixels at a time do not fit into this GPU's memory: {fewer}set gradient_checkpointing, or "
        "parallel to fsdp over more GPUs, or ask for more memory (needs.gpu_memory_gb)"
    )


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest power of two, or `most` itself, that fits; 0 where not even 1 does."""
    found, count = 0, 1
    while fits(count):
        found = count
        if count == most:
            break
        count = min(2 * count, most)
    return found
