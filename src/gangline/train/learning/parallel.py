"""How ranks share a step: each computes its samples' gradient, and they are summed once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from gangline.train.run.ranks import Ranks

SHARDED = ("BasicTransformerBlock", "ResnetBlock2D", "CLIPEncoderLayer")
"""The modules that FSDP gathers one at a time."""


def wrapped_for(
    ranks: Ranks, network: Any, parallel: Literal["ddp", "fsdp"], device: torch.device, dtype: torch.dtype
) -> Any:
    """Return the network as all ranks train it together: itself on a single one."""
    if ranks.count == 1:
        return network
    if parallel == "ddp":
        return DistributedDataParallel(network, broadcast_buffers=False, gradient_as_bucket_view=True)
    half = dtype if dtype != torch.float32 else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = ranks.mesh(device)
    for module in [module for module in network.modules() if type(module).__name__ in SHARDED]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return fully_shard(network, mesh=mesh, mp_policy=policy)


@contextmanager
def exchanging(wrapped: Any, now: bool) -> Iterator[None]:
    """Exchange the gradients of passes inside this context between ranks only if it is `now`: in the last piece of a step."""
    if isinstance(wrapped, DistributedDataParallel) and not now:
        with wrapped.no_sync():
            yield
        return
    if isinstance(wrapped, FSDPModule):
        wrapped.set_requires_gradient_sync(now)
    yield
