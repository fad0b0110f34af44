"""What a learner trains: a network that turns samples into their losses, and says how it can be computed."""

from typing import Any, ClassVar

import torch

from gangline.train.learning.buffers import Buffers
from gangline.train.run.sample_tensors import StepSamples

Samples = list[StepSamples]
"""The samples of a step, those of one size together."""


class Network(torch.nn.Module):
    """The modules in training, `parts`, with all that their losses need. Weights without `requires_grad` stay as they are.

    `decided_by` names what decides the bits besides the spec and the machine. `measures` is the metric of held-out samples.
    """

    measures: ClassVar[str] = "held_out_loss"
    higher_is_better: ClassVar[bool] = False
    needs_less: ClassVar[str] = "gradient_checkpointing, or parallel to fsdp over more GPUs"
    """The settings by which it needs less memory."""
    fits_by_trial: ClassVar[bool] = True
    """Whether the microbatch is found by trying how many samples fit; else it begins with all, and memory that runs out halves it."""

    def __init__(self, parts: dict[str, Any], decided_by: dict[str, str] | None = None) -> None:
        super().__init__()
        self.parts: Any = torch.nn.ModuleDict(parts)
        self.decided_by = decided_by or {}

    @property
    def flat(self) -> bool:
        """Whether its weights in training become views of buffers."""
        return False

    @property
    def casts(self) -> bool:
        """Whether autocast brings its weights into the dtype in which it computes, because they do not have it."""
        return True

    def use(self, buffers: Buffers) -> None:
        """Take the buffers that its weights are views of, if it is `flat`."""

    def forward(self, samples: Any, *, measured: bool = False) -> torch.Tensor:
        """Return the loss of each sample, (B,), or if `measured` the error that is reported for held-out ones."""
        raise NotImplementedError

    def checkpoint_gradients(self) -> None:
        """Recompute activations in the backward pass instead of keeping them (Chen et al. 2016)."""
        raise NotImplementedError

    def stream_of_layers(self, rank: int) -> str:
        """Return the name of the random stream that layers such as dropout draw from."""
        return f"layers of rank {rank}"

    @property
    def can_be_replayed(self) -> bool:
        """Whether a CUDA graph of its passes gives the same bits."""
        return False

    @staticmethod
    def score(values: torch.Tensor) -> torch.Tensor:
        """Return the value whose mean is reported for held-out samples, (B,), of what was `measured`."""
        return values
