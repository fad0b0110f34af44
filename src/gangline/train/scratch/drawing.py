"""A base whose trained parts are what would be the result now, to draw with between two steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import init_empty_weights
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gangline.train.checkpoints import shards
from gangline.train.checkpoints.checkpoint import Tensors
from gangline.train.model.base import Base
from gangline.train.scratch.beginning import UNET
from gangline.train.scratch.learner import Learner


def gathered(learner: Learner) -> dict[str, Tensors]:
    """Return all weights of each part as they would be the result, on the CPU of the first rank, and nothing on the others. All ranks
    call it together.

    They are exchanged by the CPU: a rank without memory on its card could not come to an exchange there, and the others would wait for it.
    """
    mesh = learner.ranks.mesh(torch.device("cpu"))
    averaged: Tensors = learner.average.tensors if learner.average else {}
    found: dict[str, Tensors] = {part: {} for part in learner.network.parts}
    for part, module in learner.network.parts.items():
        state: Tensors = module.state_dict()
        for name, tensor in state.items():
            whole = _whole(tensor, shards.local(averaged.get(f"{part}.{name}", tensor)), mesh)
            if learner.ranks.is_first:
                found[part][name] = whole
    return found


def _whole(like: torch.Tensor, own: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """`own`: the rows of this rank of a tensor that is cut as `like` is."""
    rows = own.detach().to("cpu", copy=True)
    if not isinstance(like, DTensor):
        return rows
    shape = {"shape": like.shape, "stride": like.stride()}
    return DTensor.from_local(rows, mesh, like.placements, run_check=False, **shape).full_tensor()


@contextmanager
def with_whole_parts(base: Base, learner: Learner, weights: dict[str, Tensors]) -> Iterator[None]:
    """`base` with models of `weights` in the place of those that ranks hold in pieces. No other rank takes part in their passes."""
    kept = {name: base.__dict__[name] for name in ("unet", "text_encoders") if name in base.__dict__}
    whole = {part: _of(module, weights[part], learner.device) for part, module in learner.network.parts.items()}
    try:
        base.unet = whole.pop(UNET)
        if whole:
            base.text_encoders = tuple(whole[part] for part in base.family.text_parts)
        yield
    finally:
        base.__dict__.update(kept)


def _of(module: Any, weights: Tensors, device: torch.device) -> Any:
    """Another model as `module`, with `weights`."""
    kind = type(module)
    with init_empty_weights():
        fresh = kind.from_config(module.config) if hasattr(kind, "from_config") else kind(module.config)
    fresh.load_state_dict(weights, assign=True)
    return fresh.requires_grad_(False).to(device).eval()
