"""Find how many samples go through a network at a time: by trying on a single rank, by a guess from two passes on several."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import torch

from gangline.core.runs.microbatch import first_guess, largest
from gangline.train.checkpoints import shards
from gangline.train.learning.average import Average
from gangline.train.learning.buffers import Buffers
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.sample_tensors import StepSamples


class NoRoom(MemoryError):
    """Raised when memory ran out on one of several ranks: all of them must start again with a smaller microbatch in this phase."""

    def __init__(self, phase: int, samples: int, resolution: int) -> None:
        super().__init__(f"{samples} samples of {resolution} pixels at a time do not fit into this GPU's memory")
        self.phase = phase
        self.samples = samples


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchTrial:
    """Forward and backward passes without a step, which leave the weights as they are and no gradients. `passes` runs a step's passes over
    some of its pieces; `needs_less` names the settings by which they need less memory."""

    passes: Callable[[list[StepSamples]], object]
    needs_less: str
    buffers: Buffers
    optimizer: torch.optim.Optimizer
    average: Average | None

    def largest(self, samples: StepSamples, resolution: int) -> int:
        """Return how many samples fit; only for a single rank. Raise `MemoryError` if not even one does."""
        # Tensors that only come with later steps must fit as well, so their memory is taken during the search.
        reserved = [torch.empty_like(weight) for weight, copies in self._to_come() for _ in range(copies)]
        most = largest(len(samples), lambda count: self._fits(samples, count))
        del reserved
        torch.cuda.empty_cache()
        if most == 0:
            raise too_large(1, resolution, self.needs_less)
        return most

    def guess(self, peaks: tuple[int, int], most: int) -> int:
        """Return how many samples should fit on this card, given the peaks of allocated bytes with one and with two samples."""
        free, _ = torch.cuda.mem_get_info()
        return first_guess(
            peaks,
            room=free + torch.cuda.memory_reserved(),
            to_come=sum(weight.nbytes * copies for weight, copies in self._to_come()),
            most=most,
        )

    def peak(self, samples: StepSamples, count: int) -> int:
        """Return the peak of allocated bytes on this card during passes of `count` samples."""
        torch.cuda.reset_peak_memory_stats()
        self.run(samples, count)
        return torch.cuda.max_memory_allocated()

    def run(self, samples: StepSamples, count: int, *, pieces: int = 2) -> None:
        """Run passes over `pieces` pieces. As in a step, the second one runs while the first one's gradient is kept."""
        self.passes(list(islice(samples.pieces(count), pieces)))
        self.buffers.clear_gradients()

    def _fits(self, samples: StepSamples, count: int) -> bool:
        fits = True
        try:
            self.run(samples, count)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        self.buffers.clear_gradients()  # after `except`, whose traceback keeps the passes' tensors alive
        torch.cuda.empty_cache()
        return fits

    def _to_come(self) -> list[tuple[torch.Tensor, int]]:
        """Return this rank's part of each weight with the number of such tensors that later steps allocate: two moments, and the
        average."""
        copies = (0 if self.optimizer.state else 2) + (self.average is not None and not self.average.tensors)
        return [(shards.local(weight), copies) for weight in self.buffers.wholes.values()]


def too_large(samples: int, resolution: int, needs_less: str) -> MemoryError:
    """Return the error for samples that do not fit; `needs_less` names the settings by which they need less memory."""
    do, fewer = ("do", "set microbatch lower, ") if samples > 1 else ("does", "")
    counted = f"{samples} samples" if samples > 1 else "one sample"
    return MemoryError(
        f"{counted} of {resolution} pixels at a time {do} not fit into this GPU's memory: {fewer}set {needs_less}, or ask for more memory "
        "(needs.gpu_memory_gb)"
    )


def must_stay(phase: int, samples: int) -> MemoryError:
    """Return the error for a run whose bits must stay the same."""
    return MemoryError(
        f"{samples} samples at a time, as in its steps so far, no longer fit into this GPU's memory, and fewer would change the bits, "
        f"which exact = required forbids: set phases.{phase}.microbatch to fewer, or run it on a GPU with more memory"
    )
