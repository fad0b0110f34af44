"""Compute a step's gradient as one CUDA graph, captured once for each shape of its batches and then replayed.

A U-Net is thousands of small kernels, and the host needs longer to launch them one by one than a fast GPU to compute them. A graph is
launched at once. It is used only if its gradient equals that of the same kernels, launched one by one.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gangline.train.model.replay import run_on
from gangline.train.run.sample_tensors import StepSamples

SHAPES_MAX = 32
"""Limit of the graphs that are kept: each takes memory of the host and of the driver."""
NEAR = 0.05
"""How far the gradient of a graph may be from that of kernels that sum in any order, as a share of its norm."""

Passes = Callable[[list[StepSamples]], torch.Tensor]
GraphShapes = tuple[tuple[torch.Size, ...], ...]


class Graphs:
    """CUDA graphs of the passes, one for each shape of batches. `passes` adds the gradient of batches to the buffers `gradients`, 0 before,
    and returns their loss, () on the device.

    `passes` must not synchronise with the host, and whatever else it reads may change only in place. If `exact`, a graph with other bits is
    not used.
    """

    def __init__(self, gradients: Sequence[torch.Tensor], passes: Passes, *, exact: bool) -> None:
        self._gradients = list(gradients)
        self._passes = passes
        self._exact = exact
        self._stream = torch.cuda.Stream()
        self._because = ""
        self._forget()

    @property
    def replayed(self) -> int:
        """The number of shapes that have a graph."""
        return len(self._graphs)

    def gradient(self, batches: list[StepSamples], seed: Callable[[], None]) -> torch.Tensor:
        """Compute the gradient into the buffers and return the loss, (). `seed` seeds the layers' randomness. Raise the errors that
        `is_out_of_memory` recognises."""
        shapes = tuple(tuple(tensor.shape for tensor in batch.tensors()) for batch in batches)
        seed()
        if shapes in self._graphs:
            return self._graphs[shapes].replay(batches)
        loss = run_on(self._stream, lambda: self._passes(batches))
        self._seen[shapes] += 1
        # Not at the first batch of a shape: a capture takes seconds and memory, which a shape that never returns would not repay.
        if self._seen[shapes] == 2 and not self._because and len(self._graphs) < SHAPES_MAX:
            self._capture(shapes, batches, seed, loss)
        return loss

    def forget(self) -> None:
        """Free the GPU memory that graphs hold; the next steps capture them again."""
        self._forget()
        torch.cuda.empty_cache()

    def stop(self, because: str) -> None:
        """Launch everything kernel by kernel from now on, and write the reason to the job's log."""
        self._because = because
        print(f"steps are launched kernel by kernel, not as a CUDA graph: {because}", file=sys.stderr)  # noqa: T201
        self.forget()

    def _forget(self) -> None:
        self._graphs: dict[GraphShapes, _Graph] = {}
        self._seen: Counter[GraphShapes] = Counter()
        self._pool = torch.cuda.graph_pool_handle()

    def _capture(
        self, shapes: GraphShapes, batches: list[StepSamples], seed: Callable[[], None], loss: torch.Tensor
    ) -> None:
        """Capture a graph and check it against the gradient in the buffers, which they have again afterwards."""
        here, gradients = torch.cuda.current_stream(), [gradient.clone() for gradient in self._gradients]
        torch._foreach_zero_(self._gradients)
        torch.cuda.empty_cache()  # graphs cannot use the allocator's cached memory
        graph = None
        try:
            graph = _Graph(self._passes, batches, self._stream, self._pool)
            seed()
            found = [graph.replay(batches), *self._gradients]
            same = (_same_bits if self._exact else _near)(found, [loss, *gradients])
            because = "" if same else "its gradient differs"
        except RuntimeError as error:
            torch.cuda.set_stream(here)  # a capture that fails to end leaves its stream as the current one
            because = str(error).strip().splitlines()[0]
        torch._foreach_copy_(self._gradients, gradients)
        if graph is None or because:
            self.stop(because)
        else:
            self._graphs[shapes] = graph


class _Graph:
    """The graph of one shape. Its inputs and its loss have fixed addresses."""

    def __init__(self, passes: Passes, batches: list[StepSamples], stream: torch.cuda.Stream, pool: Any) -> None:
        self._batches = [batch.each(torch.clone) for batch in batches]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._loss = passes(self._batches)

    def replay(self, batches: list[StepSamples]) -> torch.Tensor:
        for own, batch in zip(self._batches, batches, strict=True):
            for tensor, new in zip(own.tensors(), batch.tensors(), strict=True):
                tensor.copy_(new)
        self._graph.replay()
        return self._loss.clone()


def _same_bits(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether float32 tensors have the same bits; NaN equals itself here."""
    pairs = zip(some, others, strict=True)
    return all(torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in pairs)


def _near(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether gradients are as near as sums in another order, or overflowed in both."""
    pairs = list(zip(some, others, strict=True))
    apart = torch.stack([(one - other).norm() for one, other in pairs]).norm()
    size = torch.stack([other.norm() for _, other in pairs]).norm()
    return not bool(size.isfinite()) or bool(apart <= NEAR * size)
