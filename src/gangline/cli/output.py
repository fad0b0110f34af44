"""How a command speaks: data on standard output, as text or JSON; words for people on standard error."""

import json
import logging
import sys
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gangline.core.errors import BadInput, GanglineError

PIPE_WIDTH = 200  # a table that goes into a file or another program is not cut

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Output(StrEnum):
    text = "text"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How data is printed.")]
ServerOption = Annotated[
    str | None, typer.Option("--server", help="The server's URL; else GANGLINE_SERVER, else the one on this machine.")
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", help="A key; else GANGLINE_TOKEN, else the operator's of this machine's server."),
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="For operators: which project; else GANGLINE_PROJECT, else default.")
]


def print_json(value: Any) -> None:
    """Dataclasses, lists of them, and what JSON knows."""
    typer.echo(json.dumps(value, default=asdict))


def check_place(file: Path, option: str) -> None:
    """Where something is to be drawn: before work that may take long. Raises `BadInput`."""
    if file.is_dir():
        raise BadInput(f"{file} cannot be written: it is a folder", hint=f"{option} takes the name of a file")
    if not file.parent.is_dir():
        raise BadInput(f"{file} cannot be written: there is no folder {file.parent}", hint="make it first")


def say(text: str) -> None:
    err.print(text, markup=False)


def show_log() -> None:
    """What the service does of itself, for people: which nodes it starts and ends, and why."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("gangline").setLevel(logging.INFO)


def say_error(error: GanglineError) -> None:
    err.print(f"[bold red]error:[/] {_plain(error.message)}")
    if error.hint:
        err.print(f"[bold cyan]hint:[/] {_plain(error.hint)}")


def table(*columns: str) -> Table:
    """Columns that begin with `>` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        right, words = column.startswith(">"), column in ("name", "why", "meaning")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=not words)
    return made


def facts(*rows: tuple[str, str]) -> Table:
    """A name and a value on each line."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def usd(amount: float) -> str:
    return f"${amount:.6f}" if 0 < amount < 0.01 else f"${amount:.4f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def moment_or_dash(at_ms: int | None) -> str:
    return "–" if at_ms is None else moment(at_ms)


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
