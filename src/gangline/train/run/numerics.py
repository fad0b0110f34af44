"""Whatever decides the bits of a run besides its spec and inputs, and the switches that make those bits repeatable."""

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

from gangline.core.runs.contract import LIBRARIES, TRAINER
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import TrainingSpec
from gangline.train.run.optimiser import PACKAGES

QUANTISES = "bitsandbytes"
COMPILED = "blocks"
"""The parts that `compile` compiles (gangline.train.model.compiled): compiling other parts would give other bits."""
HALF_FROM = (7, 0)
"""The compute capability of the first GPUs with tensor cores, which multiply in float16."""


class OtherNumerics(ArithmeticError):
    """Raised when this machine would not continue with the same bits, although the job requires them."""


def choose_kernels(*, repeatable: bool, precision: str = "auto") -> None:
    """Allow only kernels that give the same bits each time if `repeatable`, else the fastest.

    The number of threads is fixed either way, because it decides the order of sums. A run in fp32 has no TF32 at all; in any other a VAE's
    convolutions, which are in float32, use it.
    """
    # cuBLAS repeats its bits only with a workspace of fixed size.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(repeatable)
    # By default, deterministic mode fills every new tensor, which takes time and helps only code that reads memory before writing it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    torch.backends.cudnn.benchmark = not repeatable
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of(precision: str, on: torch.device) -> torch.dtype:
    """Return the dtype that `precision` names.

    `auto` is bfloat16 on GPUs that compute in it (Ampere, sm_80, and later; AMD's), float16 with a scaled loss on Volta and Turing (V100,
    T4, RTX 20, GTX 16; sm_70 to sm_75), and float32 on older GPUs and on CPUs.

    Volta and Turing hold bfloat16 tensors too, but emulate computing with them: that is several times slower than float16, and only the
    kind of attention that needs most memory works. On GPUs before them float16 itself is slow.
    """
    if precision != "auto":
        return {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    if on.type != "cuda":
        return torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16 if torch.cuda.get_device_capability(on) >= HALF_FROM else torch.float32


def fingerprint(on: torch.device, dtype: torch.dtype, spec: TrainingSpec, *, ranks: int = 1) -> dict[str, str]:
    """Return whatever decides the bits of a run besides its spec and inputs, by name. On data sets the microbatch is found later."""
    of_lora = isinstance(spec, LoraSpec)
    packages = [PACKAGES.get(spec.optimizer), QUANTISES if of_lora and spec.base_precision != "full" else None]
    found = {
        "device": _device_name(on),
        "kernels": _kernels(on),
        "dtype": "tf32" if spec.precision == "tf32" else str(dtype).removeprefix("torch."),
        "microbatch": str((spec.microbatch or spec.samples_per_step) if of_lora else 0),
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "trainer": TRAINER,
        **{name: version for name in (*LIBRARIES, *packages) if name and (version := _version(name))},
    }
    if of_lora:
        return found | ({"compile": COMPILED} if spec.compile else {})
    return found | {
        "parallel": spec.parallel if ranks > 1 else "alone",
        "gradient_checkpointing": "yes" if spec.gradient_checkpointing else "no",
        "compile": COMPILED if spec.compile else "no",
    }


def differences(before: dict[str, str], now: dict[str, str]) -> str:
    """Return what changed, in words: `torch 2.12.0 → 2.13.0`; empty if nothing did."""
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
