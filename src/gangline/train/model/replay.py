"""Compute a function of tensors on a GPU as a CUDA graph: launched at once, not kernel by kernel (see gangline.train.lora.graph)."""

import sys
from collections.abc import Callable

import torch


class Replayed:
    """`compute` as a graph, which is captured in the second call and replayed from then on.

    All calls have inputs of the same shapes, and whatever else `compute` reads stays where it is and unchanged. `compute` must not
    synchronise with the host. A graph that does not return the bits of its kernels launched one by one is not used.
    """

    def __init__(self, compute: Callable[..., torch.Tensor]) -> None:
        self._compute = compute
        self._stream = torch.cuda.Stream()
        self._calls = 0
        self._graph: _Graph | None = None

    @property
    def replays(self) -> bool:
        return self._graph is not None

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the result. Raise what `compute` raises; a capture that fails only costs its time."""
        if self._graph:
            return self._graph.replay(inputs)
        result = run_on(self._stream, lambda: self._compute(*inputs))
        self._calls += 1
        if self._calls == 2:  # not in the first call, in which libraries set up what a capture cannot
            self._capture(inputs, result)
        return result

    def _capture(self, inputs: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        here = torch.cuda.current_stream()
        torch.cuda.empty_cache()  # a graph cannot use the allocator's cached memory
        try:
            graph = _Graph(self._compute, inputs, self._stream)
            if torch.equal(graph.replay(inputs), result):
                self._graph = graph
                return
            because = "its result differs"
        except RuntimeError as error:
            torch.cuda.set_stream(here)  # a capture that fails to end leaves its stream as the current one
            because = str(error).strip().splitlines()[0]
        print(f"a picture is drawn kernel by kernel, not as a CUDA graph: {because}", file=sys.stderr)  # noqa: T201


class _Graph:
    """Its inputs and its result have fixed addresses."""

    def __init__(
        self, compute: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], stream: torch.cuda.Stream
    ) -> None:
        self._inputs = [one.clone() for one in inputs]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._result = compute(*self._inputs)

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._result.clone()


def run_on(stream: torch.cuda.Stream, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Compute on the stream of a later capture, so that libraries have set up all they need there before."""
    here = torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        result = compute()
    here.wait_stream(stream)
    return result
