"""Train, kill, resume: equal bits in each precision. Which attention kernels repeat themselves to the bit. What determinism costs."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import LORA, finish, lora_run, middle_seconds, start, stepped
from benchmarks.on_card.scale import Scale

REPEATS = 20


def cases(scale: Scale) -> Iterator[Case]:
    precisions = ("fp32",) if scale.tiny else ("bf16", "fp16", "fp32")
    yield Case("train, kill, resume", lambda: killed_and_resumed(scale, precisions))
    for precision in precisions:
        yield Case(f"attention, {precision}", partial(attention, scale, precision))
    yield Case("a step", lambda: steps(scale))


def killed_and_resumed(scale: Scale, precisions: tuple[str, ...]) -> Rows:
    """Side by side, as no time is taken of them."""
    _ = scale.sdxl  # made by one of them alone
    with ThreadPoolExecutor(len(precisions)) as threads:
        yield from threads.map(partial(killed_beside_uninterrupted, scale), precisions)


def killed_beside_uninterrupted(scale: Scale, precision: str) -> Figures:
    settings = {"precision": precision, "resolution": scale.exact_side, "checkpoint_every_steps": 3, "steps": 6}
    with lora_run(scale, **settings) as whole, lora_run(scale, **settings) as killed:
        finish(LORA, whole)
        process = start(LORA, killed)
        while not (killed / "checkpoints" / "000003" / "manifest.json").exists():
            if process.poll() is not None:
                raise RuntimeError((killed / "log.txt").read_text()[-2000:])
            threading.Event().wait(0.005)
        process.kill()
        process.wait()
        in_time = not (killed / "output").exists()
        finish(LORA, killed)
        equal = digest_of(whole) == digest_of(killed)
    what = f"LoRA, {precision}, killed after step 3 of 6 and resumed, beside one that was not"
    return {"what": what, "killed in time": in_time, "equal bits": equal}


def digest_of(run: Path) -> str:
    from gangline.core.models.lora_metadata import DIFFUSERS_FILE
    from gangline.train.run.digest import tensors_digest

    return tensors_digest(run / "output" / DIFFUSERS_FILE)


def attention(scale: Scale, precision: str) -> Rows:
    """Forward and backward by each of PyTorch's kernels, with the shapes of SDXL's two levels of attention."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from gangline.train.run import numerics

    numerics.choose_kernels(repeatable=True)
    device = numerics.device()
    kernels = ["FLASH_ATTENTION", "MATH"]
    kernels += [] if scale.tiny else ["EFFICIENT_ATTENTION", "CUDNN_ATTENTION"]
    for shape in ((1, 2, 64, 32),) if scale.tiny else ((1, 10, 4096, 64), (1, 20, 1024, 64)):
        torch.manual_seed(0)
        dtype = numerics.dtype_of(precision, device)
        inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
        for kernel in kernels:
            what = f"attention, {precision}, {' × '.join(map(str, shape))}, {kernel.lower()}"
            with sdpa_kernel(getattr(SDPBackend, kernel)):
                yield {"what": what} | repeated(inputs)


def repeated(inputs: list[Any]) -> Figures:
    """A kernel that refuses to be deterministic says so, and is timed all the same."""
    import torch

    def once() -> list[Any]:
        made = torch.nn.functional.scaled_dot_product_attention(*inputs)
        return [made.detach(), *torch.autograd.grad(made.float().square().sum(), inputs)]

    found: Figures = {}
    for column, deterministic in (("ms, deterministic", True), ("ms, in any order", False)):
        torch.use_deterministic_algorithms(deterministic)
        try:
            if deterministic:
                first = once()
                again = (pair for _ in range(REPEATS) for pair in zip(first, once(), strict=True))
                found[f"equal bits, {REPEATS + 1} times"] = all(torch.equal(one, other) for one, other in again)
            found[column] = 1000 * middle_seconds(once)
        except RuntimeError as error:
            found["because"] = str(error).splitlines()[0][:100]
    return found


def steps(scale: Scale) -> Rows:
    count = 3 if scale.tiny else 12
    taken: dict[str, float] = {}
    for exact in ("preferred", "off"):
        with stepped(scale, exact=exact) as run:
            run.seconds_a_step(3)
            taken[exact] = run.seconds_a_step(count)
    yield {
        "what": f"a LoRA's step, {scale.precision}, {scale.side}²",
        "ms, deterministic": 1000 * taken["preferred"],
        "ms, in any order": 1000 * taken["off"],
        "times as long": taken["preferred"] / taken["off"],
    }
