"""The low-rank weights on the parts of a base, by name: `unet.down_blocks.0…lora_A.default.weight`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoKrConfig, LoraConfig
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from torch.utils.checkpoint import checkpoint

from gangline.core.errors import BadInput
from gangline.core.models.kronecker import factors_of
from gangline.core.models.lora_layers import LayerRank, layer_name, layer_rank, patterns_without_layers
from gangline.core.models.lora_names import TEXT_MODULES
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.patterns import is_pattern
from gangline.train.lora.init_lora import read_lora
from gangline.train.lora.layers.convolution import LowRankConvolution
from gangline.train.lora.layers.kronecker import KroneckerModel
from gangline.train.lora.layers.low_rank import LowRankLinear, LowRankViews
from gangline.train.lora.updates import LoraPart
from gangline.train.model.base import LoadedBase
from gangline.train.model.compiled import uncompiled
from gangline.train.run import chance
from gangline.train.tensors import Tensors, weights_in_training

UNET = "unet"


class Adapter:
    """A LoRA on a base, in float32 whatever the base's dtype. Raises `BadInput` if the base lacks the modules that a spec names."""

    def __init__(self, base: LoadedBase, spec: LoraSpec) -> None:
        self.parts: dict[str, Any] = {UNET: base.unet}
        if spec.train_text_encoder:
            self.parts |= dict(zip(base.family.text_parts, base.text_encoders, strict=True))
        check_patterns(spec, self.parts)
        self.configs = {part: _config(spec, part, module) for part, module in self.parts.items()}
        chance.seed_torch(spec.seed, "initial weights")
        for part, module in self.parts.items():
            try:
                _add(module, self.configs[part])
            except ValueError as error:
                raise BadInput(f"target_modules do not fit this base: {error}") from None
        self.weights = weights_in_training(self.parts.items())
        for weight in self.weights.values():
            weight.data = weight.data.float()
        for module in self.parts.values():
            begin_as_the_base(module)

    def start_from(self, path: Path, base: LoadedBase) -> None:
        """Load a LoRA in diffusers' format or in kohya's. Raise `BadInput` if it does not fit."""
        for part, state in read_lora(path, base.family, self.as_parts(), base.unet.config.layers_per_block).items():
            set_peft_model_state_dict(self.parts[part], state)

    def use(self, low: Tensors, sums: Tensors) -> None:
        """Let the layers compute with `low` and add gradients to `sums`, tensors of each weight by its name."""
        for part, module in self.parts.items():
            for name, layer in module.named_modules():
                if isinstance(layer, LowRankLinear | LowRankConvolution):
                    down, up = (f"{part}.{name}.{which}.default.weight" for which in ("lora_A", "lora_B"))
                    layer.views = LowRankViews(low[down], low[up], sums[down], sums[up])

    @torch.no_grad()
    def load(self, weights: Tensors) -> None:
        for name, weight in self.weights.items():
            weight.copy_(weights[name])

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Put the adapter into evaluation mode inside this context, without compiling."""
        for module in self.parts.values():
            module.eval()
        try:
            with uncompiled():
                yield
        finally:
            for module in self.parts.values():
                module.train()

    def state_of(self, part: str) -> Tensors:
        """Return the weights of a part under PEFT's names, which leave out the adapter's name."""
        return get_peft_model_state_dict(self.parts[part])

    def as_parts(self) -> dict[str, LoraPart]:
        """Return the weights of each model in the form in which files are written and read."""
        return {
            part: LoraPart(weights=self.state_of(part), config=config, originals=originals(self.parts[part]))
            for part, config in self.configs.items()
        }

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Use the base alone inside this context."""
        for module in self.parts.values():
            module.disable_adapters()
        try:
            yield
        finally:
            for module in self.parts.values():
                module.enable_adapters()

    def checkpoint_gradients(self) -> None:
        """Recompute activations in the backward pass instead of keeping them (Chen et al. 2016)."""
        for part, module in self.parts.items():
            if part == UNET:  # a CUDA graph can be captured only if no random state is saved
                module.enable_gradient_checkpointing(
                    partial(checkpoint, use_reentrant=False, preserve_rng_state=self.draws)
                )
            else:
                module.gradient_checkpointing_enable({"use_reentrant": False})

    @property
    def draws(self) -> bool:
        """Whether a pass of the U-Net draws random numbers."""
        return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in self.parts[UNET].modules())


def originals(module: torch.nn.Module) -> dict[str, Any]:
    """Return the layers under the low-rank weights, without them, by their names in `module`."""
    return {name: layer.get_base_layer() for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}


def _add(module: Any, config: LoraConfig | LoKrConfig) -> None:
    if isinstance(config, LoraConfig):
        module.add_adapter(config)
        return
    KroneckerModel(module, config, "default")  # what add_adapter does, but with layers of our own
    module._hf_peft_config_loaded = True
    module.set_adapter("default")


@torch.no_grad()
def begin_as_the_base(module: torch.nn.Module) -> None:
    """Initialise the norms of each DoRA layer from its weights in float32, as its passes compute them. PEFT rounds them to the base's
    precision."""
    layers: list[Any] = [layer for layer in module.modules() if isinstance(layer, LoraLayer)]
    for layer in layers:
        for name, dora in layer.lora_magnitude_vector.items():
            weight = layer.get_base_layer().weight.float()
            up, down = (part[name].weight.flatten(1).float() for part in (layer.lora_B, layer.lora_A))
            dora.weight.data = dora.get_weight_norm(weight, (up @ down).reshape(weight.shape), layer.scaling[name])


def check_patterns(spec: LoraSpec, parts: dict[str, Any]) -> None:
    """Raise `BadInput` for a pattern that matches no layer of the base's `parts`."""
    names = [layer_name(part, name) for part, module in parts.items() for name in layers_of(module)]
    for setting, patterns in patterns_without_layers(spec, names).items():
        raise BadInput(f"{setting} do not fit this base: no layer's name matches {', '.join(patterns)}")


def layers_of(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the layers that can have a LoRA, by their names in `module`."""
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, kinds)}


def _kernel(layer: Any) -> int:
    return layer.kernel_size[0] if isinstance(layer, torch.nn.Conv2d) else 1


def _config(spec: LoraSpec, part: str, module: torch.nn.Module) -> LoraConfig | LoKrConfig:
    layers = layers_of(module)
    found = {name: layer_rank(spec, part, name, _kernel(layer)) for name, layer in layers.items()}
    ranks = {name: rank for name, rank in found.items() if rank}
    if spec.algorithm == "lokr":
        ranks = {name: _of_product(spec, layers[name], rank) for name, rank in ranks.items()}
    common: dict[str, Any] = {
        "r": spec.rank,
        "target_modules": _targets(spec, part, list(ranks)),
        "rank_pattern": _by_names({name: each.rank for name, each in ranks.items() if each.rank != spec.rank}),
        "alpha_pattern": _by_names({name: each.alpha for name, each in ranks.items() if each.alpha != spec.alpha}),
    }
    if spec.algorithm == "lokr":
        return LoKrConfig(
            alpha=spec.alpha,  # pyright: ignore[reportArgumentType] - as for LoRA
            decompose_factor=spec.lokr_factor or -1,
            use_effective_conv2d=spec.lokr_second_factor == "tucker",
            init_weights="lycoris",
            **common,
        )
    config = LoraConfig(
        lora_alpha=spec.alpha,  # pyright: ignore[reportArgumentType] - peft scales by alpha / r, whole or not
        lora_dropout=spec.dropout,
        use_dora=spec.dora,
        init_lora_weights="gaussian",
        **common,
    )
    own = {torch.nn.Linear: LowRankLinear, torch.nn.Conv2d: LowRankConvolution}
    config._register_custom_module(own)  # PEFT's documented way, experimental
    return config


def _of_product(spec: LoraSpec, layer: Any, wanted: LayerRank) -> LayerRank:
    """Return the rank and alpha by which PEFT makes the second factor as the spec says. One that is whole is not scaled, as in LyCORIS."""
    outputs, inputs = layer.weight.shape[:2]
    factors = factors_of(outputs, inputs, spec.lokr_factor)
    if spec.lokr_second_factor != "full" and not factors.whole(wanted.rank):
        return wanted
    size = max(factors.second)
    return LayerRank(size, float(size))


def _targets(spec: LoraSpec, part: str, names: list[str]) -> list[str] | str:
    """Return what PEFT finds the layers by: ends of their names, or a regular expression of all names where it knows no other."""
    ends = list(spec.target_modules if part == UNET else TEXT_MODULES)
    if not spec.block_ranks and not spec.conv_rank and not any(map(is_pattern, ends)):
        return ends
    if not names:
        raise BadInput(f"block_ranks leave no layer of {part} to train", hint="give some layers a rank above 0")
    return "|".join(map(re.escape, names))


def _by_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of layers as PEFT reads them, by regular expressions of names: one for each value, as it tries all on each layer."""
    names: dict[Any, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(re.escape(name))
    return {f"(?:{'|'.join(some)})": value for value, some in names.items()}
