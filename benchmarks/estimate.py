"""The estimate beside what MosaicML published: `python benchmarks/estimate.py`. Nothing was measured here.

Both tables from their throughputs, with the relative difference of days and dollars; each row predicted from those before it; each row
predicted from all others of its series, with a band that is made of all rows but this one; and how far the rows lie from the law, which
bands are made of (`MISFIT`).
"""

import csv
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gangline.core.estimates.estimate import estimate
from gangline.core.estimates.outline import parse_outline
from gangline.core.estimates.rows import EstimateRow
from gangline.core.estimates.scaling import BAND_SHARE, Measurement, StepBatch, Throughput, fit, predict

PUBLISHED = Path(__file__).parents[1] / "tests" / "unit" / "estimates" / "published"


def table(name: str) -> list[dict[str, str]]:
    lines = (PUBLISHED / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


TABLE_1, UNET_ONLY = table("mosaic_table1.csv"), table("mosaic_unet_only.csv")
GPUS = [int(row["gpus"]) for row in TABLE_1]


def phase(rows: list[dict[str, str]], of: str, name: str, samples: int, microbatch: int) -> dict[str, object]:
    return {
        "name": name,
        "samples": samples,
        "batch_size": 2048,
        "microbatch": microbatch,
        "gpus": [int(row["gpus"]) for row in rows],
        "images_per_second": [float(row[of]) for row in rows],
    }


SERIES = {
    "SD 2 base, 512 px": (TABLE_1[:-1], "images_per_second", 2_867_200_000, 4),
    "U-Net, 256 px": (UNET_ONLY, "images_per_second_256", 1_126_400_000, 16),
    "U-Net, 512 px": (UNET_ONLY, "images_per_second_512", 1_740_800_000, 16),
}


def beside(title: str, rows: tuple[EstimateRow, ...], published: list[dict[str, str]]) -> None:
    print(f"\n{title}\n{'GPUs':>5} {'days':>8} {'published':>10} {'':>8} {'usd':>9} {'published':>10}")
    for ours, theirs in zip(rows, published, strict=True):
        days, usd = float(theirs["days"]), float(theirs["usd"])
        by_days, by_usd = ours.days / days - 1, ours.usd / usd - 1
        print(
            f"{ours.gpus:5} {ours.days:8.2f} {days:10.2f} {by_days:+8.3%} {ours.usd:9,.0f} {usd:10,.0f} {by_usd:+8.2%}"
        )


def tables() -> None:
    first = phase(TABLE_1, "images_per_second", "training", 2_867_200_000, 4)
    both = [phase(rows, of, name, samples, batch) for name, (rows, of, samples, batch) in list(SERIES.items())[1:]]
    for title, phases, published in (("Table 1", [first], TABLE_1), ("U-Net only, both phases", both, UNET_ONLY)):
        found = estimate(parse_outline({"phases": phases, "usd_per_gpu_hour": 2}))
        beside(title, found.rows, published)


def predictions() -> None:
    print(f"\n{'each row from those before it':30} {'GPUs':>5} {'predicted':>10} {'band':>19} {'published':>10}")
    for name, (rows, of, _, microbatch) in SERIES.items():
        batch = StepBatch(size=2048, microbatch=microbatch)
        known = measured(rows, of)
        if of == "images_per_second":  # what its authors extrapolated
            known.append(Measurement(gpus=256, images_per_second=float(TABLE_1[-1][of])))
        for count in range(2, len(known)):
            true, found = known[count], predict(fit(known[:count], batch), known[count].gpus)
            held = "" if found.low <= true.images_per_second <= found.high else "  outside"
            band = f"{found.low:,.1f} – {found.high:,.1f}"
            rates = f"{found.images_per_second:10,.1f} {band:>19} {true.images_per_second:10,.1f}"
            print(f"{name:30} {true.gpus:5} {rates} {found.images_per_second / true.images_per_second - 1:+8.1%}{held}")


@dataclass(frozen=True)
class LeftOut:
    """A published row, and what all others of its series say of it."""

    series: str
    true: Measurement
    found: Throughput

    @property
    def error(self) -> float:
        return self.found.images_per_second / self.true.images_per_second - 1

    @property
    def is_held(self) -> bool:
        return self.found.low <= self.true.images_per_second <= self.found.high


def each_left_out() -> Iterator[LeftOut]:
    for name, (rows, of, _, microbatch) in SERIES.items():
        known, batch = measured(rows, of), StepBatch(size=2048, microbatch=microbatch)
        for true in known:
            law = fit([row for row in known if row != true], batch, misfit=misfit((name, true)))
            yield LeftOut(name, true, predict(law, true.gpus))


def left_out() -> None:
    print(
        f"\n{'each row from all others':24} {'GPUs':>5} {'predicted':>10} {'band':>19} {'published':>10} {'error':>6}  row"
    )
    rows = list(each_left_out())
    for row in rows:
        found, band = row.found, f"{row.found.low:,.1f} – {row.found.high:,.1f}"
        rates = f"{found.images_per_second:10,.1f} {band:>19} {row.true.images_per_second:10,.1f}"
        held = "" if row.is_held else ", outside"
        print(f"{row.series:24} {row.true.gpus:5} {rates} {row.error:+6.1%}  {found.how}{held}")
    errors = [abs(row.error) for row in rows]
    print(
        f"{len(rows)} rows: {sum(row.is_held for row in rows)} in their bands, which are meant to hold {BAND_SHARE:.0%}; "
        f"error in the middle {statistics.median(errors):.1%}, at most {max(errors):.1%}"
    )


def measured(rows: list[dict[str, str]], of: str) -> list[Measurement]:
    return [Measurement(gpus=int(row["gpus"]), images_per_second=float(row[of])) for row in rows]


def steady(name: str, rows: list[dict[str, str]], of: str) -> list[Measurement]:
    """Of U-Net at 256 pixels without 128 GPUs: there a single microbatch is left, and it shows."""
    return measured(rows, of)[:-1] if name == "U-Net, 256 px" else measured(rows, of)


def misfits(without: tuple[str, Measurement] | None = None) -> Iterator[tuple[str, int, float]]:
    """Of each series how many rows it has, and the sum of their squares off the law that is fitted to them."""
    for name, (rows, of, _, _) in SERIES.items():
        points = [point for point in steady(name, rows, of) if (name, point) != without]
        law = fit(points)
        off = sum((law.seconds_per_image(point.gpus) * point.images_per_second - 1) ** 2 for point in points)
        yield name, len(points), off


def misfit(without: tuple[str, Measurement] | None = None) -> float:
    found = list(misfits(without))
    return math.sqrt(sum(off for _, _, off in found) / sum(rows - 2 for _, rows, _ in found))


def deviations() -> None:
    print(f"\n{'from the law, relative':30} {'rows':>5} {'deviation':>10}")
    for name, rows, off in misfits():
        print(f"{name:30} {rows:5} {math.sqrt(off / (rows - 2)):10.2%}")
    print(f"{'all':30} {'':5} {misfit():10.2%}")
    rates = {name: [float(row[of]) for row in rows] for name, (rows, of, _, _) in SERIES.items()}
    gains = {name: ", ".join(f"{b / a:.2f}" for a, b in pairwise(found)) for name, found in rates.items()}
    print("\ndoubling gained " + "; ".join(f"{name} {found}" for name, found in gains.items()))


if __name__ == "__main__":
    tables()
    predictions()
    left_out()
    deviations()
