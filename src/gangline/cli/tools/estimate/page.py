"""The page that `gangline estimate` prints: a table of rows, one of their phases, and why each row is as it is."""

from collections import defaultdict
from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gangline.cli.output import duration, table
from gangline.core.display import printable
from gangline.core.estimates.estimate import Estimate, StepLaw
from gangline.core.estimates.rows import EstimateRow


def estimate_page(found: Estimate) -> Group:
    parts: list[Table | Text] = [_table(found)]
    if len(found.rows[0].phases) > 1:
        parts += [Text(), _phase_table(found)]
    lines = [*_reasons(found), *map(_law, found.steps), *found.notes]
    return Group(*parts, Text(), *(Text(printable(line)) for line in lines))


def _table(found: Estimate) -> Table:
    rows = found.rows
    kinds, interrupted = any(row.gpu for row in rows), any(row.interruptions for row in rows)
    kept = any(row.usd_storage or row.usd_egress for row in rows)
    columns = ["gpu"] * kinds + [">GPUs", ">images/s", ">efficiency", ">days", ">band"]
    columns += [">lost", ">checkpoint every"] * interrupted + [">GPUs $", ">storage $", ">egress $"] * kept
    made = table(*columns, ">$", ">$ band", "row")
    for row in rows:
        cells = [row.gpu] * kinds + [str(row.gpus), f"{row.images_per_second:.1f}", f"{row.efficiency:.1%}"]
        cells += [f"{row.days:.2f}", _band(row, row.days_low, row.days_high, ".2f")]
        if interrupted:
            cells += [f"{row.share_lost:.2%}", duration(row.checkpoint_interval_s)]
        if kept:
            cells += [_usd(row.usd_gpus), _usd(row.usd_storage), _usd(row.usd_egress)]
        made.add_row(*cells, _usd(row.usd), _band(row, row.usd_low, row.usd_high, ",.0f"), row.how)
    return made


def _phase_table(found: Estimate) -> Table:
    kinds = any(row.gpu for row in found.rows)
    made = table("phase", *["gpu"] * kinds, ">GPUs", ">microbatches", ">images/s", ">days", ">$", "row")
    for name in [part.phase for part in found.rows[0].phases]:
        for row in found.rows:
            part = next(part for part in row.phases if part.phase == name)
            rate = "–" if part.images_per_second is None else f"{part.images_per_second:.1f}"
            count = "–" if part.microbatches_per_step is None else str(part.microbatches_per_step)
            cells = [str(row.gpus), count, rate, f"{part.days:.2f}", _usd(part.usd), part.how]
            made.add_row(name, *[row.gpu] * kinds, *cells)
    return made


def _band(row: EstimateRow, low: float, high: float, form: str) -> str:
    return "" if low == high else f"{low:{form}} – {high:{form}}"


def _usd(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def _reasons(found: Estimate) -> Iterator[str]:
    """Yield the reason of each predicted row; rows with the same reason share a line."""
    reasons = defaultdict[str, dict[str, None]](dict)  # each row once, in order
    several = len(found.steps) > 1
    for row in found.rows:
        for part in row.phases:
            if part.how in ("interpolated", "extrapolated", "computed"):
                of = f" ({part.phase})" if several else ""
                words = f"{part.how}{of}, {part.because}"
                reasons[words][f"{row.gpu} {row.gpus}".strip()] = None
    for reason, rows in reasons.items():
        yield f"{', '.join(rows)}: {reason}"
    if any(part.how in ("interpolated", "extrapolated") for row in found.rows for part in row.phases):
        yield f"a band is meant to hold {found.band_share:.0%} of what would be measured, unless its reason says otherwise"


def _law(step: StepLaw) -> str:
    what = f"a step of {step.batch_size} images" if step.batch_size else "an image"
    exposed = f", with one microbatch {step.exposed_s:.3g} s more" if step.exposed_s else ""
    return f"{step.phase}: {what} takes {step.shared_s:.5g} s ÷ GPUs + {step.fixed_s:.3g} s{exposed}"
