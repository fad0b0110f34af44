"""A report as one HTML page that needs no other file and no network: figures, histograms and the timeline."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from gangline.cli.output import cost_in_words, format_time
from gangline.cli.reports.rows import (
    GROUP_COLUMNS,
    counted_rows,
    group_cells,
    no_jobs,
    per_job_rows,
    spent_rows,
    waited_rows,
)
from gangline.core.charts.histogram import draw_histogram
from gangline.core.charts.timeline import draw_timeline
from gangline.core.display import printable
from gangline.core.reports.view import ReportView

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --faint: #666; --rule: #ddd; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e6e6; --faint: #a5a5a5; --rule: #3a3d42; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --faint: #444; --rule: #bbb; } section { break-inside: avoid; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 1280px; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { color: var(--faint); margin: .3rem 0; overflow-wrap: anywhere; }
.tables, .charts { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.charts svg { flex: 1 1 420px; max-width: 600px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
td { font-variant-numeric: tabular-nums; white-space: pre-wrap; } td.number, th.number { text-align: right; }
svg { max-width: 100%; height: auto; }
.timeline > svg > text, .timeline g > text { fill: var(--ink); } .timeline > svg > rect:first-of-type { fill: var(--paper); }
.timeline line { stroke: var(--rule); }
.timeline > svg > rect[fill="#000"], .timeline g rect[fill="#000"] { fill: var(--ink); } .timeline rect[stroke] { stroke: var(--ink); }
"""


def report_page(view: ReportView, title: str) -> str:
    """Return the page. All names and reasons in it are escaped: they are of other people."""
    return "\n".join(_page(view, title)) + "\n"


def _page(view: ReportView, title: str) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{_text(title)}</h1>"
    if view.jobs:
        yield from _body(view)
    else:
        yield f"<p>{_text(no_jobs(title))}</p>"
    yield "</body></html>"


def _body(view: ReportView) -> Iterator[str]:
    yield f"<p>{_text(format_time(view.from_ms))} to {_text(format_time(view.until_ms))}</p>"
    if view.cost_lacks:
        yield f"<p>Known cost: {_text(cost_in_words(view.usd, view.cost_lacks))}</p>"
    yield '<div class="tables">'
    yield from _table("Jobs", ("", "this report"), ((name, show(view)) for name, show in counted_rows([view])))
    yield from _table("Each job", ("", "this report"), ((name, show(view)) for name, show in per_job_rows()))
    spent = (*spent_rows([view]), *waited_rows([view]))
    yield from _table("Time and money", ("", "this report"), ((name, show(view)) for name, show in spent))
    yield "</div>"
    yield '<div class="tables">'
    yield from _table("By GPU", ("GPU", *GROUP_COLUMNS), map(group_cells, view.by_gpu))
    yield from _table("By pool", ("pool", *GROUP_COLUMNS), map(group_cells, view.by_pool))
    yield "</div>"
    yield from _charts(view)
    if view.because:
        yield "<section><h2>Some failures</h2>"
        yield from (f"<p>{_text(because)}</p>" for because in view.because)
        yield "</section>"
    if view.bars:
        jobs = [line.id for line in reversed(view.lines)]
        names = {line.id: printable(line.name) for line in view.lines}
        drawn = draw_timeline("Attempts, coloured by machine", jobs, view.bars, view.until_ms - view.from_ms, names)
        yield f'<section><h2>Timeline</h2><div class="timeline scroll">{drawn}</div></section>'


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table. As in tables on a terminal, columns that begin with `>` are numbers."""
    numbers = [column.startswith(">") for column in columns]
    yield f'<section><h2>{_text(title)}</h2><div class="scroll"><table>'
    if any(numbers):
        yield f"<tr>{''.join(_cells('th', [column.lstrip('>') for column in columns], numbers))}</tr>"
    for row in rows:
        yield f"<tr>{''.join(_cells('td', row, numbers))}</tr>"
    yield "</table></div></section>"


def _cells(tag: str, texts: Sequence[str], numbers: Sequence[bool]) -> Iterator[str]:
    for text, is_number in zip(texts, numbers, strict=True):
        number = ' class="number"' if is_number else ""
        yield f"<{tag}{number}>{_text(text)}</{tag}>"


def _charts(view: ReportView) -> Iterator[str]:
    drawn = [
        draw_histogram(title, found, unit)
        for title, found, unit in (
            ("Minutes on nodes, of each succeeded job", view.minutes, "minutes"),
            ("Dollars in the ledger, of each succeeded job", view.usd_of_jobs, "dollars"),
        )
        if found
    ]
    if drawn:
        yield f'<section><h2>Distributions</h2><div class="charts">{"".join(drawn)}</div></section>'


def _text(text: str) -> str:
    return escape(printable(text))
