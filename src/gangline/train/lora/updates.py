"""What a LoRA or a LoKr changes of each layer of a model: its tensors, and the sum that they stand for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import LoKrConfig, LoraConfig
from peft.utils.other import get_pattern_key

from gangline.core.models.lora_names import KRONECKER
from gangline.train.tensors import Tensors

EPSILON = torch.finfo(torch.float32).eps
"""ComfyUI and Forge add this to a norm that they divide by."""
DOWN, UP, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankLayer:
    """A module's low-rank update: W + alpha/rank · up @ down, where `down` is (rank, in, …) and `up` (out, rank, …).

    `magnitude` is the norm that DoRA (Liu et al. 2024) scales each output's weights to: (out,), or (1, out, 1, 1) for a convolution.
    """

    down: torch.Tensor
    up: torch.Tensor
    magnitude: torch.Tensor | None
    original: Any
    alpha: float

    @property
    def scale(self) -> float:
        return self.alpha / self.down.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class KroneckerLayer:
    """A module's update by a Kronecker product: W + s · w1 ⊗ w2 (LyCORIS, Yeh et al. 2024, §3.2), by the roles of `factors`.

    w1 (l, m) and w2 (k, n, …) are tensors, or products w1_a @ w1_b and w2_a @ w2_b, where w2_b is (rank, n · …); with a core t2
    (rank, rank, …), w2 is Σ_ij t2[i, j] ⊗ w2_a[i] w2_b[j] (a Tucker decomposition). s is alpha/rank, or 1 where both are whole.
    """

    factors: Mapping[str, torch.Tensor]
    alpha: float

    @property
    def rank(self) -> int | None:
        """The rank that `alpha` is divided by; None if both factors are whole."""
        return next((self.factors[role].shape[0] for role in ("lokr_w2_b", "lokr_w1_b") if role in self.factors), None)

    @property
    def scale(self) -> float:
        return self.alpha / self.rank if self.rank else 1.0

    @property
    def first(self) -> torch.Tensor:
        """w1, (l, m)."""
        known = self.factors
        return known["lokr_w1"] if "lokr_w1" in known else known["lokr_w1_a"] @ known["lokr_w1_b"]

    @property
    def second(self) -> torch.Tensor:
        """w2, (k, n · …): flat, as its convolution's pixels follow its inputs."""
        known = self.factors
        if "lokr_w2" in known:
            return known["lokr_w2"].flatten(1)
        if "lokr_t2" not in known:
            return known["lokr_w2_a"] @ known["lokr_w2_b"]
        core = torch.einsum("ijhw,ip,jr->prhw", known["lokr_t2"], known["lokr_w2_a"], known["lokr_w2_b"])
        return core.flatten(1)

    def without_core(self) -> "KroneckerLayer":
        """Return the same update with its core multiplied into w2_b, as a product of the same rank: ComfyUI fails on a core."""
        known = dict(self.factors)
        if "lokr_t2" in known:
            down = torch.einsum("ijhw,jr->irhw", known.pop("lokr_t2"), known["lokr_w2_b"])
            known |= {"lokr_w2_a": known["lokr_w2_a"].T, "lokr_w2_b": down.flatten(1)}
        return KroneckerLayer(factors=known, alpha=self.alpha)

    def change(self, shape: torch.Size) -> torch.Tensor:
        """Return what is added to a weight of this shape. Raise `ValueError` if it has another number of elements."""
        product = torch.kron(self.first.contiguous(), self.second.contiguous())
        if product.shape != (shape[0], shape[1:].numel()):
            raise ValueError(f"{tuple(product.shape)}")
        return self.scale * product.reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraPart:
    """The trained weights of one model of the pipeline, named as by `get_peft_model_state_dict`. `originals` are a DoRA's layers without
    them."""

    weights: Tensors
    config: LoraConfig | LoKrConfig
    originals: Mapping[str, Any] = field(default_factory=dict)

    def layers(self) -> Iterator[tuple[str, LowRankLayer]]:
        """Yield each layer of a LoRA under its module's name in the model."""
        weights = self.weights
        for module in (name.removesuffix(DOWN) for name in weights if name.endswith(DOWN)):
            layer = LowRankLayer(
                down=weights[module + DOWN],
                up=weights[module + UP],
                magnitude=weights.get(module + MAGNITUDE),
                original=self.originals.get(module),
                alpha=self.alpha_of(module),
            )
            yield module, layer

    def products(self) -> Iterator[tuple[str, KroneckerLayer]]:
        """Yield each layer of a LoKr under its module's name in the model."""
        found: dict[str, dict[str, torch.Tensor]] = {}
        for name, weight in self.weights.items():
            module, _, role = name.rpartition(".")
            if role in KRONECKER:
                found.setdefault(module, {})[role] = weight
        for module, factors in found.items():
            yield module, KroneckerLayer(factors=factors, alpha=self.alpha_of(module))

    def alpha_of(self, module: str) -> float:
        config: Any = self.config
        patterns = config.alpha_pattern or {}
        own = config.alpha if isinstance(config, LoKrConfig) else config.lora_alpha
        return float(patterns.get(get_pattern_key(list(patterns), module), own))


@torch.no_grad()
def growth(layer: LowRankLayer) -> torch.Tensor:
    """Return how many times longer the weights of each output are with the LoRA than without, (out,), in float32.

    ComfyUI and Forge divide a DoRA's norms by those of the base's weights; PEFT, like the paper, by those of the sum. This is the factor
    between the two.
    """
    weight = layer.original.weight.float().flatten(1)
    changed = weight + layer.scale * (layer.up.to(weight).flatten(1) @ layer.down.to(weight).flatten(1))
    return changed.norm(dim=1) / (weight.norm(dim=1) + EPSILON)
