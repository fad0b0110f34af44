"""One way to a LoRA that takes its first step, for tests and benchmarks. It imports nothing that only tests need."""

from types import SimpleNamespace
from typing import Any

import torch
from diffusers import DDPMScheduler

from gangline.core.models.families import SDXL
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import moment_of_step
from gangline.train.learning.learner import Learner
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import LoraBatch
from gangline.train.lora.network import LoraNetwork
from gangline.train.lora.trainer import prepare_lora
from gangline.train.model.layouts import NOISE
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from gangline.train.trainer import Place


def learner_of(run: RunDirectory) -> tuple[Learner, Prefetcher[LoraBatch]]:
    """What the trainer takes its first step with, and what it is fed."""
    spec = run.read_training()
    assert isinstance(spec, LoraSpec)
    numerics.choose_kernels(repeatable=spec.exact != "off", precision=spec.precision)
    device = numerics.device()
    place = Place(ranks=Ranks(), device=device, dtype=numerics.dtype_of(spec.precision, device))
    training = prepare_lora(run, spec, place, Orders())
    assert training is not None
    return Learner(training.network, spec, place.ranks, device, place.dtype), training.batches


def imagined_learner(unet: Any, spec: LoraSpec) -> tuple[Learner, LoraBatch]:
    """A learner and a batch of one sample without numbers, on the device `meta`, for a U-Net of SDXL's kind in bfloat16."""
    meta, half, side = torch.device("meta"), torch.bfloat16, spec.resolution // 8
    base: Any = SimpleNamespace(
        unet=unet.to(half).requires_grad_(False),
        dtype=half,
        device=meta,
        family=SDXL,
        noise=DDPMScheduler(**NOISE),
        prediction_type="epsilon",
        zero_empty=False,
    )
    adapter = Adapter(base, spec)
    unet.to(meta)
    learner = Learner(LoraNetwork(base, spec, adapter, ""), spec, Ranks(), meta, half)
    pooled = unet.config.projection_class_embeddings_input_dim - 6 * unet.config.addition_time_embed_dim
    with meta:
        batch = LoraBatch(
            clean=torch.zeros(1, 4, side, side),
            noise=torch.zeros(1, 4, side, side),
            timesteps=torch.zeros(1, dtype=torch.long),
            sizes=torch.zeros(1, 6),
            said=torch.ones(1, dtype=torch.bool),
            mask=None,
            tokens=torch.zeros(1, 77, unet.config.cross_attention_dim),
            pooled=torch.zeros(1, pooled),
            ids=(),
            share=torch.ones(1),
        )
    learner.fit(moment_of_step(spec.phases, 1), [batch])
    return learner, batch


def take_step(learner: Learner, batches: Prefetcher[LoraBatch], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As the trainer does."""
    moment, samples = moment_of_step(learner.spec.phases, step), list(batches.step(step))
    learner.fit(moment, samples)
    return learner.step(moment, samples)
