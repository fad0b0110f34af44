"""Test the cards of this machine: `python -m gangline.train.proof.cards NAME`, with the driver's name for the first of them.

It prints the result as JSON and ends, which frees the cards: a process on standby must not hold any.
"""

import json
import sys
import time
from dataclasses import dataclass

import torch

from gangline.core.runs.proof import BURST, CARD

REPEATS_S = 0.2
"""Seconds of repeated products: long enough to leave the idle clock, short enough that nobody waits for it."""
TOLERANCES = {torch.float32: 5e-3, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""Relative error of a matrix product that no sound card reaches, with its inputs rounded and in tensor cores' formats (TF32)."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The result of a burst. `problem` is empty if the device's products match the CPU's."""

    problem: str
    tflops: float
    dtype: str


def main() -> int:
    problems, measured = examine(sys.argv[1])
    print(json.dumps({"problems": problems, "measured": measured}))  # noqa: T201 - to the process that stands by
    return 0


def examine(shown: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return problems and measurements of all cards that torch sees, if the driver shows at least one."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return {
            CARD: f"torch {torch.__version__} cannot use the {shown} that nvidia-smi shows: {_first_line(error)}"
        }, {}
    measured = {}
    for number in range(torch.cuda.device_count()):
        name = f"{torch.cuda.get_device_name(number)} {number}"
        try:
            found = burst(torch.device("cuda", number))
        except RuntimeError as error:
            return {CARD: f"{name} cannot multiply two matrices: {_first_line(error)}"}, measured
        if found.problem:
            return {BURST: f"{name} computes wrongly: {found.problem}"}, measured
        measured[f"burst {number}"] = f"{found.tflops:.0f} TFLOP/s in {found.dtype}"
    return {}, measured


def burst(device: torch.device, *, size: int = 4096, repeats_s: float = REPEATS_S) -> Burst:
    """Multiply matrices in single and in half precision and measure the speed.

    A part is compared with the CPU's result in float64, and the last product with the first.
    """
    half = _half_of(device)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator) for _ in range(2))
    rows = left[:16].double() @ right.double()
    problem, tflops = "", 0.0
    for dtype in (torch.float32, half):
        first, last, tflops = _repeat(left.to(device, dtype), right.to(device, dtype), repeats_s)
        error = float((first[:16].cpu().double() - rows).norm() / rows.norm())
        if not error < TOLERANCES[dtype]:  # NaN counts as an error too
            problem = problem or f"a product in {_name(dtype)} is off by {error:.1e}"
        elif not torch.equal(first, last):
            problem = problem or f"the same product in {_name(dtype)} differs between repetitions"
    return Burst(problem, tflops, _name(half))


def _repeat(left: torch.Tensor, right: torch.Tensor, seconds: float) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return the first product, the last one, and the speed in TFLOP/s."""
    first = last = left @ right
    _wait_for(left.device)
    began_s, count = time.perf_counter(), 0
    while True:
        last, count = left @ right, count + 1
        _wait_for(left.device)
        took_s = time.perf_counter() - began_s
        if took_s >= seconds:
            return first, last, 2 * left.shape[0] ** 3 * count / took_s / 1e12


def _half_of(device: torch.device) -> torch.dtype:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0):
        return torch.bfloat16
    return torch.float16


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
