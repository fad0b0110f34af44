"""A network's blocks, compiled, so that what a step computes follows from the shapes of its samples alone.

Left to itself torch.compile remembers: it makes a size dynamic once it saw it change, keeps a few variants of a function, and then runs
that function uncompiled without a word. Which of these a shape meets is decided by the order in which a process saw all of them, and a run
that goes on in its midst sees another order, so other bits. Here every shape is compiled for itself, and no variant is given up.
"""

from typing import Any

import torch
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.resnet import ResnetBlock2D
from transformers.models.clip.modeling_clip import CLIPEncoderLayer

BLOCKS = (BasicTransformerBlock, ResnetBlock2D, CLIPEncoderLayer)
"""Most of a step's work. Those that are alike share what is compiled, so it takes less time than the whole network would."""
VARIANTS_MAX = 4096
"""Of one kind of block, by its widths and the sizes of the samples: far more than a run can have. One more is an error."""


def compile_blocks(module: torch.nn.Module, *, repeatable: bool) -> None:
    """Compile each block of `module`, for every shape that it is given. Where `repeatable` no choice is left to a measurement of time.

    A block's hooks, such as those that gather sharded weights, stay outside. `uncompiled` says where blocks run as they were.
    """
    _remember_nothing()
    options: dict[str, Any] = {"deterministic": repeatable} if "deterministic" in torch._inductor.list_options() else {}
    for block in module.modules():
        if isinstance(block, BLOCKS):
            block.forward = torch.compile(block.forward, dynamic=False, options=options)  # pyright: ignore[reportAttributeAccessIssue]


def uncompiled() -> Any:
    """While this context lasts, blocks run as they were: for pictures and measurements, whose shapes are few and seen once."""
    return torch.compiler.set_stance("force_eager")


def _remember_nothing() -> None:
    config: Any = torch._dynamo.config
    config.automatic_dynamic_shapes = False
    config.automatic_dynamic_local_pgo = False  # what an earlier process saw, kept on the disk
    config.automatic_dynamic_remote_pgo = False
    config.recompile_limit = config.accumulated_recompile_limit = VARIANTS_MAX
    config.fail_on_recompile_limit_hit = True
