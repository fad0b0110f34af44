"""Days against GPUs, as SVG or PNG: measured rows filled, predicted ones hollow with their band."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.core.charts.colours import HUES
from gangline.core.errors import BadInput
from gangline.core.estimates.estimate import Estimate
from gangline.core.estimates.rows import EstimateRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "gangline",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
PIXELS_PER_INCH = 200


def draw_estimate(found: Estimate, file: Path) -> None:
    """Draw the estimate in the format of the file's suffix. The same estimate gives the same bytes. Raises `BadInput`
    if matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("a figure needs matplotlib", hint="install it with pip install 'gangline[figures]'") from None
    kinds = list(dict.fromkeys(row.gpu for row in found.rows))
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.add_subplot()
        for kind, hue in zip(kinds, _hues(len(kinds)), strict=True):
            _series(axes, [row for row in found.rows if row.gpu == kind], kind, hue, found.band_share)
        if len(kinds) == 1:
            _details(axes, found.rows)
        _frame(axes, found)
        figure.savefig(file, dpi=PIXELS_PER_INCH, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)


def _hues(count: int) -> list[str]:
    return [HUES[number % len(HUES)] for number in range(count)]


def _series(axes: "Axes", rows: list[EstimateRow], kind: str, hue: str, band_share: float) -> None:
    prefix = f"{kind}, " if kind else ""
    gpus = [row.gpus for row in rows]
    measured, predicted = ([row for row in rows if (row.how == "measured") is is_so] for is_so in (True, False))
    axes.plot(gpus, [row.days for row in rows], color=hue, linewidth=1, alpha=0.6, zorder=2)
    if any(row.days_high > row.days_low for row in rows):
        low, high = [row.days_low for row in rows], [row.days_high for row in rows]
        axes.fill_between(gpus, low, high, color=hue, alpha=0.18, linewidth=0, zorder=1, label=f"{prefix}band")
    if measured:
        at = {"label": f"{prefix}measured", "color": hue, "marker": "o", "linestyle": "none", "zorder": 4}
        axes.plot([row.gpus for row in measured], [row.days for row in measured], **at)
    if predicted:
        below = [row.days - row.days_low for row in predicted]
        above = [row.days_high - row.days for row in predicted]
        axes.errorbar(
            [row.gpus for row in predicted],
            [row.days for row in predicted],
            yerr=[below, above],
            label=f"{prefix}predicted",
            color=hue,
            marker="o",
            markerfacecolor="white",
            markeredgewidth=1.5,
            linestyle="none",
            capsize=4,
            zorder=4,
        )


def _details(axes: "Axes", rows: tuple[EstimateRow, ...]) -> None:
    """Draw each row's days, and the line of perfect scaling from the first row. With several kinds of GPUs there is no
    room for them."""
    first, last = rows[0], rows[-1]
    proportion = first.days * first.gpus / last.gpus
    words = {"label": f"in proportion to {first.gpus} GPUs", "color": "#999", "linestyle": (0, (4, 3)), "linewidth": 1}
    axes.plot([first.gpus, last.gpus], [first.days, proportion], zorder=1, **words)
    for row in rows:
        at = {"xytext": (6, 6), "textcoords": "offset points", "fontsize": 9, "color": "#444"}
        axes.annotate(f"{row.days:.2f}", (row.gpus, row.days), **at)


def _frame(axes: "Axes", found: Estimate) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted({row.gpus for row in found.rows})))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("GPUs")
    axes.set_ylabel("days")
    axes.grid(color="#ddd", linewidth=0.6, zorder=0)
    axes.margins(x=0.09)
    axes.legend(frameon=False)
