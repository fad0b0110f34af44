"""The low-rank weights on the parts of a base, by name: `unet.down_blocks.0…lora_A.default.weight`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from torch.utils.checkpoint import checkpoint

from gangline.core.errors import BadInput
from gangline.core.models.lora_names import TEXT_MODULES
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.export import LoraPart
from gangline.train.lora.init_lora import read_lora
from gangline.train.lora.low_rank import LowRankLinear, LowRankViews
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
        self.configs = {part: _config(spec, part) for part in self.parts}
        chance.seed_torch(spec.seed, "initial weights")
        for part, module in self.parts.items():
            try:
                module.add_adapter(self.configs[part])
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
                if isinstance(layer, LowRankLinear):
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


def _config(spec: LoraSpec, part: str) -> LoraConfig:
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,  # pyright: ignore[reportArgumentType] - peft scales by alpha / r, whole or not
        lora_dropout=spec.dropout,
        use_dora=spec.dora,
        init_lora_weights="gaussian",
        target_modules=list(spec.target_modules if part == UNET else TEXT_MODULES),
    )
    config._register_custom_module({torch.nn.Linear: LowRankLinear})  # PEFT's documented way, experimental
    return config
