"""A base with a LoRA in training: it turns a batch into the loss of each sample."""

from typing import Any, ClassVar

import torch

from gangline.core.specs.lora import LoraSpec
from gangline.train.learning.buffers import Buffers
from gangline.train.learning.network import Network
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import LoraBatch
from gangline.train.model.base import LoadedBase
from gangline.train.model.loss import losses, process_of
from gangline.train.model.text import condition, embed, with_silence


class LoraNetwork(Network):
    """The U-Net, and the text encoders if they are trained too: their low-rank weights alone have gradients. `data` is a digest of what
    they are trained on."""

    # Its few samples usually fit, and a search would take as long as several steps.
    fits_by_trial: ClassVar[bool] = False
    needs_less: ClassVar[str] = "gradient_checkpointing, or base_precision to 8bit or 4bit"

    def __init__(self, base: LoadedBase, spec: LoraSpec, adapter: Adapter, data: str) -> None:
        super().__init__(adapter.parts, {"data": data})
        self.base = base
        self.spec = spec
        self.adapter = adapter
        self.process = process_of(base, spec)
        self.plain = process_of(base)

    @property
    def flat(self) -> bool:
        return True

    @property
    def casts(self) -> bool:
        """Only where layers compute with the float32 weights themselves."""
        return self.spec.computed_under_autocast

    def use(self, buffers: Buffers) -> None:
        if not self.casts and not self.spec.compile:  # compiled code must not add to a buffer in its backward pass
            self.adapter.use(buffers.low, buffers.sums)

    def checkpoint_gradients(self) -> None:
        self.adapter.checkpoint_gradients()

    def stream_of_layers(self, rank: int) -> str:
        return super().stream_of_layers(rank) if rank else "layers"

    @property
    def can_be_replayed(self) -> bool:
        """Not seen for text encoders in training (transformers makes another attention mask during a capture), nor for dropout that
        checkpointing draws twice."""
        drawn_twice = self.spec.gradient_checkpointing and self.adapter.draws
        return not self.spec.train_text_encoder and not drawn_twice

    def forward(self, samples: LoraBatch, *, measured: bool = False) -> torch.Tensor:
        """Return the loss of each sample, (B,), weighted by its mask; if `measured`, the mean squared error without Min-SNR weights."""
        base = self.base
        noisy = self.process.noisy(samples.clean, samples.noise, samples.timesteps)
        predicted = base.unet(noisy.to(base.dtype), samples.timesteps, **self._told(samples)).sample
        process = self.plain if measured else self.process
        return losses(process, predicted, samples.clean, samples.noise, samples.timesteps, samples.mask)

    def _told(self, samples: LoraBatch) -> dict[str, Any]:
        embedded = samples.embedded or with_silence(self.base, embed(self.base, samples.ids), samples.said)
        return condition(self.base, embedded, samples.sizes)
