"""How throughput grows with the number of GPUs: a law fitted to what was measured, and a band around what it predicts.

At a constant global batch a step on n GPUs takes c0/n + c1 seconds: what is shared out, and what is not (the exchange of
gradients as far as nothing hides it, the optimiser). It is c0/n while a GPU's part of the batch is a whole number of
microbatches; else the last one takes as long as the others. With one microbatch a step is short enough for what other
microbatches had hidden to show: then it takes longer by what was measured there.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, harmonic_mean, mean
from typing import Literal, get_args

How = Literal["measured", "interpolated", "extrapolated", "computed"]
HOWS: tuple[How, ...] = get_args(How)
"""From the most certain to the least."""

BAND_SHARE = 0.90
"""A band is meant to hold so many of the true values."""

MISFIT = 0.0205
"""How far published rows lie from the law, relative, as a standard deviation: over the series of MosaicML's two tables at two
or more microbatches a step and the one at 512 pixels, with two degrees of freedom less for each (benchmarks/estimate.py)."""

MISFIT_ROWS = 2
"""`MISFIT` counts as much as so many rows: of few rows some lie on a line by chance."""

MARGIN_LOG_MAX = 50.0
"""A wider band is as good as none, and would leave what a float can hold."""

DOUBLING_LEAST = 11_600 / 8_530
"""The least that doubling the GPUs has gained in published rows: MosaicML's U-Net at 256 pixels, 64 to 128 GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Images per second of all `gpus` together."""

    gpus: int
    images_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Images of a step over all GPUs, and those that a GPU takes at a time."""

    size: int
    microbatch: int

    def microbatches(self, gpus: int) -> int:
        """That a GPU does one after the other in a step; the last may be smaller."""
        return -(-self.size // (gpus * self.microbatch))

    def share(self, gpus: int) -> float:
        """Of a step's computation, for which a GPU is busy: 1/gpus where its microbatches are whole."""
        return self.microbatches(gpus) * self.microbatch / self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Seconds for an image on n GPUs: `shared_s` × share(n) + `fixed_s`, and `exposed_s` more with one microbatch a step.

    Times the batch these are c0, c1 and what shows only there, which is None where that is to be expected and was not measured.
    `rows` were measured, one for each number of GPUs in rising order; the law was fitted to the first `fitted`. `spread`: the
    standard deviation of a row around the law, relative, with `freedom` degrees of freedom. `normal`: the matrix of the fit's
    normal equations ((xx, xy), (xy, yy)), or None of a single row.
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
        """`speed`: how many times faster a GPU computes than those that were measured; the rest takes as long as there."""
        exposed_s = (self.exposed_s or 0.0) if self.microbatches(gpus) == 1 else 0.0
        return self.shared_s / speed * self.share(gpus) + self.fixed_s + exposed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Images per second, and the band around them; of a measured one the band is nothing but itself."""

    images_per_second: float
    low: float
    high: float
    how: How
    because: str


def fit(measurements: Iterable[Measurement], batch: StepBatch | None = None, *, misfit: float = MISFIT) -> Law:
    """Least squares of the relative error. Rows with one microbatch a step are left to `exposed_s` where two others remain. `misfit` is
    another one than that of all published rows, to judge these by.

    Neither part of a step is negative: where the best fit's is, it is 0 and the other one is fitted alone.
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
    """What was measured on so many GPUs, else what the law says.

    The band of two rows and more holds the share `BAND_SHARE` under the law with normal relative errors: the prediction interval
    t × spread × √(1 + h) of the weighted least squares. The leverage h grows with the distance from the fitted rows; the spread
    is that of the residuals and of published tables (`MISFIT`). What no c0, c1 ≥ 0 allow beside the nearest measured rows is cut
    off, but for the spread: more GPUs are not slower, and not faster than in proportion.

    Of a single row the band reaches from the least that a doubling gained in published tables to proportion, and no share
    is meant. Nor is it where the law says less: with one microbatch a step and no row measured there it reaches down to no gain at
    all, and where microbatches are not whole up to what they would give if they were.
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
    """Rows that do not lie in the band that rows have where the law holds as well as for published ones, and how much more than was
    measured the law says, relative."""
    off = {row: 1 / law.seconds_per_image(row.gpus) / row.images_per_second for row in law.rows}
    margin = student_t((1 + BAND_SHARE) / 2, MISFIT_ROWS) * MISFIT
    return {row: ratio - 1 for row, ratio in off.items() if abs(math.log(ratio)) > margin}


def _merged(measurements: Iterable[Measurement]) -> list[Measurement]:
    """One for each number of GPUs: of several the mean time of an image."""
    rates = defaultdict[int, list[float]](list)
    for measured in measurements:
        rates[measured.gpus].append(measured.images_per_second)
    return [Measurement(gpus=gpus, images_per_second=harmonic_mean(found)) for gpus, found in sorted(rates.items())]


def _least_squares(points: Sequence[tuple[float, float]]) -> tuple[float, float, tuple[float, float, float] | None]:
    """c0, c1 that minimise Σ((c0 x + c1) r − 1)² over the points (x, r); and the sums of (xr)², xr·r and r²."""
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
    """`crowded`: the rows with one microbatch a step that were not fitted."""
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
    """xᵀ(XᵀX)⁻¹x of a row weighed as those that were fitted; 1, as of one more row on its own, where nothing tells."""
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
    """The share of a step's computation that stands for missing images of microbatches that are not whole."""
    return max(0.0, law.share(gpus) - 1 / gpus)


def _reasons(law: Law, gpus: int) -> Iterable[str]:
    measured = law.rows
    if len(measured) == 1:
        yield (
            f"in proportion to the one measured number of GPUs, {measured[0].gpus}: the band reaches to what the worst "
            f"published doubling would give ({DOUBLING_LEAST:.2f} times)"
        )
    else:
        yield f"by the law of {law.fitted} measured numbers of GPUs, {measured[0].gpus} to {measured[law.fitted - 1].gpus}"
    if _may_expose(law, gpus):
        yield "one microbatch a step, where nothing was measured: as slow as the most GPUs measured at worst"
    if law.batch and law.batch.size < gpus * law.batch.microbatch:
        yield "less than one microbatch for each GPU: more GPUs do not make a step shorter"
    elif _idle(law, gpus) > 1e-12:
        yield "the last microbatch of a step is not whole"


def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution, within 1.5 % from two degrees of freedom on (Abramowitz and Stegun 26.7.5)."""
    z, n = NormalDist().inv_cdf(probability), freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
