"""Estimate a training from scratch without measurements: from the FLOP of its steps, and the FLOP/s that GPUs achieve."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.estimates.estimate import Estimate
from gangline.core.estimates.forecast import Forecast, PhaseForecast, forecast, is_of_memory
from gangline.core.estimates.outline import parse_outline, phases_of
from gangline.core.estimates.rows import SAME, EstimateRow, estimate_row, losses_of
from gangline.core.estimates.scaling import Throughput
from gangline.core.estimates.utilisation import BAND_SHARE, reached_flops
from gangline.core.estimates.work import scratch_sample
from gangline.core.gpus import GpuKind, find_kind
from gangline.core.models.families import Family
from gangline.core.specs.scratch import ScratchSpec

MEASURE = "measure it on one: gangline estimate RECIPE --measure"


def computed(
    spec: ScratchSpec, family: Family, prices: Mapping[str, Any], counts: Sequence[int], rest: Mapping[str, Any]
) -> Estimate:
    """Return an estimate with a row for each kind and number of GPUs.

    `prices` are in dollars per GPU and hour, by kind. `rest` has the other fields of an outline: precompute, interruptions, data. Raises
    `BadInput`.
    """
    numbers = sorted(set(counts))
    forecasts = {
        name: {gpus: forecast(spec, family, find_kind(name), gpus=gpus) for gpus in numbers} for name in prices
    }
    for found in forecasts.values():
        if found[numbers[0]].how == "unknown":
            raise BadInput(found[numbers[0]].because[0], hint=MEASURE)
    rows = tuple(row for name, price in prices.items() for row in _of_kind(spec, name, price, forecasts[name], rest))
    notes = (*_of_phases(spec, family, forecasts), *_of_all(spec, forecasts))
    return Estimate(rows=rows, steps=(), band_share=BAND_SHARE, notes=notes)


def _of_kind(
    spec: ScratchSpec, name: str, price: Any, forecasts: Mapping[int, Forecast], rest: Mapping[str, Any]
) -> Iterator[EstimateRow]:
    kind = find_kind(name)
    hours = {
        gpus: gpus * sum(each.seconds_per_step.middle * each.steps for each in found.phases)
        for gpus, found in forecasts.items()
    }
    for gpus, found in forecasts.items():
        phases = [
            phase
            | {"gpus": [gpus], "images_per_second": [each.images_per_second.middle], "microbatch": each.microbatch}
            for phase, each in zip(phases_of(spec), found.phases, strict=True)
        ]
        outline = parse_outline(
            {**rest, "phases": phases, "usd_per_gpu_hour": price}, {"usd_per_gpu_hour": f"--gpu {name}"}
        )
        throughputs = tuple(_throughput(each, kind) for each in found.phases)
        efficiency = hours[min(hours)] / hours[gpus]
        yield estimate_row(outline, kind.name, gpus, throughputs, SAME, losses_of(outline)[gpus], efficiency)


def _throughput(phase: PhaseForecast, kind: GpuKind) -> Throughput:
    rate, share = phase.images_per_second, reached_flops(kind) / (kind.tflops * 1e12)
    because = f"not measured: at {share:.0%} of the {kind.tflops:g} TFLOP/s of {kind.name}'s data sheet"
    return Throughput(images_per_second=rate.middle, low=rate.low, high=rate.high, how="computed", because=because)


def _of_phases(spec: ScratchSpec, family: Family, forecasts: Mapping[str, Mapping[int, Forecast]]) -> Iterator[str]:
    for number, (name, phase) in enumerate(zip(phases_of(spec), spec.phases, strict=True)):
        tflop = scratch_sample(spec, phase, family).flops / 1e12
        takes = [_memory(find_kind(gpu), found[min(found)].phases[number]) for gpu, found in forecasts.items()]
        yield f"{name['name']}: {tflop:.3g} TFLOP an image; memory {', '.join(takes)}"


def _memory(kind: GpuKind, phase: PhaseForecast) -> str:
    memory, fits = phase.memory, phase.memory.fits(kind.memory_gb)
    room = "" if fits == "yes" else f", but {kind.memory_gb} GB {'are' if fits == 'no' else 'may be'} too little"
    return f"{memory.low_gb:.0f} to {memory.high_gb:.0f} GB on {kind.name} with {phase.microbatch} at a time{room}"


def _of_all(spec: ScratchSpec, forecasts: Mapping[str, Mapping[int, Forecast]]) -> Iterator[str]:
    """Yield the notes about all rows, each sentence once."""
    said = [sentence for found in forecasts.values() for sentence in found[max(found)].because[1:]]
    yield from dict.fromkeys(sentence for sentence in said if not is_of_memory(sentence))
    if any(phase.latents == "auto" for phase in spec.phases) and spec.part == "unet":
        yield "latents are assumed to be in the data set: without them each step also encodes its images"
    yield "the time for held-out rows, checkpoints and sample pictures is not included"
