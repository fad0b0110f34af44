"""`gangline jobs timeline`: what a job did when, and where."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    check_place,
    cost_in_words,
    duration,
    facts,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.charts.job_timeline import draw_job_timeline
from gangline.core.charts.phases import WAITING, TimelineSegment
from gangline.core.display import printable
from gangline.core.jobs.story.band import PaceBand
from gangline.core.jobs.story.views import TimelineView

BAR_CELLS_MAX, BAR_CELLS_MIN, OTHER_CELLS = 60, 10, 80
"""A bar is as wide as the terminal allows beside the other columns."""
WAIT, WORK = "░", "█"
"""What a bar is made of while the job waits, and while a node has it."""


def job_timeline_command(
    job: JobArgument,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the timeline as a picture to this file.", show_default=False)
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what a job did when: its phases and nodes, interruptions, checkpoints, cost."""
    if svg:
        check_place(svg, "--svg")
    client, job = client_and_job(server, token, job)
    found = client.jobs.timeline(job)
    if svg:
        svg.write_text(draw_job_timeline(found.segments, found.marks, f"Timeline of {found.name or found.job}"))
        say(f"wrote {svg}")
    if output is Output.json:
        print_json(found)
    elif not svg:
        out.print(timeline_page(found))


def timeline_page(found: TimelineView) -> Group:
    """Return the sentence about the job, a row for each phase, and one for each mark."""
    about = [
        ("cost", cost_in_words(found.spent[-1].usd, found.cost_lacks)),
        *(("pace", _pace(band)) for band in found.bands),
    ]
    return Group(Text(printable(found.verdict)), Text(), _phases(found), Text(), _marks(found), Text(), facts(*about))


def _phases(found: TimelineView) -> Table:
    cells = max(BAR_CELLS_MIN, min(BAR_CELLS_MAX, out.width - OTHER_CELLS))
    rows = table("since", ">for", "phase", "node", "", "ended")
    for segment in found.segments:
        rows.add_row(
            format_time(segment.from_ms),
            duration((segment.to_ms - segment.from_ms) / 1000),
            segment.phase,
            segment.node_name,
            _bar(found, segment, cells),
            segment.ended,
        )
    return rows


def _bar(found: TimelineView, segment: TimelineSegment, cells: int) -> str:
    """Return the place of a segment in the job's whole time, which takes `cells`; one that is short has a cell, too."""
    whole_ms = max(1, found.until_ms - found.from_ms)
    first = min(cells * (segment.from_ms - found.from_ms) // whole_ms, cells - 1)
    last = max(first + 1, -(-cells * (segment.to_ms - found.from_ms) // whole_ms))
    drawn = (WAIT if segment.phase in WAITING else WORK) * (last - first)
    return f"{' ' * first}{drawn}".ljust(cells)


def _marks(found: TimelineView) -> Table:
    rows = table("when", "what", "node", "why")
    for when, what, node, why in _mark_rows(found):
        rows.add_row(when, what, node, why)
    return rows


def _mark_rows(found: TimelineView) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each mark. Of checkpoints in a row only the last is shown: it is the one that counts."""
    for mark, following in pairwise((*found.marks, None)):
        assert mark is not None, "only the last one is"
        if mark.kind == "committed" and following and following.kind == "committed":
            continue
        step = f" step {mark.step}" if mark.step is not None else ""
        yield format_time(mark.at_ms), f"{mark.kind}{step}", mark.node_name, mark.because


def _pace(band: PaceBand) -> str:
    machines = f"{band.machines} machine{'s' * (band.machines != 1)}"
    return f"{band.low:.3g} to {band.high:.3g} s a step on {band.gpu or 'machines without a GPU'}, median {band.median:.3g} of {machines}"
