"""Estimate the seconds of a job's parts on a known kind of GPU from their FLOP."""

import math

from gangline.core.estimates.utilisation import NONE, Band, optimiser_s, reached_flops, step_s
from gangline.core.estimates.work import (
    ComputeWork,
    decode_picture,
    denoise,
    embed_text,
    encode_picture,
    lora_sample,
    lora_weights,
    scratch_sample,
    scratch_weights,
)
from gangline.core.gpus import GpuKind
from gangline.core.models.families import Family
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sample import previews_of
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.previews import Preview

GUESSED = 2.5
"""The factor by which parts that were never measured on a GPU (encoding, rendering) may take more or less time."""
PHOTO_S = 0.2
"""Seconds in which a CPU reads and decodes a photo of 12 MP twice: an estimate."""
IN_FULL = {"bf16": 1 / 2, "fp16": 1 / 8}
"""The speed of the VAE, which computes in float32, relative to half precision. GPUs since Ampere compute its convolutions in TF32, at half
the speed of bf16; older ones at an eighth of fp16."""
NODE_GPUS = 8
"""Up to this many GPUs, sharing a step adds no time: the figures for a GPU's speed are of eight GPUs and of one."""
DOUBLING = (1.0, 1.06, 1.11)
"""The factor by which a step takes longer than half its time for each doubling of the GPUs beyond a node: the best, the mean and the worst
of MosaicML's three series from 8 to 128 GPUs (benchmarks/estimate_work.py)."""
MOVED_BYTES = 16
"""Bytes of a trained weight, its gradient and two moments; an average of weights (EMA) adds four."""


def is_replayed(spec: LoraSpec) -> bool:
    """Return whether the trainer captures its step as a CUDA graph (gangline.train.lora.graph)."""
    drawn_twice = spec.dropout > 0 and spec.gradient_checkpointing
    return not (spec.train_text_encoder or spec.compile or drawn_twice)


def lora_step_s(spec: LoraSpec, family: Family, kind: GpuKind, *, microbatch: int) -> Band:
    sample, samples = lora_sample(spec, family), spec.samples_per_step
    passes = step_s(sample, kind, samples=samples, microbatch=microbatch, replayed=is_replayed(spec))
    return passes + _alike(optimiser_s(lora_weights(spec, family), kind, bytes_each=MOVED_BYTES))


def scratch_step_s(
    spec: ScratchSpec, phase: TrainingPhase, family: Family, kind: GpuKind, *, microbatch: int, gpus: int
) -> Band:
    """Return the seconds of a step whose batch `gpus` share; the time to exchange gradients is in the band."""
    sample, own = scratch_sample(spec, phase, family), -(-phase.batch_size // gpus)
    seconds = step_s(sample, kind, samples=own, microbatch=min(microbatch, own), replayed=False)
    weights = scratch_weights(spec, family) // (gpus if spec.parallel == "fsdp" else 1)
    moved = optimiser_s(weights, kind, bytes_each=MOVED_BYTES + (4 if spec.ema_decay else 0))
    low, middle, high = exchange(gpus)
    seconds += _alike(moved)
    return Band(low=seconds.low * low, middle=seconds.middle * middle, high=seconds.high * high)


def exchange(gpus: int) -> tuple[float, float, float]:
    """Return the factors (low, middle, high) by which sharing lengthens a step."""
    doublings = max(0.0, math.log2(gpus / NODE_GPUS))
    low, middle, high = (each**doublings for each in DOUBLING)
    return low, middle, high


def prepare_s(spec: LoraSpec, family: Family, kind: GpuKind) -> Band:
    """Return the seconds before the first step: latents of every view of every photo, embeddings, and class images drawn by the base."""
    views = (spec.crops if spec.crop == "random" else 1) * (2 if spec.flip else 1)
    photos, held_out = len(spec.photos), len(spec.held_out)
    encoded = _full_s(encode_picture(family, spec.resolution), kind).times(photos * views + held_out)
    read = _guessed(PHOTO_S).times(photos + held_out)
    shown = len(spec.sample_prompts) + sum(bool(each.negative_prompt) for each in previews_of(spec))
    texts = 0 if spec.train_text_encoder else photos * spec.texts_per_caption + shown + 2
    said = _guessed(step_s(embed_text(family), kind, samples=1, microbatch=1, replayed=False).middle).times(texts)
    of_classes = sum(subject.class_images for subject in spec.all_subjects if subject.class_prompt)
    drawn = _drawn_s(family, spec.resolution, spec.sample_steps, kind).times(of_classes)
    return encoded + read + said + (drawn if of_classes else NONE)


def pictures_s(spec: LoraSpec | ScratchSpec, family: Family, kind: GpuKind) -> Band:
    """Return the seconds to render the samples of the result; for a LoRA, the base renders the same samples for comparison."""
    if not spec.sample_result:
        return NONE
    sides = 2 if isinstance(spec, LoraSpec) else 1
    drawn = (
        _drawn_s(family, _side(each), each.steps, kind).times(sides * len(each.seeds)) for each in previews_of(spec)
    )
    return sum(drawn, NONE)


def _side(preview: Preview) -> int:
    """Return the side of the square whose area is nearest to a preview's."""
    return 8 * round(math.sqrt(preview.width * preview.height) / 8)


def _drawn_s(family: Family, resolution: int, steps: int, kind: GpuKind) -> Band:
    drawn = denoise(family, resolution, steps=steps)
    on_card = step_s(drawn, kind, samples=1, microbatch=1, replayed=False)
    return on_card + _full_s(decode_picture(family, resolution), kind)


def _full_s(work: ComputeWork, kind: GpuKind) -> Band:
    """Return the seconds of work in float32."""
    return _guessed(work.flops / (reached_flops(kind) * IN_FULL[kind.computes_in]))


def _alike(seconds: float) -> Band:
    return Band(low=seconds, middle=seconds, high=seconds)


def _guessed(seconds: float) -> Band:
    return Band(low=seconds / GUESSED, middle=seconds, high=seconds * GUESSED)
