"""Faults in the middle of a U-Net, in whatever process has this folder on its PYTHONPATH: `GANGLINE_FAULT` says which, as JSON.

kind       memory: as a card that has no room for a pass; other: an error that has nothing to do with memory
where      forward, or backward
ranks      on which ranks it happens
samples    passes of more samples than this are hit
passes     so many passes of them go well before
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "diffusers.models.unets.unet_2d_blocks"


class Finder(MetaPathFinder):
    """Lets Python find the module as ever, and changes its class once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec and spec.loader
        loader: Any = spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            break_down(module, json.loads(os.environ["GANGLINE_FAULT"]))

        loader.exec_module = executed
        return spec


def break_down(blocks: Any, fault: dict[str, Any]) -> None:
    import torch

    error = torch.OutOfMemoryError if fault["kind"] == "memory" else ValueError
    block, passes = blocks.UNetMidBlock2DCrossAttn, [0]
    whole = block.forward

    class Refused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, hidden: Any) -> Any:
            return hidden.view_as(hidden)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise error("this fault was made up")

    def forward(self: Any, hidden: Any, *given: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled() or len(hidden) <= fault["samples"]:
            return whole(self, hidden, *given, **named)
        passes[0] += 1
        if passes[0] <= fault["passes"]:
            return whole(self, hidden, *given, **named)
        if fault["where"] == "forward":
            raise error("this fault was made up")
        return whole(self, Refused.apply(hidden), *given, **named)

    block.forward = forward


if int(os.environ.get("RANK", "-1")) in json.loads(os.environ.get("GANGLINE_FAULT", '{"ranks": []}'))["ranks"]:
    sys.meta_path.insert(0, Finder())
