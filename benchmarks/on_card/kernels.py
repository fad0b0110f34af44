"""Where a LoRA's step spends its time: the dearest kernels, and the gaps between them in which the card waits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import stepped
from benchmarks.on_card.scale import Scale

STEPS = 3
DEAREST = 10


@dataclass(frozen=True)
class Kernel:
    name: str
    from_us: float
    to_us: float


def cases(scale: Scale) -> Iterator[Case]:
    yield Case("a step", lambda: profiled(scale))


def profiled(scale: Scale) -> Rows:
    """Of batch 1, as its trainer takes it. Without a card the operators that Python calls stand for kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_card = torch.cuda.is_available()
    with stepped(scale) as run:
        run.seconds_a_step(3)
        alone_s = run.seconds_a_step(3 if scale.tiny else 12)
        with profile(activities=[ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU]) as recorded:
            step_s = run.seconds_a_step(STEPS)
    kernels = sorted(kernels_of(recorded.events(), on_card), key=lambda kernel: kernel.from_us)
    waits = gaps(kernels)
    yield {"what": "a step, not recorded", "ms/step": 1000 * alone_s}
    yield {"what": "a step, recorded", "ms/step": 1000 * step_s, "% of a step": 100.0}
    yield {"what": "all kernels"} | shares([one.to_us - one.from_us for one in kernels], step_s)
    yield {"what": "all gaps"} | shares([us for _, us in waits], step_s)
    spent = [(kernel.name, kernel.to_us - kernel.from_us) for kernel in kernels]
    for what, found in (("kernel", dearest(spent)), ("gap before", dearest(waits))):
        for name, each_us in found:
            yield {"what": f"{what} {name[:90]}"} | shares(each_us, step_s)


def kernels_of(events: Iterable[Any], on_card: bool) -> Iterator[Kernel]:
    from torch.autograd import DeviceType

    wanted = DeviceType.CUDA if on_card else DeviceType.CPU
    for event in events:
        named_by_hand = getattr(event, "is_user_annotation", False)  # a stretch with kernels in it
        if event.device_type == wanted and event.cpu_parent is None and not named_by_hand:
            yield Kernel(event.name, event.time_range.start, event.time_range.end)


def gaps(kernels: list[Kernel]) -> list[tuple[str, float]]:
    """Return how long nothing ran before each kernel, by the name of the one that ended the wait; they are given by their start."""
    found = []
    busy_to_us = kernels[0].to_us if kernels else 0.0
    for kernel in kernels:
        if kernel.from_us > busy_to_us:
            found.append((kernel.name, kernel.from_us - busy_to_us))
        busy_to_us = max(busy_to_us, kernel.to_us)
    return found


def dearest(spent: list[tuple[str, float]]) -> list[tuple[str, list[float]]]:
    """Return the names that took longest in all, with each time that they took."""
    by_name: dict[str, list[float]] = {}
    for name, us in spent:
        by_name.setdefault(name, []).append(us)
    return sorted(by_name.items(), key=lambda item: -sum(item[1]))[:DEAREST]


def shares(each_us: list[float], step_s: float) -> Figures:
    ms = sum(each_us) / 1000 / STEPS
    return {"ms/step": ms, "% of a step": ms / (10 * step_s), "times a step": round(len(each_us) / STEPS)}
