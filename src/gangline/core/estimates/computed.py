"""An estimate of a training from scratch that nobody measured: rows from what its steps compute, and what cards reach."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.estimates.estimate import Estimate
from gangline.core.estimates.forecast import Forecast, PhaseForecast, forecast
from gangline.core.estimates.outline import parse_outline, phases_of
from gangline.core.estimates.rows import SAME, Row, losses_of, row_of
from gangline.core.estimates.scaling import Throughput
from gangline.core.estimates.times import DOUBLING, NODE_GPUS
from gangline.core.estimates.utilisation import BAND_SHARE, reached_flops
from gangline.core.estimates.work import scratch_sample
from gangline.core.gpus import Kind, find_kind
from gangline.core.models.families import Family
from gangline.core.specs.scratch import ScratchSpec

MEASURE = "measure it on one: gangline estimate RECIPE --measure"


def computed(
    spec: ScratchSpec, family: Family, prices: Mapping[str, Any], counts: Sequence[int], rest: Mapping[str, Any]
) -> Estimate:
    """A row for each kind of GPU and number of them. `prices`: of a GPU, in dollars an hour, by kind. `rest` is what else an outline has:
    the precompute, interruptions, data. Raises `BadInput`."""
    found = [
        _of_kind(spec, family, find_kind(name), price, tuple(sorted(set(counts))), rest)
        for name, price in prices.items()
    ]
    rows = tuple(row for rows, _ in found for row in rows)
    notes = [note for _, notes in found for note in notes]
    return Estimate(rows=rows, steps=(), band_share=BAND_SHARE, notes=tuple(dict.fromkeys(notes)))


def _of_kind(
    spec: ScratchSpec, family: Family, kind: Kind, price: Any, counts: tuple[int, ...], rest: Mapping[str, Any]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    forecasts = {gpus: forecast(spec, family, kind, gpus=gpus) for gpus in counts}
    first = forecasts[counts[0]]
    if first.how == "unknown":
        raise BadInput(first.because[0], hint=MEASURE)
    phases = [
        phase
        | {
            "gpus": counts,
            "images_per_second": [forecasts[gpus].phases[number].images_per_second.middle for gpus in counts],
        }
        for number, phase in enumerate(phases_of(spec))
    ]
    outline = parse_outline(
        {**rest, "phases": phases, "usd_per_gpu_hour": price}, {"usd_per_gpu_hour": f"--gpu {kind.name}"}
    )
    losses = losses_of(outline)
    because = _why(kind)
    hours = {
        gpus: gpus * sum(each.seconds_per_step.middle * each.steps for each in forecasts[gpus].phases)
        for gpus in counts
    }
    rows = tuple(
        row_of(
            outline,
            kind.name,
            gpus,
            tuple(_throughput(each, because) for each in forecasts[gpus].phases),
            SAME,
            losses[gpus],
            hours[counts[0]] / hours[gpus],
        )
        for gpus in counts
    )
    return rows, tuple(_notes(spec, family, kind, forecasts))


def _throughput(phase: PhaseForecast, because: str) -> Throughput:
    rate = phase.images_per_second
    return Throughput(images_per_second=rate.middle, low=rate.low, high=rate.high, how="computed", because=because)


def _why(kind: Kind) -> str:
    share = reached_flops(kind) / (kind.tflops * 1e12)
    return f"not measured: at {share:.0%} of the {kind.tflops:g} TFLOP/s that {kind.name} has by data sheet"


def _notes(spec: ScratchSpec, family: Family, kind: Kind, forecasts: Mapping[int, Forecast]) -> Iterator[str]:
    least = forecasts[min(forecasts)]
    for name, phase, each in zip(phases_of(spec), spec.phases, least.phases, strict=True):
        tflop = scratch_sample(spec, phase, family).flops / 1e12
        memory, fits = each.memory, each.memory.fits(kind.memory_gb)
        room = "" if fits == "yes" else f", and has {kind.memory_gb}: it {'does' if fits == 'no' else 'may'} not fit"
        yield (
            f"{name['name']}: {tflop:.3g} TFLOP an image; {kind.name} needs {memory.low_gb:.0f} to {memory.high_gb:.0f} GB of memory for "
            f"{each.microbatch} images at a time{room}"
        )
    if any(phase.latents == "auto" for phase in spec.phases) and spec.part == "unet":
        yield "latents are taken from the data set: without them each step encodes its pictures, too"
    if spec.compile:
        yield "what compile gains was not measured, so it is not counted"
    if max(forecasts) > NODE_GPUS:
        middle, high = (f"{each - 1:.0%}" for each in DOUBLING[1:])
        yield f"each doubling beyond {NODE_GPUS} GPUs costs {middle} (0% to {high}), as in published rows"
    yield "kernels are launched one by one: a slow host takes longer, up to the end of the band"
    yield "held-out rows, checkpoints and pictures are left out"
