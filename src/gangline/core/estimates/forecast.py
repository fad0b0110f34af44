"""Forecast the time and GPU memory of a job, each with its certainty and reasons. It needs only the spec, the family of the base and the
kind of GPU, or earlier measurements of the same workload.

    forecast(spec, family, kind)                   computed from the job's FLOP: nothing was measured
    remembered(counted, kind, measured)            the same, with the seconds per step that this workload took before

Downloads, the start of a node and of its programs, checkpoints and uploads are not included.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev
from typing import Any, Literal

from gangline.core.estimates.memory import Memory, lora_memory, scratch_memory
from gangline.core.estimates.scaling import student_t
from gangline.core.estimates.times import (
    DOUBLING,
    NODE_GPUS,
    is_replayed,
    lora_step_s,
    pictures_s,
    prepare_s,
    scratch_step_s,
)
from gangline.core.estimates.utilisation import BALANCES, BAND_SHARE, NONE, Band, beyond, reached_flops
from gangline.core.estimates.work import lora_sample, scratch_sample
from gangline.core.gpus import GpuKind, speed
from gangline.core.models.families import Family
from gangline.core.runs.microbatch import largest
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.shared import IN_FLOAT32

SPREAD_OF_MACHINES = 0.1
"""The difference between GPUs of one kind if too few were measured: the standard deviation of the logarithm of their pace. It is an
assumption with the weight of `SUPPOSED` measurements."""
SUPPOSED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPace:
    """The seconds per step of a workload on a GPU; `gpu` is the name of its kind, or its class if the kind is not known."""

    gpu: str
    seconds_per_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseForecast:
    """A phase of a training from scratch; `seconds_per_step` is for all GPUs together."""

    resolution: int
    steps: int
    batch_size: int
    microbatch: int
    seconds_per_step: Band
    memory: Memory

    @property
    def images_per_second(self) -> Band:
        rates = self.seconds_per_step
        return Band(
            low=self.batch_size / rates.high, middle=self.batch_size / rates.middle, high=self.batch_size / rates.low
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of a job. `how` says that the workload was `measured`, or its work `computed`; if `unknown`, there are no times.

    `prepare_s` is the time for latents, embeddings and class images before the first step, `pictures_s` that for the samples of the result
    after the last. `memory` is for `microbatch` samples at a time, `least_memory` for one. `share` is the share of true times that the
    band should contain, 0 if it has no nominal share. `because` are sentences for people, the most important first.
    """

    gpu: str
    how: Literal["measured", "computed", "unknown"]
    steps: int
    microbatch: int
    seconds_per_step: Band | None
    prepare_s: Band | None
    pictures_s: Band | None
    memory: Memory
    least_memory: Memory
    share: float
    because: tuple[str, ...]
    phases: tuple[PhaseForecast, ...] = ()

    @property
    def training_s(self) -> Band | None:
        return self.seconds_per_step.times(self.steps) if self.seconds_per_step else None

    @property
    def seconds(self) -> Band | None:
        """Return the time of the whole job on one node."""
        if not self.training_s:
            return None
        return self.training_s + (self.prepare_s or NONE) + (self.pictures_s or NONE)

    def usd(self, price_usd_per_hour: float) -> Band | None:
        """Return the cost. `price_usd_per_hour` is for all GPUs of the node that the job uses."""
        return self.seconds.times(price_usd_per_hour / 3600) if self.seconds else None


def forecast(
    spec: LoraSpec | ScratchSpec, family: Family, kind: GpuKind | None, *, gpus: int | None = None
) -> Forecast:
    """Compute a forecast. If `kind` is None, as the GPU is not known or not in the table, it has memory but no times.

    `gpus` is for a training from scratch; the default is the number that the spec asks for.
    """
    if isinstance(spec, LoraSpec):
        return _of_lora(spec, family, kind)
    return _of_scratch(spec, family, kind, gpus or spec.needs.slots)


def remembered(
    counted: Forecast,
    kind: GpuKind | None,
    measured: Sequence[MeasuredPace],
    kinds: Sequence[GpuKind] = (),
    *,
    gpu: str = "",
) -> Forecast:
    """Return the computed forecast (`counted`) with the seconds per step that the same workload took before.

    Measurements on this kind of GPU are preferred; those on other kinds are scaled by data sheet. `gpu` is the class of a GPU whose kind is
    not known; `kinds` are the known kinds of the GPUs in `measured`. If no measurement applies, `counted` is returned.
    """
    name = kind.name if kind else gpu
    took = [each.seconds_per_step for each in measured if each.gpu == name or not name]
    if took:
        return replace(counted, how="measured", gpu=name, share=BAND_SHARE, **_took(took, measured, name, counted))
    known = {each.name: each for each in kinds}
    scaled = [(speed(kind, known[each.gpu]), each) for each in measured if each.gpu in known] if kind else []
    if not kind or not scaled:
        return counted
    on = " and ".join(sorted({each.gpu for _, each in scaled}))
    words = f"this workload ran on {on} before, not on {kind.name}: its times are scaled by the GPUs' data sheets"
    band = Band(
        low=min(each.seconds_per_step / times.high for times, each in scaled),
        middle=median(each.seconds_per_step / times.middle for times, each in scaled),
        high=max(each.seconds_per_step / times.low for times, each in scaled),
    )
    because = (words, *_of_memory(counted.because))
    return replace(counted, how="measured", seconds_per_step=band, share=0.0, because=because)


def _took(seconds: list[float], measured: Sequence[MeasuredPace], name: str, counted: Forecast) -> dict[str, Any]:
    """Return the fields with the band of one more run, by Student's t over logarithms."""
    logs = [math.log(each) for each in seconds]
    own = stdev(logs) if len(logs) > 1 else 0.0
    freedom = SUPPOSED + len(logs) - 1
    spread = math.sqrt((SUPPOSED * SPREAD_OF_MACHINES**2 + (len(logs) - 1) * own**2) / freedom)
    factor = math.exp(student_t((1 + BAND_SHARE) / 2, freedom) * spread * math.sqrt(1 + 1 / len(logs)))
    middle = median(seconds)
    runs = "once" if len(seconds) == 1 else f"{len(seconds)} times"
    if name:
        words = f"this workload ran {runs} on {name} before, at {middle:.3g} s a step"
    else:
        on = ", ".join(sorted({each.gpu for each in measured if each.gpu})) or "GPUs without a name"
        words = f"it is not known which GPU the job will get; this workload ran {runs} before, on {on}, at {middle:.3g} s a step"
    return {
        "seconds_per_step": Band(low=middle / factor, middle=middle, high=middle * factor),
        "because": (words, *_of_memory(counted.because)),
    }


# Computed forecasts


def uncounted(
    spec: LoraSpec | ScratchSpec,
    kind: GpuKind | None,
    memory: Memory,
    least: Memory,
    microbatch: int,
) -> Forecast:
    """Return a forecast without times, and why they are not known. `least` is the memory with one sample at a time."""
    return Forecast(
        gpu=kind.name if kind else "",
        how="unknown",
        steps=spec.steps,
        microbatch=microbatch,
        seconds_per_step=None,
        prepare_s=None,
        pictures_s=None,
        memory=memory,
        least_memory=least,
        share=0.0,
        because=(*_why_not(spec.precision, kind), *_about_memory(least, kind)),
    )


def _of_lora(spec: LoraSpec, family: Family, kind: GpuKind | None) -> Forecast:
    def memory(microbatch: int) -> Memory:
        return lora_memory(spec, family, microbatch=microbatch)

    microbatch = spec.microbatch or _largest_that_fits(memory, kind, spec.samples_per_step)
    found = uncounted(spec, kind, memory(microbatch), memory(1), microbatch)
    if kind is None or _why_not(spec.precision, kind):
        return found
    tflop = spec.samples_per_step * lora_sample(spec, family).flops / 1e12
    return replace(
        found,
        how="computed",
        seconds_per_step=lora_step_s(spec, family, kind, microbatch=microbatch),
        prepare_s=prepare_s(spec, family, kind),
        pictures_s=pictures_s(spec, family, kind),
        share=BAND_SHARE,
        because=(*_why(tflop, kind, replayed=is_replayed(spec), compiled=spec.compile), *found.because),
    )


def _of_scratch(spec: ScratchSpec, family: Family, kind: GpuKind | None, gpus: int) -> Forecast:
    largest_phase = max(spec.phases, key=lambda phase: phase.resolution)
    microbatch, memory = _scratch_memory(spec, largest_phase, family, kind, gpus)
    least = scratch_memory(spec, largest_phase, family, microbatch=1, gpus=gpus)
    found = uncounted(spec, kind, memory, least, microbatch)
    if kind is None or _why_not(spec.precision, kind):
        return found
    phases = tuple(scratch_phase(spec, phase, family, kind, gpus) for phase in spec.phases)
    seconds = sum((each.seconds_per_step.times(each.steps) for each in phases), NONE).times(1 / spec.steps)
    tflop = largest_phase.batch_size * scratch_sample(spec, largest_phase, family).flops / 1e12
    why = (*_why(tflop, kind, replayed=False, compiled=spec.compile), *_why_shared(gpus))
    return replace(
        found,
        how="computed",
        seconds_per_step=seconds,
        prepare_s=NONE,
        pictures_s=pictures_s(spec, family, kind) if spec.part == "unet" else NONE,
        share=BAND_SHARE,
        because=(*why, *found.because),
        phases=phases,
    )


def scratch_phase(spec: ScratchSpec, phase: TrainingPhase, family: Family, kind: GpuKind, gpus: int) -> PhaseForecast:
    """Return the forecast of a phase on `gpus`, which share the batch evenly."""
    microbatch, memory = _scratch_memory(spec, phase, family, kind, gpus)
    return PhaseForecast(
        resolution=phase.resolution,
        steps=phase.steps,
        batch_size=phase.batch_size,
        microbatch=microbatch,
        seconds_per_step=scratch_step_s(spec, phase, family, kind, microbatch=microbatch, gpus=gpus),
        memory=memory,
    )


def _scratch_memory(
    spec: ScratchSpec, phase: TrainingPhase, family: Family, kind: GpuKind | None, gpus: int
) -> tuple[int, Memory]:
    """Return the microbatch that the phase sets or the trainer would find, and the memory with it."""

    def memory(microbatch: int) -> Memory:
        return scratch_memory(spec, phase, family, microbatch=microbatch, gpus=gpus)

    own = -(-phase.batch_size // gpus)
    microbatch = min(own, phase.microbatch or _largest_that_fits(memory, kind, own))
    return microbatch, memory(microbatch)


def _largest_that_fits(memory: Callable[[int], Memory], kind: GpuKind | None, most: int) -> int:
    """Return the microbatch that the trainer would find: the largest that certainly fits, at least 1; `most` if the GPU is not known."""
    if kind is None:
        return most
    return max(1, largest(most, lambda count: memory(count).fits(kind.memory_gb) == "yes"))


def _why_not(precision: str, kind: GpuKind | None) -> tuple[str, ...]:
    """Return why no times can be computed; empty if they can."""
    if kind is None:
        return ("it is not known which GPU the job will get, so its time is not known either",)
    if precision in IN_FLOAT32:
        return (f"the speed of GPUs in {precision} was not measured, so the time is not known",)
    if precision == "bf16" and kind.computes_in == "fp16":
        return (f"{kind.name} only emulates bf16, at a speed that nobody measured: use precision auto",)
    return ()


def _why(tflop: float, kind: GpuKind, *, replayed: bool, compiled: bool) -> Iterator[str]:
    share = reached_flops(kind) / (kind.tflops * 1e12)
    yield f"computed, not measured: a step of {tflop:.3g} TFLOP, at {share:.0%} of the {kind.tflops:g} TFLOP/s of {kind.name}'s data sheet"
    yield from about_band(kind)
    if not replayed:
        yield "kernels are launched one by one: a slow host takes longer, up to the end of the band"
    if compiled:
        yield "the gain from compile was not measured, so it is not included"


def about_band(kind: GpuKind) -> Iterator[str]:
    meant = f"a band is meant to hold {BAND_SHARE:.0%} of what would be measured"
    yield f"{meant}; its width is the error of such estimates for an H100, an A100 and an RTX 4090"
    if beyond(kind) > FAR:
        more = "more" if kind.tflops * 1e3 / kind.memory_gb_per_s < BALANCES[0] else "less"
        yield f"{kind.name} has {more} memory bandwidth for its TFLOP/s than those, so its band is wider"


def _why_shared(gpus: int) -> Iterator[str]:
    if gpus > NODE_GPUS:
        middle, high = (f"{each - 1:.0%}" for each in DOUBLING[1:])
        yield f"each doubling beyond {NODE_GPUS} GPUs costs {middle} (0 to {high}), as in published rows"


MEMORY = "GB of memory"
FAR = 1.1


def _about_memory(least: Memory, kind: GpuKind | None) -> Iterator[str]:
    if kind and (fits := least.fits(kind.memory_gb)) != "yes":
        may = "does not fit into" if fits == "no" else "may not fit into"
        yield (
            f"it {may} {kind.name}, which has {kind.memory_gb} GB: with one sample at a time it takes {least.low_gb:.1f} to "
            f"{least.high_gb:.1f} {MEMORY}"
        )


def _of_memory(because: tuple[str, ...]) -> Iterator[str]:
    return (each for each in because if is_of_memory(each))


def is_of_memory(sentence: str) -> bool:
    return MEMORY in sentence
