"""What decides the bits of a run besides its spec and inputs, and the switches that make those bits repeatable."""

import importlib.metadata
import os
import platform
from collections.abc import Collection
from pathlib import Path

import torch

from gangline.core.runs.contract import LIBRARIES, TRAINER
from gangline.core.specs.lora import LoraSpec
from gangline.train.run.optimiser import PACKAGES

QUANTISES = "bitsandbytes"


class OtherNumerics(ArithmeticError):
    """This machine would not go on with the same bits, and the job asks for them."""


def choose_kernels(*, repeatable: bool) -> None:
    """Where `repeatable`, only those that give the same bits each time; else the fastest. The order of sums follows the number
    of threads, so that is fixed."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(repeatable)
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    torch.backends.cudnn.benchmark = not repeatable
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of(precision: str, on: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the GPU has it (Ampere and later), else float32."""
    if precision == "auto":
        return torch.bfloat16 if on.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def fingerprint(on: torch.device, dtype: torch.dtype, spec: LoraSpec) -> dict[str, str]:
    packages = {PACKAGES.get(spec.optimizer), None if spec.base_precision == "full" else QUANTISES}
    return fingerprint_of(on, dtype, spec.microbatch or spec.samples_per_step, packages=packages)


def fingerprint_of(
    on: torch.device, dtype: torch.dtype, microbatch: int, *, ranks: int = 1, packages: Collection[str | None] = ()
) -> dict[str, str]:
    """`packages`: those that decide bits besides those that every run has."""
    libraries = [*LIBRARIES, *(name for name in packages if name)]
    return {
        "device": _device_name(on),
        "kernels": _kernels(on),
        "dtype": str(dtype).removeprefix("torch."),
        "microbatch": str(microbatch),
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "trainer": TRAINER,
        **{name: version for name in libraries if (version := _version(name))},
    }


def differences(before: dict[str, str], now: dict[str, str]) -> str:
    """What changed, in words: `torch 2.12.0 → 2.13.0`; empty when nothing did."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name, '–')} → {now.get(name, '–')}" for name in names)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device_name(on: torch.device) -> str:
    if on.type == "cuda":
        return torch.cuda.get_device_name(on)
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _kernels(on: torch.device) -> str:
    if on.type == "cuda":
        return f"cuda {torch.version.cuda}, cudnn {torch.backends.cudnn.version()}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
