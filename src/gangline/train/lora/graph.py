"""A step's gradient as one CUDA graph: captured once for each shape of its batches, then replayed.

A U-Net is thousands of small kernels, and the host takes longer to launch them one by one than a fast card to compute them. A graph is
launched at once. It is replayed only where its gradient had the bits that the same kernels, launched one by one, had given.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gangline.train.lora.feed import Batch

Key = tuple[tuple[torch.Size, ...], ...]


class Graphs:
    """`passes` adds the gradient of batches to `weights` and returns their loss, a number on the device, without waiting for it; of what
    it reads besides `weights` and batches nothing may change but in place. Where `exact`, a graph of other bits is not used."""

    def __init__(
        self,
        weights: Sequence[torch.nn.Parameter],
        passes: Callable[[list[Batch]], torch.Tensor],
        *,
        exact: bool,
    ) -> None:
        self._weights = list(weights)
        self._passes = passes
        self._exact = exact
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Key, _Graph | None] = {}

    @property
    def replayed(self) -> int:
        """How many shapes have a graph that is used."""
        return sum(graph is not None for graph in self._graphs.values())

    def gradient(self, batches: list[Batch], seed: Callable[[], None]) -> torch.Tensor:
        """The loss; the gradient is left at the weights, which have none before. `seed` fixes what the layers draw. Raises
        `torch.OutOfMemoryError`."""
        key = tuple(tuple(tensor.shape for tensor in batch.tensors()) for batch in batches)
        if key not in self._graphs:
            return self._capture(key, batches, seed)
        graph = self._graphs[key]
        seed()
        return self._passes(batches) if graph is None else graph.replay(batches)

    def _capture(self, key: Key, batches: list[Batch], seed: Callable[[], None]) -> torch.Tensor:
        """Launched one by one, which is this step's gradient; then captured, and both compared."""
        seed()
        here = torch.cuda.current_stream()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            loss = self._passes(batches)
        here.wait_stream(self._stream)
        gradients = [weight.grad for weight in self._weights]
        self._graphs[key] = self._verified(batches, seed, loss, gradients)
        self._leave(gradients)
        return loss

    def _verified(
        self,
        batches: list[Batch],
        seed: Callable[[], None],
        loss: torch.Tensor,
        gradients: list[torch.Tensor | None],
    ) -> "_Graph | None":
        self._leave([None] * len(self._weights))
        torch.cuda.empty_cache()  # a graph's memory is its own
        try:
            graph = _Graph(self._weights, self._passes, batches, self._stream, self._pool)
        except RuntimeError as error:
            _say(str(error).strip().splitlines()[0])
            return None
        seed()
        found = graph.replay(batches)
        own = [weight.grad for weight in self._weights]
        if self._exact and not all(map(_same_bits, [found, *own], [loss, *gradients])):
            _say("its bits are others")
            return None
        return graph

    def _leave(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient


class _Graph:
    """One shape's: its inputs, its loss and its gradients stay where they are."""

    def __init__(
        self,
        weights: list[torch.nn.Parameter],
        passes: Callable[[list[Batch]], torch.Tensor],
        batches: list[Batch],
        stream: torch.cuda.Stream,
        pool: Any,
    ) -> None:
        self._weights = weights
        self._batches = [batch.each(torch.clone) for batch in batches]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            self._loss = passes(self._batches)
        self._gradients = [weight.grad for weight in weights]

    def replay(self, batches: list[Batch]) -> torch.Tensor:
        for kept, batch in zip(self._batches, batches, strict=True):
            for own, tensor in zip(kept.tensors(), batch.tensors(), strict=True):
                own.copy_(tensor)
        self._graph.replay()
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            weight.grad = gradient
        return self._loss.clone()


def _same_bits(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Of float32; what is not a number is equal to itself here."""
    if one is None or other is None:
        return one is other
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def _say(because: str) -> None:
    print(f"the steps are launched kernel by kernel, not as a CUDA graph: {because}", file=sys.stderr)  # noqa: T201 - the job's log
