"""Estimate the GPU memory of a run: frozen weights, trained weights with gradients and moments, and activations. A GB is 10⁹ bytes.

Activations are counted layer by layer, as PyTorch keeps them for the backward pass: a trained layer keeps its input in half precision, a
frozen layer keeps nothing; attention keeps q, k, v and its output; GEGLU keeps three times its width. Under autocast norms and SiLU
compute in float32 and keep their inputs so, and q, k and v keep a copy each of theirs; without it they keep one in half precision. With
gradient checkpointing the input of each block is kept, and the activations of one block at a time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gangline.core.estimates.layers import (
    Attention,
    Layer,
    Op,
    decoder_layers,
    embedding_weights,
    encoder_layers,
    text_layers,
    unet_layers,
)
from gangline.core.estimates.work import REMEMBERED_MAX, Trained, low_rank_of, trained_by
from gangline.core.models.architecture import PUBLISHED_VAE
from gangline.core.models.families import Family
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.low_rank import LowRankSettings
from gangline.core.specs.sections.shared import IN_FLOAT32

GB = 1e9
HALF, FULL = 2, 4
"""Bytes of a number in half and in single precision."""
BYTES_OF_BASE: dict[str, float] = {"full": HALF, "8bit": 1 + 1 / 256, "4bit": 0.5 + 4 / 64}
"""Bytes of a weight in a linear layer. bitsandbytes keeps a float32 scale for each row of 8-bit weights, about 1024 numbers, and for each
64 weights of 4 bits."""
MOMENTS = {"adamw": 8, "adamw8bit": 2, "prodigy": 16, "schedule_free": 8}
"""Bytes of an optimiser's state per weight."""
LIBRARIES_GB = 0.5
"""Workspaces of cuBLAS and cuDNN, and fragmentation: the memory that an H100 used in addition to everything that is counted."""
CONTEXT_GB = 0.6
"""The memory that CUDA and the driver use before a program has a tensor."""
HIGH, HIGH_AGAIN = 1.15, 1.7
"""The factors by which activations may exceed the count, without and with gradient checkpointing. An H100 used 1.02 times the count for
each further sample, and 1.63 times with gradient checkpointing, as recomputed blocks fragment memory (benchmarks/estimate_work.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The peak memory of one GPU as PyTorch's allocator counts it, in 10⁹ bytes. `parts` add up to the lower bound."""

    low_gb: float
    high_gb: float
    parts: dict[str, float]

    def fits(self, memory_gb: float) -> Literal["yes", "perhaps", "no"]:
        """Return whether it fits into a GPU with a nominal memory of `memory_gb` (of 2³⁰ bytes), some of which driver and ECC take."""
        room = memory_gb * 2**30 / GB * 0.94 - CONTEXT_GB
        if self.high_gb <= room:
            return "yes"
        return "perhaps" if self.low_gb <= room else "no"


def lora_memory(spec: LoraSpec, family: Family, *, microbatch: int, resolution: int | None = None) -> Memory:
    """Return the memory of training with `microbatch` samples at a time, or of the preparation before it if that needs more."""
    side = resolution or spec.resolution
    wide = FULL if spec.precision in IN_FLOAT32 else HALF
    counted = _lora_bytes(
        low_rank_of(spec),
        family,
        side,
        spec.base_precision,
        wide=wide,
        again=spec.gradient_checkpointing,
        autocast=spec.computed_under_autocast,
    )
    each = 2 * FULL + HALF + MOMENTS[spec.optimizer] + FULL * copies_of_weights(spec)
    parts = {
        "base": counted.base / GB,
        "what learns": each * counted.learning / GB,
        "activations": microbatch * counted.sample / GB,
        "libraries": LIBRARIES_GB,
    }
    before = _preparing(family, side, counted.base if spec.preserves_classes else 0)
    return _memory(parts, spec.gradient_checkpointing, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Bytes of the frozen base and of one sample's activations; the number of weights that learn."""

    base: float
    learning: int
    sample: float


@lru_cache(maxsize=REMEMBERED_MAX)
def _lora_bytes(
    lora: LowRankSettings, family: Family, side: int, base_precision: str, *, wide: int, again: bool, autocast: bool
) -> _Counted:
    layers, trained = unet_layers(family.unet, side), trained_by(lora)
    learning = trained.weights(layers)
    base = base_bytes(layers, base_precision, wide)
    sample = kept(layers, trained, again=again, wide=wide, autocast=autocast)
    for encoder in family.text_encoders if lora.train_text_encoder else ():
        own, text = trained_by(lora, encoder.part), text_layers(encoder.shape)
        learning += own.weights(text)
        base += wide * (sum(layer.weights for layer in text) + embedding_weights(encoder.shape))
        sample += kept(text, own, again=again, wide=wide, autocast=autocast)
    return _Counted(base=base, learning=learning, sample=sample)


def scratch_memory(spec: ScratchSpec, phase: TrainingPhase, family: Family, *, microbatch: int, gpus: int) -> Memory:
    """Return the memory of one of `gpus`. DDP keeps all trained weights, their state and buckets of gradients on each GPU, FSDP a shard."""
    wide = FULL if spec.precision in IN_FLOAT32 else HALF
    again, side = spec.gradient_checkpointing, phase.resolution
    frozen, trained = 0.0, Trained(text_learns=spec.train_text_encoders)
    layers: list[Op]
    if spec.part == "vae":
        layers = [*encoder_layers(PUBLISHED_VAE, side), *decoder_layers(PUBLISHED_VAE, side)]
    else:
        layers = list(unet_layers(family.unet, side))
    learning = trained.weights(layers)
    sample = kept(layers, trained, again=again, wide=wide)
    if spec.part == "unet" and spec.text_embeddings == "off":
        for encoder in family.text_encoders:
            text = list(text_layers(encoder.shape))
            weights = sum(layer.weights for layer in text) + embedding_weights(encoder.shape)
            if spec.train_text_encoders:
                learning += weights
                sample += kept(text, trained, again=again, wide=wide)
            else:
                frozen += wide * weights
    each = 2 * FULL + MOMENTS[spec.optimizer] + FULL * copies_of_weights(spec)
    shared = gpus if spec.parallel == "fsdp" else 1
    half_copies = wide if wide == HALF else 0
    parts = {
        "frozen": frozen / GB,
        "what learns": (each / shared + half_copies) * learning / GB,
        "activations": microbatch * sample / GB,
        "libraries": LIBRARIES_GB + (0.5 * FULL * learning / GB if gpus > 1 and spec.parallel == "ddp" else 0),
    }
    before = _encoding(family, side) if spec.part == "unet" and phase.latents == "off" else 0.0
    parts["activations"] += before / GB * microbatch
    return _memory(parts, again, 0.0)


def copies_of_weights(spec: TrainingSpec) -> int:
    """Return how many copies of the weights are kept beside those that learn: their average, and those of the best step."""
    return (spec.ema_decay is not None) + (spec.stop_when_worse is not None)


def base_bytes(layers: Iterable[Op], precision: str, wide: int = HALF) -> float:
    """Return the bytes of a frozen U-Net. Only linear layers are quantised to 8 or 4 bits."""
    each = wide if precision == "full" else BYTES_OF_BASE[precision]
    return sum(
        layer.weights * (each if isinstance(layer, Layer) and layer.kind == "linear" else wide) for layer in layers
    )


def kept(layers: Sequence[Op], trained: Trained, *, again: bool, wide: int = HALF, autocast: bool = True) -> float:
    """Return the bytes of one sample's activations that are kept from the forward to the backward pass."""
    blocks = defaultdict[str, float](float)
    inputs: dict[str, float] = {}
    for layer in layers:
        blocks[layer.block] += _kept_by(layer, trained, wide, autocast)
        if isinstance(layer, Layer) and layer.on != "time":
            inputs.setdefault(layer.block, wide * layer.inputs * layer.places)
    return sum(inputs.values()) + max(blocks.values()) if again else sum(blocks.values())


def _kept_by(layer: Op, trained: Trained, wide: int, autocast: bool) -> float:
    if isinstance(layer, Attention):
        return wide * layer.width * (2 * layer.queries + 2 * layer.keys)
    if layer.on == "time":
        return 0.0
    numbers = layer.inputs * layer.places
    if layer.kind == "norm":
        # In a resnet SiLU follows the norm, and keeps its input, too.
        activated = layer.name.endswith(("norm1", "norm2", "conv_norm_out")) and "transformer" not in layer.name
        return (FULL if autocast else wide) * numbers * (2 if activated and layer.on == "image" else 1)
    shared = not autocast and layer.name.endswith(("attn1.to_k", "attn1.to_v", "attn2.to_v", "k_proj", "v_proj"))
    own = wide * numbers if trained.learns(layer) and not shared else 0.0
    own += wide * added.kept if (added := trained.added(layer)) else 0
    if layer.name.endswith(".ff.net.0.proj"):
        own += wide * layer.places * layer.outputs * 1.5
    if layer.name.endswith(".mlp.fc1"):
        own += wide * layer.places * layer.outputs * 2
    return own


@lru_cache(maxsize=REMEMBERED_MAX)
def _preparing(family: Family, side: int, base: float) -> float:
    """Return the peak bytes while latents and embeddings are prepared, one after the other; class images need the whole base."""
    text = sum(
        HALF * (sum(layer.weights for layer in text_layers(encoder.shape)) + embedding_weights(encoder.shape))
        for encoder in family.text_encoders
    )
    drawing = base + _largest(decoder_layers(PUBLISHED_VAE, side), FULL) if base else 0.0
    return max(text, _encoding(family, side), drawing)


def _encoding(family: Family, side: int) -> float:
    """Return the peak bytes of encoding: the VAE in float32, and at its widest layer the input, a norm's output and the output."""
    layers = list(encoder_layers(PUBLISHED_VAE, side))
    return FULL * sum(layer.weights for layer in layers) + _largest(layers, FULL)


def _largest(layers: Iterable[Op], wide: int) -> float:
    return max(wide * layer.places * (2 * layer.inputs + layer.outputs) for layer in layers if isinstance(layer, Layer))


def _memory(parts: dict[str, float], again: bool, before: float) -> Memory:
    low = max(sum(parts.values()), before / GB + LIBRARIES_GB)
    more = parts["activations"] * ((HIGH_AGAIN if again else HIGH) - 1) + LIBRARIES_GB
    return Memory(low_gb=low, high_gb=low + more, parts=parts)
