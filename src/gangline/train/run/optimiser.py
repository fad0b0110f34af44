"""Optimisers by name, and their state as tensors and numbers: everything that a step reads, so that a restored one continues bit for
bit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from gangline.core.errors import BadInput
from gangline.core.models.lora_layers import layer_of_weight, rate_factor_of_layer
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import TrainingSpec
from gangline.train.tensors import StateNumbers, Tensors

PACKAGES = {"adamw8bit": "bitsandbytes", "prodigy": "prodigyopt", "schedule_free": "schedulefree"}
"""The additional package that each optimiser needs; its version is part of the run's numerics."""
WEIGHT_BY_WEIGHT = ("adamw8bit",)
"""Optimisers that do not treat all elements of a group alike: here 256 elements of a weight share a scale, unless it is small."""

UP = ".lora_B."
"""What the names of a LoRA's matrices B contain, as PEFT calls them."""


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters by name that share a learning rate: `factor` times the one that `metric` reports."""

    weights: dict[str, torch.nn.Parameter]
    learning_rate: float
    metric: str = "learning_rate"
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """An optimiser's state. `tensors` are named `<parameter>/<moment>`; `numbers` likewise for values that are not tensors, and
    `<group>/<setting>` for settings of a group that steps change."""

    tensors: Tensors
    numbers: StateNumbers


def make_groups(spec: TrainingSpec, weights: dict[str, torch.nn.Parameter]) -> list[ParameterGroup]:
    """Return the groups that have weights: text encoders may have another learning rate than the rest, layers of a LoRA a factor each, and
    with LoRA+ (Hayou et al. 2024) the matrices B of a LoRA a multiple of the rate of everything else."""
    ratio = spec.lora_plus_ratio if isinstance(spec, LoraSpec) else 1.0
    found: dict[tuple[bool, bool, float], dict[str, torch.nn.Parameter]] = {}
    for name, weight in weights.items():
        factor = rate_factor_of_layer(spec, layer_of_weight(name)) if isinstance(spec, LoraSpec) else 1.0
        up = ratio != 1 and UP in name
        found.setdefault((name.startswith("text_encoder"), up, factor), {})[name] = weight
    groups = list[ParameterGroup]()
    for (of_text, up, factor), some in sorted(found.items(), key=lambda group: group[0]):
        rate = (spec.text_encoder_learning_rate or spec.learning_rate) if of_text else spec.learning_rate
        metric = f"{'text_encoder_' if of_text else ''}{'lora_b_' if up else ''}learning_rate"
        groups.append(ParameterGroup(some, rate * factor * (ratio if up else 1), metric, factor))
    return groups


def make_optimizer(spec: TrainingSpec, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
    """Return the optimiser that `spec` names, for groups that have parameters. Raise `BadInput` if its package is missing."""
    settings = [{"params": list(group.weights.values()), "lr": group.learning_rate} for group in groups]
    common: dict[str, Any] = {
        "betas": (spec.adam_beta1, spec.adam_beta2),
        "eps": spec.adam_epsilon,
        "weight_decay": spec.weight_decay,
    }
    match spec.optimizer:
        case "adamw":
            return torch.optim.AdamW(settings, **common, fused=True)
        case "adamw8bit":
            return _import(spec.optimizer).optim.AdamW8bit(settings, **common)
        case "prodigy":
            return _import(spec.optimizer).Prodigy(settings, use_bias_correction=True, safeguard_warmup=True, **common)
        case "schedule_free":
            optimizer = _import(spec.optimizer).AdamWScheduleFree(settings, warmup_steps=spec.warmup_steps, **common)
            optimizer.train()
            return optimizer


def set_rates(optimizer: torch.optim.Optimizer, groups: list[ParameterGroup], factor: float) -> None:
    for settings, group in zip(optimizer.param_groups, groups, strict=True):
        settings["lr"] = group.learning_rate * factor


def rates_of(optimizer: torch.optim.Optimizer, groups: list[ParameterGroup]) -> dict[str, float]:
    """Return the learning rates of the last step by the names of their metrics, without the factors of single layers."""
    found: dict[str, float] = {}
    for settings, group in zip(optimizer.param_groups, groups, strict=True):
        # d: Prodigy's estimate; scheduled_lr: schedule-free's rate in warm-up
        rate = settings.get("scheduled_lr", settings["lr"]) * settings.get("d", 1.0) / group.factor
        found.setdefault(group.metric, rate)
    return found


def averaged(optimizer: torch.optim.Optimizer, weights: dict[str, torch.nn.Parameter]) -> Tensors:
    """Return the averaged weights of a schedule-free optimiser (Defazio et al. 2024, x of eq. 1–3), none for any other.

    They are computed as a copy: converting the weights in training to them and back would change their last bits.
    """
    group = optimizer.param_groups[0]
    if "train_mode" not in group:
        return {}
    beta1 = group["betas"][0]
    return {
        name: weight.detach().lerp(optimizer.state[weight].get("z", weight.detach()), 1 - 1 / beta1)
        for name, weight in weights.items()
    }


def optimizer_state(optimizer: torch.optim.Optimizer, weights: dict[str, torch.nn.Parameter]) -> OptimizerState:
    """Return the optimiser's state. Its tensors are those in use, not copies."""
    tensors: Tensors = {}
    numbers: StateNumbers = {}
    for name, weight in weights.items():
        for moment, value in optimizer.state[weight].items():
            if isinstance(value, torch.Tensor):
                tensors[f"{name}/{moment}"] = value
            else:
                numbers[f"{name}/{moment}"] = value
    for place, group in enumerate(optimizer.param_groups):
        numbers |= {f"{place}/{setting}": group[setting] for setting in _changing(group)}
    return OptimizerState(tensors, numbers)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, weights: dict[str, torch.nn.Parameter], state: OptimizerState
) -> None:
    """Give `state` to the optimiser. Its tensors are taken over, not copied."""
    for key, tensor in state.tensors.items():
        name, moment = key.rsplit("/", 1)
        optimizer.state[weights[name]][moment] = tensor
    for key, number in state.numbers.items():
        owner, setting = key.rsplit("/", 1)
        if owner in weights:
            optimizer.state[weights[owner]][setting] = number
        else:
            optimizer.param_groups[int(owner)][setting] = number


def _changing(group: dict[str, Any]) -> Iterable[str]:
    """Return the settings that an optimiser counts or estimates in a group: Prodigy's distance, schedule-free's weights."""
    known = ("d", "d_max", "d_hat", "d_numerator", "d_denom", "k", "weight_sum", "lr_max", "scheduled_lr")
    return [setting for setting in known if setting in group]


def _import(optimizer: str) -> Any:
    package = PACKAGES[optimizer]
    try:
        return __import__(package)
    except ModuleNotFoundError:
        raise BadInput(
            f"this optimizer needs the package {package}",
            hint="install it on the nodes: pip install 'gangline[train]'",
        ) from None
