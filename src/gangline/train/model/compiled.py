"""Compile a network's blocks so that the result of a step depends on nothing but the shapes of its samples.

By default torch.compile remembers: it makes a size dynamic once that size has changed, keeps a few variants of a function, and beyond that
runs the function uncompiled without a warning. The order in which a process saw its shapes decides which of these applies. A resumed run
sees another order, and so would compute other bits. Here every shape is compiled for itself, and no variant is dropped.
"""

from typing import Any

import torch
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.resnet import ResnetBlock2D
from transformers.models.clip.modeling_clip import CLIPEncoderLayer

BLOCKS = (BasicTransformerBlock, ResnetBlock2D, CLIPEncoderLayer)
"""Most of a step's work. Equal blocks share their compiled code, so compiling them takes less time than compiling the whole network."""
VARIANTS_MAX = 4096
"""Limit per kind of block, over its widths and the sizes of the samples. It is far more than a run can have; exceeding it is an error."""


def compile_blocks(module: torch.nn.Module, *, repeatable: bool) -> None:
    """Compile each block of `module` for every shape that it gets. If `repeatable`, no choice depends on measured time.

    Hooks of a block, such as FSDP's that gather sharded weights, stay outside the compiled code. Within `uncompiled`, blocks run eagerly.
    """
    _remember_nothing()
    options: dict[str, Any] = {"deterministic": repeatable} if "deterministic" in torch._inductor.list_options() else {}
    for block in module.modules():
        if isinstance(block, BLOCKS):
            block.forward = torch.compile(block.forward, dynamic=False, options=options)  # pyright: ignore[reportAttributeAccessIssue]


def uncompiled() -> Any:
    """Run blocks eagerly while this context lasts: for pictures and measurements, whose shapes are few and seen once."""
    return torch.compiler.set_stance("force_eager")


def _remember_nothing() -> None:
    config: Any = torch._dynamo.config
    config.automatic_dynamic_shapes = False
    config.automatic_dynamic_local_pgo = False  # a cache on disk of the shapes that earlier processes saw
    config.automatic_dynamic_remote_pgo = False
    config.recompile_limit = config.accumulated_recompile_limit = VARIANTS_MAX
    config.fail_on_recompile_limit_hit = True
