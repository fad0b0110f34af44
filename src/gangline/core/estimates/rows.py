"""Compute a row of an estimate: the days and dollars for a throughput, with interruptions, the precompute, storage and egress."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import harmonic_mean
from typing import Literal

from gangline.core.errors import BadInput
from gangline.core.estimates.outline import Outline, PhaseOutline
from gangline.core.estimates.scaling import HOWS, How, Throughput
from gangline.core.gpus import Speed
from gangline.core.money.cost import GB, HOUR_MS, egress_micro_usd, storage_micro_usd
from gangline.core.runs.daly import HOUR_S, Loss, between_s, least_loss

DAY_H = 24
FACTOR_MAX = 1000
"""The maximum ratio of a run's time to its training time: beyond it, the estimate refuses the run, as it would practically never end."""
SAME = Speed(low=1.0, middle=1.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEstimate:
    """A phase, or the precompute, on one number of GPUs. `days` include interruptions; their band is `days_low` to `days_high`.

    For the precompute `how` is `given`: the user gave its GPU-hours, and its throughput is not known.
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
class EstimateRow:
    """The whole training on one number of GPUs of a kind. `how` is that of the least certain phase.

    `images_per_second` is over all phases, without interruptions. `efficiency` is the GPU-hours of training on the fewest GPUs of the table
    ÷ those of this row, without interruptions. `usd` = `usd_gpus` + `usd_storage` + `usd_egress`; `usd_low` and `usd_high` are for the ends
    of the band of days. `share_lost` is the share of the training time that is lost to interruptions and checkpoints;
    `checkpoint_interval_s` is None if there are no interruptions.
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
    phases: tuple[PhaseEstimate, ...]


def losses_of(outline: Outline) -> dict[int, Loss | None]:
    """Return the loss to interruptions by number of GPUs, None without interruptions. Raises `BadInput` if a run would never end."""
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
            hint="leave these numbers out, or find nodes with fewer interruptions, faster checkpoints or faster restarts",
        )
    return dict(losses)


def estimate_row(
    outline: Outline,
    kind: str,
    gpus: int,
    found: tuple[Throughput, ...],
    times: Speed,
    loss: Loss | None,
    efficiency: float,
) -> EstimateRow:
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
    least_certain = max(found, key=lambda each: HOWS.index(each.how))
    return EstimateRow(
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


def _over_all(pairs: tuple[tuple[PhaseOutline, Throughput], ...]) -> float:
    """Return all images ÷ all seconds. Fractions are exact, so that a single phase keeps the throughput that was measured."""
    rates = [Fraction(found.images_per_second) for _, found in pairs]
    return float(harmonic_mean(rates, [phase.images for phase, _ in pairs]))


def _part(phase: PhaseOutline, found: Throughput, gpus: int, factor: float, price: float) -> PhaseEstimate:
    days, days_low, days_high = (
        phase.images / rate / HOUR_S / DAY_H * factor for rate in (found.images_per_second, found.high, found.low)
    )
    return PhaseEstimate(
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


def _precompute(outline: Outline, gpus: int, times: Speed, price: float) -> Iterator[PhaseEstimate]:
    """Yield the precompute. The GPUs share its GPU-hours evenly: they do not wait for each other; an interruption stops one node only."""
    if outline.precompute is None:
        return
    hours = outline.precompute.gpu_hours
    yield PhaseEstimate(
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
    """Return the cost of storing data set and checkpoints for the duration of the run."""
    data = outline.data
    size = round((data.dataset_gb + data.checkpoint_gb * data.checkpoints_kept) * GB)
    return storage_micro_usd(size, 0, round(days * DAY_H * HOUR_MS), data.storage_usd_per_gb_month) / 1e6


def _egress_usd(outline: Outline) -> float:
    data = outline.data
    images = sum(phase.images for phase in outline.phases)
    epochs = images / data.dataset_images if data.dataset_images else 1.0
    return egress_micro_usd(round(data.dataset_gb * GB * epochs), data.egress_usd_per_gb) / 1e6
