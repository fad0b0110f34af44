"""A step's gradient is that of the definition in float64, but for rounding in the dtype that the run computes in.

The definition is written out here: PEFT's own layers, autograd, and the loss as the papers have it.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoKrConfig, LoraConfig
from torch import nn

from gangline.core.models.lora_names import TEXT_MODULES
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import moment_of_step
from gangline.train.learning.learner import Learner
from gangline.train.lora.batches import LoraBatch
from gangline.train.model.base import LoadedBase
from gangline.train.model.quantise import QuantisedLinear, by_definition
from gangline.train.model.text import condition, embed, with_silence
from tests.train.conftest import lay_out, small_spec
from tests.train.learners import learner_of

STEP = 1
OFF_BY_MAX = {torch.float32: 16, torch.bfloat16: 2, torch.float16: 2}
"""In units of the dtype's rounding, for the tiny base's U-Net. Text encoders go before it, so their gradients are rounded more often."""
MORE_WITH_TEXT = 3
V = {"prediction_type": "v_prediction", "zero_terminal_snr": True}
MODES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"precision": "bf16"},
    "float16": {"precision": "fp16"},
    "velocity, zero terminal SNR": V,
    "min-SNR": {"min_snr_gamma": 5.0},
    "velocity, min-SNR": V | {"min_snr_gamma": 5.0},
    "Huber loss": {"loss_type": "huber"},
    "Huber loss, exponential, min-SNR": {
        "loss_type": "huber",
        "huber_schedule": "exponential",
        "huber_c": 0.02,
        "min_snr_gamma": 5.0,
    },
    "Huber loss in bfloat16 with prior preservation": {
        "loss_type": "huber",
        "precision": "bf16",
        "class_prompt": "cat face",
        "class_images": 2,
    },
    "text encoders": {"train_text_encoder": True},
    "text encoders in bfloat16": {"train_text_encoder": True, "precision": "bf16"},
    "prior preservation": {"class_prompt": "cat face", "class_images": 2, "prior_weight": 0.7},
    "accumulation": {"batch_size": 3, "microbatch": 2},
    "accumulation in bfloat16": {"batch_size": 3, "microbatch": 1, "precision": "bf16"},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "an alpha that is no power of two": {"alpha": 3.0},
    "LoRA+": {"lora_plus_ratio": 16.0, "train_text_encoder": True},
    "blocks with ranks of their own": {"block_ranks": ("up_blocks.*=2:3", "mid_block.*=0", "text_encoder.*=1:1")}
    | {"train_text_encoder": True},
    "convolutions": {"conv_rank": 2, "conv_alpha": 3.0},
    "convolutions in bfloat16": {"conv_rank": 2, "conv_alpha": 3.0, "precision": "bf16"},
    "LoKr": {"algorithm": "lokr", "rank": 2, "alpha": 3.0, "train_text_encoder": True},
    "LoKr in bfloat16": {"algorithm": "lokr", "rank": 2, "precision": "bf16"},
    "LoKr of convolutions": {
        "algorithm": "lokr",
        "rank": 2,
        "alpha": 2.0,
        "lokr_factor": 4,
        "lokr_second_factor": "tucker",
        "conv_rank": 1,
        "conv_alpha": 3.0,
    },
    "LoKr in full, on 8 bits": {
        "algorithm": "lokr",
        "lokr_factor": 4,
        "lokr_second_factor": "full",
        "base_precision": "8bit",
    },
    "DoRA": {"dora": True},
    "DoRA in bfloat16": {"dora": True, "precision": "bf16"},
    "8 bits": {"base_precision": "8bit"},
    "4 bits in bfloat16": {"base_precision": "4bit", "precision": "bf16"},
}


def seen_by_the_optimiser(learner: Learner, samples: list[LoraBatch]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}

    def step() -> None:
        found.update({name: weight.grad.clone() for name, weight in learner.weights.items()})

    learner.optimizer.step = step  # pyright: ignore[reportAttributeAccessIssue]
    moment = moment_of_step(learner.spec.phases, STEP)
    learner.fit(moment, samples)
    learner.step(moment, samples)
    return found


def peft_on(base: LoadedBase, spec: LoraSpec, dtype: torch.dtype) -> dict[str, Any]:
    """The parts in training, with PEFT's own layers; what is quantised has its weights as they are defined."""
    parts = {"unet": base.unet}
    if spec.train_text_encoder:
        parts |= dict(zip(base.family.text_parts, base.text_encoders, strict=True))
    for part, module in parts.items():
        for parent in list(module.modules()):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, QuantisedLinear):
                    plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
                    plain.weight.data = by_definition(layer)
                    if layer.bias is not None:
                        plain.bias.data = layer.bias.data
                    setattr(parent, name, plain)
        module.requires_grad_(False)
        targets = spec.target_modules if part == "unet" else TEXT_MODULES
        if spec.algorithm == "lokr":
            module.add_adapter(lokr_config(spec, part))
            module.to(dtype).train()
            continue
        settings = {"r": spec.rank, "lora_alpha": spec.alpha, "target_modules": list(targets)}
        module.add_adapter(LoraConfig(use_dora=spec.dora, **(settings | in_blocks(spec, part))))
        module.to(dtype).train()
    return parts


def lokr_config(spec: LoraSpec, part: str) -> LoKrConfig:
    """PEFT's LoKr, which computes the Kronecker product as a whole. It keeps a second factor whole from half its size on."""
    whole = spec.lokr_second_factor == "full"
    values: dict[str, Any] = {"r": 4096, "alpha": 4096} if whole else {"r": spec.rank, "alpha": spec.alpha}
    targets = spec.target_modules if part == "unet" else TEXT_MODULES
    values |= {"target_modules": list(targets)} | (in_blocks(spec, part) if part == "unet" else {})
    conv = spec.lokr_second_factor == "tucker"
    return LoKrConfig(decompose_factor=spec.lokr_factor or -1, use_effective_conv2d=conv, **values)


def in_blocks(spec: LoraSpec, part: str) -> dict[str, Any]:
    """PEFT's settings for the modes that have blocks or convolutions of their own."""
    if spec.conv_rank:
        wide = r".*\.(conv1|conv2|downsamplers\.0\.conv|upsamplers\.0\.conv)"
        return {
            "target_modules": rf".*\.({'|'.join(spec.target_modules)})|{wide}",
            "rank_pattern": {wide: spec.conv_rank},
            "alpha_pattern": {wide: spec.conv_alpha},
        }
    if not spec.block_ranks:
        return {}
    if part != "unet":
        return {"r": 1, "lora_alpha": 1} if part == "text_encoder" else {}
    return {
        "exclude_modules": r"mid_block\..*",
        "rank_pattern": {r"up_blocks\..*": 2},
        "alpha_pattern": {r"up_blocks\..*": 3},
    }


def alphas_of(base: LoadedBase) -> torch.Tensor:
    """ᾱ of a scaled linear schedule (Ho et al. 2020, eq. 4), rescaled to zero terminal SNR (Lin et al. 2023, algorithm 1)."""
    config = base.noise.config
    betas = torch.linspace(config.beta_start**0.5, config.beta_end**0.5, config.num_train_timesteps).double() ** 2
    alphas = torch.cumprod(1 - betas, 0)
    if base.zero_terminal_snr:
        roots = alphas.sqrt()
        alphas = ((roots - roots[-1]) * roots[0] / (roots[0] - roots[-1])) ** 2
    return alphas


def loss_of(predicted: torch.Tensor, batch: LoraBatch, base: LoadedBase, spec: LoraSpec) -> torch.Tensor:
    alphas = alphas_of(base)[batch.timesteps]
    signal, spread = (value.sqrt()[:, None, None, None] for value in (alphas, 1 - alphas))
    velocity = base.prediction_type == "v_prediction"
    target = signal * batch.noise.double() - spread * batch.clean.double() if velocity else batch.noise.double()
    error, snr = predicted.double() - target, alphas / (1 - alphas)
    elements = error.square()
    if spec.loss_type == "huber":  # Khrapov et al. 2024; the schedule by SNR is kohya's
        c = spec.huber_c
        by_step = c ** (batch.timesteps.double() / len(alphas_of(base)))
        deltas = by_step if spec.huber_schedule == "exponential" else (1 - c) / (1 + snr**-0.5) ** 2 + c
        delta = deltas[:, None, None, None]
        elements = 2 * delta * ((error.square() + delta**2).sqrt() - delta)
    each = elements.mean(dim=(1, 2, 3))
    if spec.min_snr_gamma is not None:  # Hang et al. 2023, §3.4
        each = each * snr.clamp(max=spec.min_snr_gamma) / (snr + 1 if velocity else snr)
    return (each * batch.share.double()).sum()


def by_autograd(
    learner: Learner, base: LoadedBase, parts: dict[str, Any], samples: list[LoraBatch]
) -> dict[str, torch.Tensor]:
    weights = {
        f"{part}.{name}": weight
        for part, module in parts.items()
        for name, weight in module.named_parameters()
        if weight.requires_grad
    }
    assert weights.keys() == learner.weights.keys()
    for name, weight in weights.items():
        weight.data = learner.weights[name].detach().to(weight.dtype)
    for batch in samples:
        alphas = alphas_of(base)[batch.timesteps][:, None, None, None]
        noisy = alphas.sqrt() * batch.clean.double() + (1 - alphas).sqrt() * batch.noise.double()
        embedded = batch.embedded or with_silence(base, embed(base, batch.ids), batch.said)
        told = condition(base, embedded, batch.sizes)
        predicted = base.unet(noisy.to(base.dtype), batch.timesteps, **told).sample
        loss_of(predicted, batch, base, learner.spec).backward()  # pyright: ignore[reportArgumentType]
    # the last layer of an encoder that is read before it learns nothing
    return {name: torch.zeros_like(weight) if weight.grad is None else weight.grad for name, weight in weights.items()}


def off_by(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    apart = torch.stack([(found[name].double() - wanted[name].double()).norm() for name in wanted]).norm()
    return float(apart / torch.stack([gradient.double().norm() for gradient in wanted.values()]).norm())


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_is_the_definitions_but_for_rounding(tmp_path: Path, mode: str) -> None:
    spec = small_spec(**({"gradient_norm_max": 1e6} | MODES[mode]))
    learner, batches = learner_of(lay_out(tmp_path / "run", spec))
    samples, dtype = batches.step(STEP), learner.dtype
    network: Any = learner.network
    for weight in learner.weights.values():  # B begins as 0, where its gradient alone would be seen
        weight.data += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    learner.buffers.refresh()
    wanted = by_autograd(learner, *doubled(network.base, spec), samples)
    found = seen_by_the_optimiser(learner, samples)
    most = OFF_BY_MAX[dtype] * (MORE_WITH_TEXT if spec.train_text_encoder else 1)
    assert off_by(found, wanted) < most * torch.finfo(dtype).eps


def doubled(base: LoadedBase, spec: LoraSpec) -> tuple[LoadedBase, dict[str, Any]]:
    """The base as the run loaded it, in float64."""
    fresh = copy.copy(base)
    fresh.forget("unet", "text_encoders")
    parts = peft_on(fresh, spec, torch.float64)
    fresh.dtype = torch.float64
    return fresh, parts
