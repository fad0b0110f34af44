"""How much of what a GPU could do a run gets out of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from gangline.core.gpus import kind_of_device


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputMeter:
    """`flops_per_image` of a step, forwards and backwards; `peak_flops` of one GPU, where it is known."""

    gpus: int
    flops_per_image: float = 0.0
    peak_flops: float = 0.0

    def rates(self, images_per_second: float) -> dict[str, float]:
        """Under the names of gangline.core.runs.metrics."""
        each = images_per_second / self.gpus
        share = {"share_of_peak": each * self.flops_per_image / self.peak_flops} if self.peak_flops else {}
        return {"images_per_second_per_gpu": each} | share


def peak_flops(device: torch.device) -> float:
    """Dense, with sums in float32, in bf16 or, before Ampere, fp16; 0 for what no table has."""
    if device.type != "cuda":
        return 0.0
    memory_gb = torch.cuda.get_device_properties(device).total_memory / 2**30
    kind = kind_of_device(torch.cuda.get_device_name(device), memory_gb)
    return kind.tflops * 1e12 if kind else 0.0


def flops(work: Callable[[], object]) -> int:
    """Of matrix products, convolutions and attention in `work`: what is computed, also what is computed twice to keep less of it."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()
