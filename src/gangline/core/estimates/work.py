"""Count the FLOP of a step and its passes over layers, layer by layer.

Matrix products, convolutions and attention are counted as torch's FlopCounterMode counts them (attention's backward pass as twice its
forward pass); the time of norms, activations and copies is in the achieved FLOP/s (gangline.core.estimates.utilisation).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache

from gangline.core.estimates.added import Added, added_to
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
from gangline.core.models.architecture import PUBLISHED_VAE
from gangline.core.models.families import Family
from gangline.core.models.lora_layers import layer_rank
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.low_rank import LowRankSettings

BACKWARD_PASSES = 2
"""A backward pass launches about as many kernels as two forward passes: for the gradients of inputs, and of weights."""

REMEMBERED_MAX = 64
"""Settings whose counts are remembered: a plan is asked for again while somebody types, and for each class of cards."""
CHECKPOINTED = (".resnets.", ".transformer_blocks.", ".encoder.layers.")
"""Parts of the names of blocks that diffusers and transformers recompute as one with gradient checkpointing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeWork:
    """The work of a pass. `flops` are per sample; `ops` are passes over layers, whose overhead does not depend on the microbatch."""

    flops: float
    ops: int

    def __add__(self, other: "ComputeWork") -> "ComputeWork":
        return ComputeWork(flops=self.flops + other.flops, ops=self.ops + other.ops)

    def times(self, count: float) -> "ComputeWork":
        return ComputeWork(flops=self.flops * count, ops=round(self.ops * count))


NOTHING = ComputeWork(flops=0.0, ops=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A choice of trained layers: all, or what `lora` adds to those of a model's `part`. `text_learns` says that gradients are needed for
    the input of cross-attention, too. The rank of each layer is looked up once: patterns of names take long."""

    lora: LowRankSettings | None = None
    part: str = "unet"
    text_learns: bool = False
    _ranks: dict[tuple[str, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def learns(self, layer: Layer) -> bool:
        return self.lora is None or self.added(layer) is not None

    def added(self, layer: Layer) -> Added | None:
        if self.lora is None or layer.kind == "norm":
            return None
        which = (layer.name, layer.kernel)
        rank = self._ranks.get(which)
        if rank is None:
            found = layer_rank(self.lora, self.part, layer.name, layer.kernel)
            rank = self._ranks[which] = found.rank if found else 0
        return added_to(layer, rank, self.lora) if rank else None

    def weights(self, layers: Iterable[Op]) -> int:
        """Return the number of weights that the optimiser updates."""
        if not self.lora:
            return sum(layer.weights for layer in layers)
        found = (self.added(layer) for layer in layers if isinstance(layer, Layer))
        return sum(added.weights for added in found if added)


def low_rank_of(spec: LoraSpec) -> LowRankSettings:
    """Return what decides the layers that a LoRA trains, and nothing else: what is counted of them is remembered under it."""
    return LowRankSettings(**{each.name: getattr(spec, each.name) for each in fields(LowRankSettings)})


@lru_cache(maxsize=REMEMBERED_MAX)
def trained_by(lora: LowRankSettings, part: str = "unet") -> Trained:
    """Return what a LoRA trains of a part of its model."""
    return Trained(lora=lora, part=part, text_learns=lora.train_text_encoder)


def forwards(layers: Iterable[Op]) -> ComputeWork:
    """Return the work of a forward pass alone."""
    counted = list(layers)
    return ComputeWork(flops=sum(layer.flops for layer in counted), ops=len(counted))


def training_work(layers: Iterable[Op], trained: Trained, *, again: bool) -> ComputeWork:
    """Return the work of a forward and a backward pass. Gradients flow back to the first trained layer and no further.

    `again` says that gradient checkpointing is on.
    """
    counted = list(layers)
    forward = backward = 0
    flows = False  # whether a layer before this one is trained
    for layer in counted:
        forward += _forward(layer, trained)
        if not isinstance(layer, Layer):
            backward += 2 * layer.flops if flows else 0
            continue
        reads_what_learns = flows and (layer.on == "image" or _other_learns(layer, trained))
        backward += _forward(layer, trained) if reads_what_learns else 0
        backward += _low(layer, trained) if trained.lora else layer.flops
        flows |= trained.learns(layer) and layer.kind != "norm"
    twice = recomputed(counted, trained) if again else 0
    passes = 1 + BACKWARD_PASSES + again
    return ComputeWork(flops=forward + backward + twice, ops=passes * len(counted))


def recomputed(layers: Iterable[Op], trained: Trained) -> int:
    """Return the FLOP that gradient checkpointing adds.

    Each resnet and each transformer block is recomputed up to the last of its layers that keeps something for the backward pass; the first
    blocks, which no gradient reaches, are not.
    """
    blocks = defaultdict[str, list[Op]](list)
    flows: set[str] = set()
    for layer in layers:
        if any(mark in layer.block for mark in CHECKPOINTED):
            blocks[layer.block].append(layer)
        if flows or (isinstance(layer, Layer) and trained.learns(layer)):
            flows.add(layer.block)
    found = 0
    for name, block in blocks.items():
        keepers = [number for number, layer in enumerate(block) if _keeps(layer, trained)]
        if name in flows and keepers:
            last = keepers[-1] + _keeps_output(block[keepers[-1]])
            found += sum(_forward(layer, trained) for layer in block[:last])
    return found


def _forward(layer: Op, trained: Trained) -> int:
    return layer.flops + (_low(layer, trained) if isinstance(layer, Layer) else 0)


def _low(layer: Layer, trained: Trained) -> int:
    """Return the FLOP of a LoRA's products in a layer."""
    added = trained.added(layer)
    return added.flops if added else 0


def _keeps(layer: Op, trained: Trained) -> bool:
    return _keeps_output(layer) or (isinstance(layer, Layer) and (layer.kind == "norm" or trained.learns(layer)))


def _keeps_output(layer: Op) -> bool:
    """Return whether the operation keeps its output: attention does, and a layer whose output goes to an activation with two factors."""
    return isinstance(layer, Attention) or layer.name.endswith((".ff.net.0.proj", ".mlp.fc1"))


def _other_learns(layer: Layer, trained: Trained) -> bool:
    """Return whether the text or time embedding that a layer reads comes from trained layers."""
    if layer.on == "text":
        return trained.text_learns
    return not trained.lora and not layer.name.endswith("linear_1")


def lora_sample(spec: LoraSpec, family: Family, resolution: int | None = None) -> ComputeWork:
    """Return the work of one sample in a LoRA's step; latents and, unless text encoders are trained, embeddings are precomputed."""
    return _lora_sample(low_rank_of(spec), family, resolution or spec.resolution, spec.gradient_checkpointing)


@lru_cache(maxsize=REMEMBERED_MAX)
def _lora_sample(lora: LowRankSettings, family: Family, side: int, again: bool) -> ComputeWork:
    found = training_work(unet_layers(family.unet, side), trained_by(lora), again=again)
    for encoder in family.text_encoders if lora.train_text_encoder else ():
        found += training_work(text_layers(encoder.shape), trained_by(lora, encoder.part), again=again)
    return found


def scratch_sample(spec: ScratchSpec, phase: TrainingPhase, family: Family) -> ComputeWork:
    """Return the work of one sample in a phase's step. Latents are read from the data set unless the phase says `off`."""
    again, side = spec.gradient_checkpointing, phase.resolution
    if spec.part == "vae":
        both = (*encoder_layers(PUBLISHED_VAE, side), *decoder_layers(PUBLISHED_VAE, side))
        return training_work(both, Trained(), again=again)
    found = training_work(unet_layers(family.unet, side), Trained(text_learns=spec.train_text_encoders), again=again)
    if spec.text_embeddings == "off":
        for encoder in family.text_encoders:
            layers = text_layers(encoder.shape)
            learns = spec.train_text_encoders
            found += training_work(layers, Trained(text_learns=True), again=again) if learns else forwards(layers)
    if phase.latents == "off":
        found += forwards(encoder_layers(PUBLISHED_VAE, side))
    return found


@lru_cache(maxsize=REMEMBERED_MAX)
def encode_picture(family: Family, resolution: int) -> ComputeWork:
    return forwards(encoder_layers(PUBLISHED_VAE, resolution))


@lru_cache(maxsize=REMEMBERED_MAX)
def embed_text(family: Family) -> ComputeWork:
    found = NOTHING
    for encoder in family.text_encoders:
        found += forwards(text_layers(encoder.shape))
    return found


def denoise(family: Family, resolution: int, *, steps: int) -> ComputeWork:
    """Return the work of `steps` of a sampler for one image, with and without its prompt in one batch (classifier-free guidance)."""
    once = _predict(family, resolution)
    return ComputeWork(flops=2 * steps * once.flops, ops=steps * once.ops)


@lru_cache(maxsize=REMEMBERED_MAX)
def _predict(family: Family, resolution: int) -> ComputeWork:
    return forwards(unet_layers(family.unet, resolution))


@lru_cache(maxsize=REMEMBERED_MAX)
def decode_picture(family: Family, resolution: int) -> ComputeWork:
    return forwards(decoder_layers(PUBLISHED_VAE, resolution))


def lora_weights(spec: LoraSpec, family: Family) -> int:
    """Return the number of weights that a LoRA's optimiser updates."""
    texts, lora = family.text_encoders if spec.train_text_encoder else (), low_rank_of(spec)
    unet = trained_by(lora).weights(unet_layers(family.unet, family.resolution))
    return unet + sum(trained_by(lora, text.part).weights(text_layers(text.shape)) for text in texts)


def scratch_weights(spec: ScratchSpec, family: Family) -> int:
    """Return the number of weights that the optimiser of a training from scratch updates."""
    side = family.resolution
    if spec.part == "vae":
        both = (*encoder_layers(PUBLISHED_VAE, side), *decoder_layers(PUBLISHED_VAE, side))
        return sum(layer.weights for layer in both)
    found = sum(layer.weights for layer in unet_layers(family.unet, side))
    for text in family.text_encoders if spec.train_text_encoders else ():
        found += sum(layer.weights for layer in text_layers(text.shape)) + embedding_weights(text.shape)
    return found
