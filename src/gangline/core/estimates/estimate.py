"""Estimate the time and cost of a training by number of GPUs: samples ÷ throughput, losses to interruptions, GPU-hours × price, storage
and egress."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gangline.core.estimates.outline import Outline, PhaseOutline
from gangline.core.estimates.rows import SAME, EstimateRow, estimate_row, losses_of
from gangline.core.estimates.scaling import BAND_SHARE, Law, Throughput, fit, missed, predict
from gangline.core.gpus import Speed, find_kind, speed
from gangline.core.runs.daly import HOUR_S, Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLaw:
    """The fitted law of a phase on the measured kind of GPU: a step, or an image if the batch is not known, takes `shared_s` ÷ GPUs +
    `fixed_s` seconds, and `exposed_s` more with one microbatch. `spread` is relative."""

    phase: str
    batch_size: int | None
    shared_s: float
    fixed_s: float
    exposed_s: float | None
    rows: int
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The rows and laws of an estimate. `band_share` is the share of true values that a band should contain; `notes` are about all rows."""

    rows: tuple[EstimateRow, ...]
    steps: tuple[StepLaw, ...]
    band_share: float
    notes: tuple[str, ...]


def estimate(outline: Outline) -> Estimate:
    """Compute an estimate. Raises `BadInput` if a run would never end because of interruptions."""
    laws = tuple(fit(phase.measurements, phase.batch) for phase in outline.phases)
    losses = losses_of(outline)
    kinds = tuple(outline.gpu) or (outline.measured_on,)
    rows = tuple(row for kind in kinds for row in _rows(outline, laws, kind, losses))
    steps = tuple(_step(phase, law) for phase, law in zip(outline.phases, laws, strict=True))
    return Estimate(rows=rows, steps=steps, band_share=BAND_SHARE, notes=tuple(_notes(outline, laws, rows)))


def _rows(outline: Outline, laws: tuple[Law, ...], kind: str, losses: dict[int, Loss | None]) -> Iterator[EstimateRow]:
    times = _speed(outline, kind)
    first_hours: float | None = None
    for gpus in outline.counts:
        found = tuple(_throughput(law, gpus, times) for law in laws)
        hours = sum(_hours(phase, each) for phase, each in zip(outline.phases, found, strict=True)) * gpus
        first_hours = first_hours or hours
        yield estimate_row(outline, kind, gpus, found, times, losses[gpus], first_hours / hours)


def _speed(outline: Outline, kind: str) -> Speed:
    """Return the speed of a kind of GPU relative to the measured one."""
    if not outline.gpu or find_kind(kind) == find_kind(outline.measured_on):
        return SAME
    return speed(find_kind(kind), find_kind(outline.measured_on))


def _throughput(law: Law, gpus: int, times: Speed) -> Throughput:
    """Return the throughput on GPUs that are `times` as fast; the law's fixed time stays as it was measured."""
    found = predict(law, gpus)
    if times == SAME:
        return found
    slower, usual, faster = (
        law.seconds_per_image(gpus) / law.seconds_per_image(gpus, speed=each)
        for each in (times.low, times.middle, times.high)
    )
    because = (
        f"measured on another kind of GPU: by data sheet one computes {times.low:.2f} to {times.high:.2f} times as fast"
    )
    return Throughput(
        images_per_second=usual * found.images_per_second,
        low=slower * found.low,
        high=faster * found.high,
        how="extrapolated",
        because=because if found.how == "measured" else f"{because}; {found.because}",
    )


def _hours(phase: PhaseOutline, found: Throughput) -> float:
    return phase.images / found.images_per_second / HOUR_S


def _step(phase: PhaseOutline, law: Law) -> StepLaw:
    batch = phase.batch_size or 1
    return StepLaw(
        phase=phase.name,
        batch_size=phase.batch_size,
        shared_s=law.shared_s * batch,
        fixed_s=law.fixed_s * batch,
        exposed_s=None if law.exposed_s is None else law.exposed_s * batch,
        rows=len(law.rows),
        spread=law.spread,
    )


def _notes(outline: Outline, laws: tuple[Law, ...], rows: tuple[EstimateRow, ...]) -> Iterator[str]:
    for phase, law in zip(outline.phases, laws, strict=True):
        yield from _misfits(phase.name, law)
    single = [phase.name for phase, law in zip(outline.phases, laws, strict=True) if len(law.rows) == 1]
    if single and any(row.how == "extrapolated" for row in rows):
        yield f"one measurement does not show how {' and '.join(single)} scales: measure a second number of GPUs"
    if any(phase.batch is None for phase in outline.phases) and any(row.how != "measured" for row in rows):
        yield "without batch_size and microbatch, every GPU is taken to have whole microbatches, and more than one a step"
    if outline.precompute and outline.precompute.training_without:
        yield _worth(outline.precompute.training_without, rows)
    rushed = [row for row in rows if row.share_lost > 0.5]
    if rushed:
        told = ", ".join(str(row.gpus) for row in rushed)
        yield f"on {told} GPUs more than half of the time is lost to interruptions and checkpoints"


def _misfits(name: str, law: Law) -> Iterator[str]:
    for fewer, more in pairwise(law.rows):
        if more.images_per_second < fewer.images_per_second:
            rates = f"{more.images_per_second:.1f} images/s and {fewer.images_per_second:.1f}"
            yield f"{name}: {more.gpus} GPUs were slower than {fewer.gpus} ({rates}), which the law cannot describe: measure again"
    if off := missed(law):
        worst = max(off, key=lambda row: abs(off[row]))
        yield (
            f"{name}: the law misses what was measured by up to {abs(off[worst]):.0%}, on {worst.gpus} GPUs: what it predicts may be "
            "as far off"
        )


def _worth(times: float, rows: tuple[EstimateRow, ...]) -> str:
    """Return a sentence that compares the cost of precomputing with its savings."""
    row = rows[-1]
    made = sum(part.usd for part in row.phases if part.how == "given")
    saved = sum(part.usd for part in row.phases if part.how != "given") * (times - 1)
    which = f"{row.gpus} GPUs{f' {row.gpu}' if row.gpu else ''}"
    return f"on {which} the precompute costs ${made:,.0f} and saves ${saved:,.0f}: training takes {times:g} times as long without"
