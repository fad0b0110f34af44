"""Predict how throughput scales with the number of GPUs: a law fitted to measurements, and a band around its predictions.

At a constant global batch a step on n GPUs takes c0/n + c1 seconds: c0 is work that is shared, c1 is not (the exchange of gradients as far
as computation does not hide it, the optimiser). c0/n holds while a GPU's share of the batch is a whole number of microbatches; otherwise
the last microbatch takes as long as the others. With only one microbatch, communication that further microbatches would hide is exposed:
the step takes longer by the time that was measured there.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, harmonic_mean, mean
from typing import Literal, get_args

How = Literal["measured", "interpolated", "extrapolated", "computed"]
HOWS: tuple[How, ...] = get_args(How)
"""The ways to get a figure, the most certain first."""

BAND_SHARE = 0.90
"""The share of true values that a band should contain."""

MISFIT = 0.0205
"""The relative standard deviation of published rows from the law: over the series of MosaicML's two tables with two or more microbatches a
step and the one at 512 pixels, with two degrees of freedom less for each (benchmarks/estimate.py)."""

MISFIT_ROWS = 2
"""The weight of `MISFIT` in rows: a few measured rows may lie on a line by chance."""

MARGIN_LOG_MAX = 50.0
"""The maximum logarithm of a margin: a wider band says nothing, and would exceed the range of a float."""

DOUBLING_LEAST = 11_600 / 8_530
"""The least gain from doubling the GPUs in published rows: MosaicML's U-Net at 256 pixels, from 64 to 128 GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measured throughput of all `gpus` together."""

    gpus: int
    images_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """The images of a step over all GPUs (`size`), and those that a GPU computes at a time (`microbatch`)."""

    size: int
    microbatch: int

    def microbatches(self, gpus: int) -> int:
        """Return how many microbatches a GPU computes one after another in a step; the last may be smaller."""
        return -(-self.size // (gpus * self.microbatch))

    def share(self, gpus: int) -> float:
        """Return the share of a step's computation for which a GPU is busy: 1/gpus if its microbatches are full."""
        return self.microbatches(gpus) * self.microbatch / self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A law of scaling: an image takes `shared_s` × share(n) + `fixed_s` seconds on n GPUs, with one microbatch a step `exposed_s` more.

    Multiplied by the batch these are c0, c1 and the exposed time, which is None if one must be expected but was not measured. `rows` are
    the measurements, one for each number of GPUs in ascending order; the law was fitted to the first `fitted`. `spread` is the relative
    standard deviation of a row around the law, with `freedom` degrees of freedom. `normal` is the matrix of the fit's normal equations
    ((xx, xy), (xy, yy)), None for a single row.
    """

    shared_s: float
    fixed_s: float
    exposed_s: float | None
    batch: StepBatch | None
    rows: tuple[Measurement, ...]
    fitted: int
    spread: float
    freedom: int
    normal: tuple[float, float, float] | None

    def microbatches(self, gpus: int) -> int | None:
        return self.batch.microbatches(gpus) if self.batch else None

    def share(self, gpus: int) -> float:
        return self.batch.share(gpus) if self.batch else 1 / gpus

    def seconds_per_image(self, gpus: int, *, speed: float = 1.0) -> float:
        """Return the seconds per image. `speed` is a GPU's speed relative to the measured ones; it shortens only the shared time."""
        exposed_s = (self.exposed_s or 0.0) if self.microbatches(gpus) == 1 else 0.0
        return self.shared_s / speed * self.share(gpus) + self.fixed_s + exposed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A throughput in images per second with its band; the band of a measured one is that figure alone."""

    images_per_second: float
    low: float
    high: float
    how: How
    because: str


def fit(measurements: Iterable[Measurement], batch: StepBatch | None = None, *, misfit: float = MISFIT) -> Law:
    """Fit a law by least squares of the relative error.

    Rows with one microbatch a step determine `exposed_s` only, if two others remain. `misfit` replaces that of all published rows, to test
    the law on them. Neither part of a step is negative: if the best fit makes one so, it is 0 and the other is fitted alone.
    """
    rows = _merged(measurements)
    steady = [row for row in rows if not batch or batch.microbatches(row.gpus) > 1]
    fitted = steady if len(steady) > 1 else rows
    points = [((batch.share(row.gpus) if batch else 1 / row.gpus), row.images_per_second) for row in fitted]
    shared_s, fixed_s, normal = _least_squares(points)
    misses = [(shared_s * share + fixed_s) * rate - 1 for share, rate in points]
    freedom = max(MISFIT_ROWS, MISFIT_ROWS + len(points) - 2)
    law = Law(
        shared_s=shared_s,
        fixed_s=fixed_s,
        exposed_s=0.0 if fitted is rows and len(steady) < len(rows) else None,
        batch=batch,
        rows=tuple(rows),
        fitted=len(fitted),
        spread=math.sqrt((MISFIT_ROWS * misfit**2 + sum(miss * miss for miss in misses)) / freedom),
        freedom=freedom,
        normal=normal,
    )
    return _with_exposed(law, [row for row in rows if row not in fitted])


def predict(law: Law, gpus: int) -> Throughput:
    """Return the throughput that was measured on this number of GPUs, or else predict it by the law.

    With two or more rows the band contains `BAND_SHARE` of true values if the law holds with normal relative errors: it is the prediction
    interval t × spread × √(1 + h) of the weighted least squares. The leverage h grows with the distance from the fitted rows; the spread
    is that of the residuals and of published tables (`MISFIT`). Values that no c0, c1 ≥ 0 allow next to the nearest measured rows are cut
    off, except for the spread: more GPUs are not slower, and not faster than in proportion.

    With a single row the band reaches from the least gain of a doubling in published tables to proportional scaling, and has no nominal
    share. It has none where the law is not sufficient, either: with one microbatch a step and no row measured there it reaches down to no
    gain at all, and with partial microbatches up to the throughput of full ones.
    """
    for row in law.rows:
        if row.gpus == gpus:
            rate = row.images_per_second
            return Throughput(images_per_second=rate, low=rate, high=rate, how="measured", because="measured")
    first, last, rate = law.rows[0], law.rows[-1], 1 / law.seconds_per_image(gpus)
    low, high = _single_row_band(first, gpus, rate) if first == last else _band(law, gpus, rate)
    low, high = _beyond_the_law(law, gpus, low, high)
    return Throughput(
        images_per_second=rate,
        low=min(low, rate),
        high=max(high, rate),
        how="interpolated" if first.gpus < gpus < last.gpus else "extrapolated",
        because="; ".join(_reasons(law, gpus)),
    )


def missed(law: Law) -> dict[Measurement, float]:
    """Return the rows that the law misses by more than its band for published rows, each with the relative excess of the prediction."""
    off = {row: 1 / law.seconds_per_image(row.gpus) / row.images_per_second for row in law.rows}
    margin = student_t((1 + BAND_SHARE) / 2, MISFIT_ROWS) * MISFIT
    return {row: ratio - 1 for row, ratio in off.items() if abs(math.log(ratio)) > margin}


def _merged(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return one row for each number of GPUs, with the mean time per image of its measurements."""
    rates = defaultdict[int, list[float]](list)
    for measured in measurements:
        rates[measured.gpus].append(measured.images_per_second)
    return [Measurement(gpus=gpus, images_per_second=harmonic_mean(found)) for gpus, found in sorted(rates.items())]


def _least_squares(points: Sequence[tuple[float, float]]) -> tuple[float, float, tuple[float, float, float] | None]:
    """Return c0, c1 that minimise Σ((c0 x + c1) r − 1)² over the points (x, r); and the sums of (xr)², xr·r and r²."""
    xx = sum((x * r) ** 2 for x, r in points)
    xy = sum(x * r * r for x, r in points)
    yy = sum(r * r for _, r in points)
    x1, y1 = sum(x * r for x, r in points), sum(r for _, r in points)
    determinant = xx * yy - xy * xy
    if determinant <= 1e-12 * xx * yy:  # one row, or the same share on all
        return x1 / xx, 0.0, None
    c0, c1 = (x1 * yy - y1 * xy) / determinant, (xx * y1 - xy * x1) / determinant
    if c1 < 0:
        c0, c1 = x1 / xx, 0.0
    if c0 < 0:
        c0, c1 = 0.0, y1 / yy
    return c0, c1, (xx, xy, yy)


def _with_exposed(law: Law, crowded: Sequence[Measurement]) -> Law:
    """Return the law with `exposed_s` from the rows with one microbatch a step that were not fitted (`crowded`)."""
    if not crowded:
        return law
    more_s = mean(1 / row.images_per_second - law.seconds_per_image(row.gpus) for row in crowded)
    return replace(law, exposed_s=max(0.0, more_s))


def _band(law: Law, gpus: int, rate: float) -> tuple[float, float]:
    quantile = student_t((1 + BAND_SHARE) / 2, law.freedom)
    margin = math.exp(min(MARGIN_LOG_MAX, quantile * law.spread * math.sqrt(1 + _leverage(law, gpus))))
    noise = math.exp(quantile * law.spread)
    low, high = rate / margin, rate * margin
    fewer = [row for row in law.rows if row.gpus < gpus]
    more = [row for row in law.rows if row.gpus > gpus]
    if fewer:
        at = fewer[-1]
        gain = law.share(at.gpus) / law.share(gpus)
        low, high = max(low, at.images_per_second / noise), min(high, at.images_per_second * gain * noise)
    if more:
        at = more[0]
        gain = law.share(gpus) / law.share(at.gpus)
        low, high = max(low, at.images_per_second / gain / noise), min(high, at.images_per_second * noise)
    return low, high


def _leverage(law: Law, gpus: int) -> float:
    """Return the leverage xᵀ(XᵀX)⁻¹x of a row weighted as the fitted ones; 1 for a law from a single row, as for a row of a new kind."""
    if law.normal is None:
        return 1.0
    (xx, xy, yy), second = law.normal, law.seconds_per_image(gpus)
    x, y = law.share(gpus) / second, 1 / second
    return (x * x * yy - 2 * x * y * xy + y * y * xx) / (xx * yy - xy * xy)


def _single_row_band(row: Measurement, gpus: int, rate: float) -> tuple[float, float]:
    doubled = DOUBLING_LEAST ** math.log2(gpus / row.gpus) * row.images_per_second
    return min(rate, doubled), max(rate, doubled)


def _beyond_the_law(law: Law, gpus: int, low: float, high: float) -> tuple[float, float]:
    if _may_expose(law, gpus):
        low = min(low, law.rows[-1].images_per_second)
    if law.batch:
        high *= law.seconds_per_image(gpus) / (law.seconds_per_image(gpus) - law.shared_s * _idle(law, gpus))
    return low, high


def _may_expose(law: Law, gpus: int) -> bool:
    return law.microbatches(gpus) == 1 and law.exposed_s is None


def _idle(law: Law, gpus: int) -> float:
    """Return the share of a step's computation that partial microbatches waste."""
    return max(0.0, law.share(gpus) - 1 / gpus)


def _reasons(law: Law, gpus: int) -> Iterable[str]:
    measured = law.rows
    if len(measured) == 1:
        yield (
            f"in proportion to the one measured number of GPUs, {measured[0].gpus}: the band reaches to what the worst "
            f"published doubling would give ({DOUBLING_LEAST:.2f} times)"
        )
    else:
        yield f"by the law fitted to {law.fitted} measured numbers of GPUs, {measured[0].gpus} to {measured[law.fitted - 1].gpus}"
    if _may_expose(law, gpus):
        yield "with one microbatch a step nothing was measured: at worst it is as slow as on the most GPUs that were measured"
    if law.batch and law.batch.size < gpus * law.batch.microbatch:
        yield "less than one microbatch for each GPU: more GPUs do not make a step shorter"
    elif _idle(law, gpus) > 1e-12:
        yield "the last microbatch of a step is not full"


def student_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t-distribution, within 1.5 % for two or more degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    z, n = NormalDist().inv_cdf(probability), freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
