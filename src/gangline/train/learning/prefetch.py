"""The data loader of every run: it has each step's batches ready on the device before the step needs them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from gangline.train.run.sample_tensors import StepSamples

AnyBatch = TypeVar("AnyBatch", bound=StepSamples)


@dataclass(frozen=True, slots=True)
class OnDevice(Generic[AnyBatch]):
    """The batches of a step; on a GPU they may be used once the event `copied` has happened."""

    batches: list[AnyBatch]
    copied: torch.Event | None = None


class Prefetcher(Generic[AnyBatch]):
    """The batches of steps up to `last`. A thread makes the next step's with `make`, a function of the step's number alone, and copies them
    to the device while it computes the current ones."""

    def __init__(self, make: Callable[[int], Sequence[AnyBatch]], last: int, device: torch.device) -> None:
        self._make = make
        self._last = last
        self._device = device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[OnDevice[AnyBatch]]] | None = None
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def step(self, step: int) -> list[AnyBatch]:
        """Return the batches of `step`, one for each size of its samples, and start to make those of the next step."""
        soon = self._next[1] if self._next and self._next[0] == step else self._thread.submit(self._ready, step)
        self._next = (step + 1, self._thread.submit(self._ready, step + 1)) if step < self._last else None
        made = soon.result()
        if made.copied:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(made.copied)
            for batch in made.batches:
                # Without this the allocator could reuse memory of the copy stream while the training stream still reads it.
                batch.each(lambda tensor: tensor.record_stream(here) or tensor)
        return made.batches

    def close(self) -> None:
        """Wait for the batches that are being made; no others are."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _ready(self, step: int) -> OnDevice[AnyBatch]:
        batches = list(self._make(step))
        if not self._copies:
            return OnDevice(batches)
        with torch.cuda.stream(self._copies):
            moved = [
                batch.each(lambda tensor: tensor.pin_memory().to(self._device, non_blocking=True)) for batch in batches
            ]
        return OnDevice(moved, self._copies.record_event())
