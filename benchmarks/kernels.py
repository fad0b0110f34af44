"""What a step of a LoRA launches, counted on tensors without numbers: SDXL at 1024², batch 1, rank 16, attention only, in bfloat16.

A kernel is an operation that computes; views are counted apart. Attention counts as one kernel forward and one backward, whatever a card
makes of it. Forward and backward passes are counted, with the loss, not the optimiser.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from benchmarks.random_bases import RANK, SDXL
from diffusers import DDPMScheduler
from diffusers.training_utils import cast_training_params
from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from tests.train.learners import imagined_learner
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.low_rank import ATTENTION
from gangline.train.model.layouts import NOISE

META, HALF = torch.device("meta"), torch.bfloat16
aten: Any = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}


class Launched(TorchDispatchMode):
    """The operations that run inside this context."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.views = 0
        self.casts = 0
        self.within = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if self.within:
            return found
        if is_view(func):
            self.views += 1
        else:
            self.kernels[str(func).removeprefix("aten.")] += 1
            self.casts += func in COPIES and found.dtype != args[-1 if func is aten.copy_.default else 0].dtype
        return found


def is_view(func: Any) -> bool:
    return func.is_view or func in (
        aten.detach.default,
        aten.empty.memory_format,
        aten.lift_fresh.default,
        aten._unsafe_view.default,
    )


class OneKernel(torch.autograd.Function):
    """Attention as one kernel there and one back."""

    @staticmethod
    def forward(
        ctx: Any, counted: Launched, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        ctx.counted = counted
        ctx.save_for_backward(query, key, value)
        return computed(counted, "attention", lambda: torch.empty_like(query))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        made = computed(ctx.counted, "attention backward", lambda: tuple(map(torch.empty_like, ctx.saved_tensors)))
        return None, *made


def computed(counted: Launched, name: str, make: Callable[[], Any]) -> Any:
    counted.kernels[name] += 1
    counted.within = True
    try:
        return make()
    finally:
        counted.within = False


@contextmanager
def counting() -> Iterator[Launched]:
    counted = Launched()

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> torch.Tensor:
        return OneKernel.apply(counted, query, key, value)  # pyright: ignore[reportReturnType]

    with mock.patch.object(functional, "scaled_dot_product_attention", attention), counted:
        yield counted


# ------------------------------------------------------------------------------------------------------------- the sides


def unet() -> Any:
    with META:
        return SDXL.unet().to(HALF).requires_grad_(False).train()


def given() -> dict[str, Any]:
    """The arguments of a pass."""
    side = SDXL.side // 8
    with META:
        return {
            "sample": torch.zeros(1, 4, side, side, dtype=HALF),
            "timestep": torch.zeros(1, dtype=torch.long),
            "encoder_hidden_states": torch.zeros(1, 77, sum(SDXL.text), dtype=HALF),
            "added_cond_kwargs": {
                "text_embeds": torch.zeros(1, SDXL.text[1], dtype=HALF),
                "time_ids": torch.zeros(1, 6, dtype=HALF),
            },
        }


def forth_and_back(network: Any) -> Launched:
    some = given()
    with counting() as passes:
        network(**some).sample.backward(some["sample"])
    return passes


def bare() -> Launched:
    """The network alone, with the gradient of what its first attention gets, as in any training of a LoRA on attention."""
    network = unet()
    first = next(module for module in network.modules() if type(module).__name__ == "Transformer2DModel")
    first.register_forward_pre_hook(lambda _, inputs: (inputs[0].detach().requires_grad_(), *inputs[1:]))
    return forth_and_back(network)


def with_peft() -> Launched:
    """PEFT's layers with weights in the network's own dtype."""
    return forth_and_back(with_adapter(unet()))


def script() -> Launched:
    """A step of diffusers' train_dreambooth_lora_sdxl.py in bfloat16: float32 weights in the LoRA, under autocast."""
    network = with_adapter(unet())
    cast_training_params([network], dtype=torch.float32)
    some = given()
    scheduler = DDPMScheduler(**NOISE)
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.to(META)
    noise = some["sample"].clone()
    with counting() as passes:
        noisy = scheduler.add_noise(some["sample"], noise, some["timestep"])
        with AutocastOfCards():
            predicted = network(**some | {"sample": noisy}).sample
        loss = functional.mse_loss(predicted.float(), noise.float(), reduction="none")
        loss.mean(dim=list(range(1, loss.ndim))).mean().backward()
    return passes


def ours() -> Launched:
    """A step of the learner."""
    settings: dict[str, Any] = {"steps": 1, "resolution": SDXL.side, "rank": RANK, "alpha": RANK, "precision": "bf16"}
    learner, batch = imagined_learner(unet(), LoraSpec(base=FilesBase(files=()), photos=(), prompt="", **settings))
    with counting() as passes:
        learner._passes_of([batch])
    return passes


def with_adapter(network: Any) -> Any:
    config = LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights="gaussian", target_modules=list(ATTENTION))
    network.add_adapter(config)
    return network.to(META)


def layers_with_a_lora() -> int:
    return sum(isinstance(layer, LoraLayer) for layer in with_adapter(unet()).modules())


class AutocastOfCards(TorchFunctionMode):
    """What `torch.autocast("cuda", HALF)` casts, which needs a card: the arguments of products to half precision, trained weights once, and
    those of norms to float32."""

    def __init__(self) -> None:
        super().__init__()
        self._casted: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        to = HALF if func in IN_HALF else torch.float32 if func in IN_FLOAT32 else None
        if to is None:
            return func(*args, **(kwargs or {}))
        cast = [self._cast(value, to) for value in args]
        return func(*cast, **{name: self._cast(value, to) for name, value in (kwargs or {}).items()})

    def _cast(self, value: Any, to: torch.dtype) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype in (to, torch.long):
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(to)
        if id(value) not in self._casted:
            self._casted[id(value)] = value.to(to)
        return self._casted[id(value)]


IN_HALF = {functional.linear, functional.conv2d, torch.conv2d, torch.matmul}
IN_FLOAT32 = {functional.layer_norm, functional.group_norm, torch.layer_norm, torch.group_norm}


def kernels() -> None:
    network = bare()
    sides = {"gangline": ours(), "PEFT": with_peft(), "diffusers' script": script()}
    layers = layers_with_a_lora()
    print(f"SDXL at 1024², batch 1, rank {RANK}, {layers} layers with a LoRA, bfloat16, torch {torch.__version__}\n")
    print(f"{'':20} {'kernels':>8} {'a layer':>8} {'casts':>6} {'views':>7}")
    for name, passes in ({"the network alone": network} | sides).items():
        count = passes.kernels.total()
        a_layer = (count - network.kernels.total()) / layers
        print(f"{name:20} {count:8} {a_layer:8.2f} {passes.casts:6} {passes.views:7}")
