"""Tensors that all have one row per sample, so that they are split and moved together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch


@dataclass(frozen=True, slots=True)
class SampleTensors:
    """A dataclass whose fields are tensors, tuples of tensors, or None; the first field is always a tensor."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def pieces(self, most: int) -> Iterator[Self]:
        """Yield the samples in order, at most `most` at a time."""
        for start in range(0, len(self), most):
            yield self.each(lambda tensor, start=start: tensor[start : start + most])

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors in the order of the fields."""
        found: list[torch.Tensor] = []
        self.each(lambda tensor: found.append(tensor) or tensor)
        return found

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        """Return a copy in which every tensor is replaced by `change` of it."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                changed[field.name] = tuple(change(tensor) for tensor in value)
            elif value is not None:
                changed[field.name] = change(value)
        return replace(self, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples(SampleTensors):
    """Samples of a step; `share` (B,) is how much each counts in the step's loss."""

    share: torch.Tensor
