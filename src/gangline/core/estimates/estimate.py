"""How long a training takes on so many GPUs, and what it costs: samples ÷ throughput, what interruptions take, GPU-hours × price,
storage and egress."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import harmonic_mean
from typing import Literal

from gangline.core.errors import BadInput
from gangline.core.estimates.daly import HOUR_S, Loss, between_s, least_loss
from gangline.core.estimates.outline import Outline, Phase
from gangline.core.estimates.scaling import BAND_SHARE, How, Law, Throughput, fit, missed, predict
from gangline.core.gpus import Speed, find_kind, speed
from gangline.core.money.cost import GB, HOUR_MS, egress_micro_usd, storage_micro_usd

DAY_H = 24
FACTOR_MAX = 1000
"""A run that takes so many times as long as its training is none."""

SAME = Speed(low=1.0, middle=1.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A phase, or the precompute, on one number of GPUs. `days` with interruptions; the band is `days_low` to `days_high`.

    Of the precompute `how` is `given`: its GPU-hours were, and its throughput is not known.
    """

    phase: str
    how: How | Literal["given"]
    because: str
    microbatches_per_step: int | None
    images_per_second: float | None
    images_per_second_low: float | None
    images_per_second_high: float | None
    days: float
    days_low: float
    days_high: float
    gpu_hours: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All of it on one number of GPUs of a kind. `how` is that of the least certain phase. `images_per_second`: over all phases, while
    training goes on. `efficiency`: GPU-hours of training for what the least GPUs of the table need, without interruptions.

    `usd` = `usd_gpus` + `usd_storage` + `usd_egress`; `usd_low` and `usd_high` are of the band's days. `share_lost` to
    interruptions and checkpoints, of the time of training; `checkpoint_interval_s` is None where nothing interrupts.
    """

    gpu: str
    gpus: int
    how: How
    because: str
    images_per_second: float
    efficiency: float
    days: float
    days_low: float
    days_high: float
    gpu_hours: float
    usd: float
    usd_low: float
    usd_high: float
    usd_per_gpu_hour: float
    usd_gpus: float
    usd_storage: float
    usd_egress: float
    interruptions: float
    share_lost: float
    checkpoint_interval_s: float | None
    phases: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The law of a phase on the GPUs that were measured: a step, or an image where the batch is not known, takes
    `shared_s` ÷ GPUs + `fixed_s`, and with one microbatch `exposed_s` more. `spread` is relative."""

    phase: str
    batch_size: int | None
    shared_s: float
    fixed_s: float
    exposed_s: float | None
    rows: int
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """`band_share`: what share of the true values a band is meant to hold. `notes`: what is to be known of all rows."""

    rows: tuple[Row, ...]
    steps: tuple[Step, ...]
    band_share: float
    notes: tuple[str, ...]


def estimate(outline: Outline) -> Estimate:
    """Raises `BadInput` where interruptions leave a row no end."""
    laws = tuple(fit(phase.measurements, phase.batch) for phase in outline.phases)
    losses = _losses(outline)
    kinds = tuple(outline.gpu) or (outline.measured_on,)
    rows = tuple(row for kind in kinds for row in _rows(outline, laws, kind, losses))
    steps = tuple(_step(phase, law) for phase, law in zip(outline.phases, laws, strict=True))
    return Estimate(rows=rows, steps=steps, band_share=BAND_SHARE, notes=tuple(_notes(outline, laws, rows)))


def _losses(outline: Outline) -> dict[int, Loss | None]:
    """What interruptions take of a run, by its number of GPUs."""
    found = outline.interruptions
    if found is None or found.per_node_hour == 0:
        return dict.fromkeys(outline.counts)
    losses = {
        gpus: least_loss(
            between_s=between_s(per_node_hour=found.per_node_hour, nodes=found.nodes(gpus)),
            checkpoint_s=found.checkpoint_s,
            restart_s=found.restart_s,
        )
        for gpus in outline.counts
    }
    endless = [gpus for gpus, loss in losses.items() if loss.factor > FACTOR_MAX]
    if endless:
        raise BadInput(
            f"on {' or '.join(map(str, endless))} GPUs training would not end: {endless[0]} are interrupted every "
            f"{losses[endless[0]].between_s:.3g} s on average, a checkpoint takes {found.checkpoint_s:g} s and a restart "
            f"{found.restart_s:g} s",
            hint="leave them out, or find nodes that stay longer, faster checkpoints or faster restarts",
        )
    return dict(losses)


def _rows(outline: Outline, laws: tuple[Law, ...], kind: str, losses: dict[int, Loss | None]) -> Iterator[Row]:
    times = _speed(outline, kind)
    first_hours: float | None = None
    for gpus in outline.counts:
        found = tuple(_throughput(law, gpus, times) for law in laws)
        hours = sum(_hours(phase, each) for phase, each in zip(outline.phases, found, strict=True)) * gpus
        first_hours = first_hours or hours
        yield _row(outline, kind, gpus, found, times, losses[gpus], first_hours / hours)


def _speed(outline: Outline, kind: str) -> Speed:
    """Beside the GPUs that were measured."""
    if not outline.gpu or find_kind(kind) == find_kind(outline.measured_on):
        return SAME
    return speed(find_kind(kind), find_kind(outline.measured_on))


def _throughput(law: Law, gpus: int, times: Speed) -> Throughput:
    """On GPUs that compute so many `times` as fast; what the law has as fixed takes as long as where it was measured."""
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


def _hours(phase: Phase, found: Throughput) -> float:
    return phase.images / found.images_per_second / HOUR_S


def _row(
    outline: Outline,
    kind: str,
    gpus: int,
    found: tuple[Throughput, ...],
    times: Speed,
    loss: Loss | None,
    efficiency: float,
) -> Row:
    price = outline.price_usd_per_hour(kind, gpus)
    pairs = tuple(zip(outline.phases, found, strict=True))
    training = tuple(_part(phase, each, gpus, loss.factor if loss else 1.0, price) for phase, each in pairs)
    parts = (*_precompute(outline, gpus, times, price), *training)
    days, days_low, days_high = (
        sum(getattr(part, name) for part in parts) for name in ("days", "days_low", "days_high")
    )
    gpu_hours = sum(part.gpu_hours for part in parts)
    storage, egress = _storage_usd(outline, days), _egress_usd(outline)
    training_hours = sum(part.days for part in training) * DAY_H
    least_certain = max(found, key=lambda each: ("measured", "interpolated", "extrapolated").index(each.how))
    return Row(
        gpu=kind,
        gpus=gpus,
        how=least_certain.how,
        because=least_certain.because,
        images_per_second=_over_all(pairs),
        efficiency=efficiency,
        days=days,
        days_low=days_low,
        days_high=days_high,
        gpu_hours=gpu_hours,
        usd=gpu_hours * price + storage + egress,
        usd_low=days_low * DAY_H * gpus * price + _storage_usd(outline, days_low) + egress,
        usd_high=days_high * DAY_H * gpus * price + _storage_usd(outline, days_high) + egress,
        usd_per_gpu_hour=price,
        usd_gpus=gpu_hours * price,
        usd_storage=storage,
        usd_egress=egress,
        interruptions=training_hours * HOUR_S / loss.between_s if loss else 0.0,
        share_lost=loss.share if loss else 0.0,
        checkpoint_interval_s=loss.interval_s if loss else None,
        phases=parts,
    )


def _over_all(pairs: tuple[tuple[Phase, Throughput], ...]) -> float:
    """All images by all seconds, rounded once: of a single phase what was measured."""
    rates = [Fraction(found.images_per_second) for _, found in pairs]
    return float(harmonic_mean(rates, [phase.images for phase, _ in pairs]))


def _part(phase: Phase, found: Throughput, gpus: int, factor: float, price: float) -> Part:
    days, days_low, days_high = (
        phase.images / rate / HOUR_S / DAY_H * factor for rate in (found.images_per_second, found.high, found.low)
    )
    return Part(
        phase=phase.name,
        how=found.how,
        because=found.because,
        microbatches_per_step=phase.batch.microbatches(gpus) if phase.batch else None,
        images_per_second=found.images_per_second,
        images_per_second_low=found.low,
        images_per_second_high=found.high,
        days=days,
        days_low=days_low,
        days_high=days_high,
        gpu_hours=days * DAY_H * gpus,
        usd=days * DAY_H * gpus * price,
    )


def _precompute(outline: Outline, gpus: int, times: Speed, price: float) -> Iterator[Part]:
    """Its GPU-hours are shared by all: nobody waits, so there is no law to it, and an interruption stops one node only."""
    if outline.precompute is None:
        return
    hours = outline.precompute.gpu_hours
    yield Part(
        phase="precompute",
        how="given",
        because=f"{hours:g} GPU-hours" + ("" if times == SAME else " of the GPUs that were measured"),
        microbatches_per_step=None,
        images_per_second=None,
        images_per_second_low=None,
        images_per_second_high=None,
        days=hours / times.middle / gpus / DAY_H,
        days_low=hours / times.high / gpus / DAY_H,
        days_high=hours / times.low / gpus / DAY_H,
        gpu_hours=hours / times.middle,
        usd=hours / times.middle * price,
    )


def _storage_usd(outline: Outline, days: float) -> float:
    """Data set and checkpoints, for as long as the run lasts."""
    data = outline.data
    size = round((data.dataset_gb + data.checkpoint_gb * data.checkpoints_kept) * GB)
    return storage_micro_usd(size, 0, round(days * DAY_H * HOUR_MS), data.storage_usd_per_gb_month) / 1e6


def _egress_usd(outline: Outline) -> float:
    data = outline.data
    images = sum(phase.images for phase in outline.phases)
    epochs = images / data.dataset_images if data.dataset_images else 1.0
    return egress_micro_usd(round(data.dataset_gb * GB * epochs), data.egress_usd_per_gb) / 1e6


def _step(phase: Phase, law: Law) -> Step:
    batch = phase.batch_size or 1
    return Step(
        phase=phase.name,
        batch_size=phase.batch_size,
        shared_s=law.shared_s * batch,
        fixed_s=law.fixed_s * batch,
        exposed_s=None if law.exposed_s is None else law.exposed_s * batch,
        rows=len(law.rows),
        spread=law.spread,
    )


def _notes(outline: Outline, laws: tuple[Law, ...], rows: tuple[Row, ...]) -> Iterator[str]:
    for phase, law in zip(outline.phases, laws, strict=True):
        yield from _misfits(phase.name, law)
    single = [phase.name for phase, law in zip(outline.phases, laws, strict=True) if len(law.rows) == 1]
    if single and any(row.how == "extrapolated" for row in rows):
        yield f"one measurement tells nothing of how {' and '.join(single)} scales: measure a second number of GPUs"
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
            yield f"{name}: {more.gpus} GPUs did less than {fewer.gpus} ({rates}), which the law does not know: measure again"
    if off := missed(law):
        worst = max(off, key=lambda row: abs(off[row]))
        yield (
            f"{name}: the law misses what was measured by up to {abs(off[worst]):.0%}, on {worst.gpus} GPUs: what it predicts may be "
            "as far off"
        )


def _worth(times: float, rows: tuple[Row, ...]) -> str:
    """What precomputing costs beside what it saves."""
    row = rows[-1]
    made = sum(part.usd for part in row.phases if part.how == "given")
    saved = sum(part.usd for part in row.phases if part.how != "given") * (times - 1)
    which = f"{row.gpus} GPUs{f' {row.gpu}' if row.gpu else ''}"
    return f"on {which} the precompute costs ${made:,.0f} and saves ${saved:,.0f}: training takes {times:g} times as long without"
