"""`gangline sim map`: what a job costs with each offer alone and with all of them, over a sweep of interruption rates."""

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from gangline.cli.output import Output, OutputOption, err, out, print_json, table, usd
from gangline.core.display import printable
from gangline.core.errors import BadInput

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.sim.choice.sweep import MapRow, Play, Played

FACTOR_MAX = 1000.0


def map_choices_command(
    scenario: Annotated[
        str,
        typer.Argument(
            help="Simulate this scenario with several offers: a name that `gangline sim ls` lists, or a TOML file."
        ),
    ],
    factors: Annotated[
        str,
        typer.Option(help="Multiply all interruption rates by each of these factors, comma-separated."),
    ] = "0.25,0.5,1,2,4,8,16",
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Average over this many seeds.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, metavar="PROCESSES", help="Make this many runs at the same time.")] = 1,
    output: OutputOption = Output.text,
) -> None:
    """Find out which offer is the cheapest at which rate of interruptions, and what the service's own choice costs beside it.

    Each offer of the scenario is played alone, then all of them together, at each factor. The bound is that of a scheduler that knows the
    pace and the rate of each offer and every interruption in advance.
    """
    from gangline.sim.choice.sweep import make_map, plays
    from gangline.sim.scenario import load_scenario

    found = load_scenario(scenario)
    todo = plays(found, _factors(factors), range(seeds))
    rows = list(make_map(list(_played(todo, jobs))))
    if output is Output.json:
        print_json({"scenario": scenario, "title": found.title, "seeds": seeds, "rows": [asdict(row) for row in rows]})
        return
    title = Text(printable(f"{found.title} ({seeds} seeds)" if seeds > 1 else found.title), style="bold")
    says = [Text(printable(found.says, keep="\n"))] if found.says else []
    out.print(Group(title, *says, Text(), _page(rows)))


def _factors(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= factor <= FACTOR_MAX for factor in found):
        raise BadInput(
            f"--factors {text} is no list of numbers from 0 to {FACTOR_MAX:g}", hint="write e.g. --factors 0.25,1,4"
        )
    return found


def _played(todo: "Sequence[Play]", processes: int) -> "Iterator[Played]":
    from gangline.sim.choice.sweep import play_once

    if processes == 1:
        with silence():
            yield from _told(map(play_once, todo), len(todo))
        return
    from multiprocessing import get_context

    with get_context("spawn").Pool(processes, _in_process) as pool:
        yield from _told(pool.imap(play_once, todo), len(todo))


def _in_process() -> None:
    """Ignore Ctrl-C, which the process that started this one handles, and the log of the simulated service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("gangline").setLevel(logging.CRITICAL + 1)


def _told(played: "Iterator[Played]", runs: int) -> "Iterator[Played]":
    for done, each in enumerate(played, 1):
        yield each
        if err.is_terminal:
            err.print(f"{done} of {runs} runs", end="\r" if done < runs else "\n")


@contextmanager
def silence() -> Iterator[None]:
    """Drop the log of the simulated service, which nobody needs."""
    log = logging.getLogger("gangline")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _page(rows: "Sequence[MapRow]") -> Group:
    offers = list(rows[0].alone)
    numbers = {offer: str(number) for number, offer in enumerate(offers, 1)}
    shown = table(
        ">interruptions",
        *(f">{numbers[offer]}" for offer in offers),
        ">ours",
        ">bound",
        ">over the best",
        ">over the bound",
    )
    for row in rows:
        alone = (f"{usd(row.alone[offer])}{' *' if offer == row.best else ''}" for offer in offers)
        over = (f"{row.above_best:+.1%}", f"{row.above_bound:+.1%}")
        shown.add_row(f"× {row.factor:g}", *alone, usd(row.ours), usd(row.bound), *over)
    legend = [Text(printable(f"{numbers[offer]}  {offer}")) for offer in offers]
    left = sum(row.unfinished for row in rows)
    said = "dollars per finished job, everything included; * is the cheapest offer alone"
    notes = [Text(f"{left} jobs did not succeed")] if left else []
    return Group(shown, Text(), *legend, Text(said), *notes)
