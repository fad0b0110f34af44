"""Measure how much of a GPU's peak a run uses."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from gangline.core.gpus import kind_of_device


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputMeter:
    """The figures that turn images per second into rates per GPU. `flops_per_image` is of a step's forward and backward pass, `peak_flops`
    (FLOP/s) of one GPU, 0 if unknown."""

    gpus: int
    flops_per_image: float = 0.0
    peak_flops: float = 0.0

    def rates(self, images_per_second: float) -> dict[str, float]:
        """Return rates, named as in gangline.core.runs.metrics."""
        each = images_per_second / self.gpus
        share = {"share_of_peak": each * self.flops_per_image / self.peak_flops} if self.peak_flops else {}
        return {"images_per_second_per_gpu": each} | share


def peak_flops(device: torch.device) -> float:
    """Return the dense peak in FLOP/s with sums in float32, in bf16 or, before Ampere, fp16; 0 for devices that the table lacks."""
    if device.type != "cuda":
        return 0.0
    memory_gb = torch.cuda.get_device_properties(device).total_memory / 2**30
    kind = kind_of_device(torch.cuda.get_device_name(device), memory_gb)
    return kind.tflops * 1e12 if kind else 0.0


def flops(work: Callable[[], object]) -> int:
    """Return the FLOPs of matrix products, convolutions and attention in `work`, including those that checkpointing computes twice."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()
