"""How a command speaks: data on standard output, as text or JSON; words for people on standard error."""

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangline.core.display import printable
from gangline.core.errors import BadInput, GanglineError
from gangline.core.money.cost import CostPart
from gangline.core.operating.log_lines import LogFormat, json_line, mask_secrets
from gangline.core.words import duration_words, listed, usd_words

EXIT_INTERRUPTED = 130
"""After Ctrl-C, as shells have it: 128 + SIGINT."""
PIPE_WIDTH = 200  # a table that goes into a file or another program is not cut


class PlainConsole(Console):
    """A console that shows every string as it is, in cells of tables too: as no markup, and with control characters escaped.
    What has a style or several lines is a `Text`."""

    def render_str(self, text: str, **options: Any) -> Text:
        known = {name: options[name] for name in ("style", "justify", "overflow") if options.get(name)}
        return Text(printable(text), **known)


out = PlainConsole(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = PlainConsole(stderr=True, highlight=False, soft_wrap=True)


class Output(StrEnum):
    text = "text"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Print data as text or as JSON.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", help="Use the server at this URL (default: GANGLINE_SERVER, else the server on this machine)."
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Authenticate with this key (default: GANGLINE_TOKEN, else the operator key of the server on this machine).",
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project", help="Act in this project, as an operator (default: GANGLINE_PROJECT, else the project default)."
    ),
]


def print_json(value: Any) -> None:
    """Print dataclasses, lists of them, and plain JSON values. All that is not ASCII is escaped, so no text can steer a
    terminal."""
    typer.echo(json.dumps(value, default=asdict))


def check_place(file: Path, option: str) -> None:
    """Check that a file can be written, before work that may take long. Raises `BadInput`."""
    if file.is_dir():
        raise BadInput(f"{file} cannot be written: it is a folder", hint=f"give {option} the name of a file")
    if not file.parent.is_dir():
        raise BadInput(
            f"{file} cannot be written: the folder {file.parent} does not exist", hint="create the folder first"
        )


def write_text(file: Path, text: str) -> None:
    """Write a file whose lines end as they do in `text`. Raises `BadInput` where that fails."""
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from None


def as_typed(*words: str) -> str:
    """Write a command as a shell takes it: a name is one word, whatever is in it."""
    return shlex.join(words)


def say(text: str) -> None:
    err.print(text)


def is_confirmed(verb: str, sentence: str, *, for_good: bool = True) -> bool:
    """Say what will be done, `for_good` or not, and ask whether to do it. Raises `BadInput` where nobody can answer."""
    say(f"{sentence}. This cannot be undone." if for_good else sentence)
    try:
        answer = input(f"{verb.capitalize()} it? [y/N] ")
    except EOFError:
        say("")  # the question has no line break, and its answer is missing
        raise BadInput(
            f"{verb.removesuffix('e')}ing needs a confirmation, and standard input is closed",
            hint=f"pass --yes to {verb} without confirmation",
        ) from None
    return answer.strip().lower() in ("y", "yes")


class LineFormatter(logging.Formatter):
    """A message is one line, whatever names it holds, and the lines of a traceback are indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(mask_secrets(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:
        return indent(printable(mask_secrets(super().formatException(ei)), keep="\n"), "  ")


class JsonFormatter(logging.Formatter):
    """A record is one line of JSON. What a caller passes as `extra={"fields": …}` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        return json_line(
            at_s=record.created,
            level=record.levelname,
            logger=record.name,
            message=record.getMessage(),
            traceback=self.formatException(record.exc_info) if record.exc_info else "",
            fields=getattr(record, "fields", None),
        )


def show_log(level: int = logging.INFO, form: LogFormat = "text", *, access: bool = False) -> None:
    """Write on standard error what the program does of itself, such as which nodes it starts and ends, and why; with `access` also each
    request."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("gangline").setLevel(level)
    logging.getLogger("gangline.access").setLevel(logging.INFO if access else logging.WARNING)


def say_error(error: GanglineError) -> None:
    err.print(Text("error:", style="bold red"), error.message)
    if error.hint:
        err.print(Text("hint:", style="bold cyan"), error.hint)


OF_WORDS = (
    "about",
    "name",
    "why",
    "value",
    "source",
    "meaning",
    "receives",
    "because",
    "what happened",
    "old",
    "new",
    "first",
    "second",
    "file",
)
"""Columns that break their lines where a table is too wide; the others are cut only where even that does not suffice."""


def table(*columns: str) -> Table:
    """Make a table. Columns whose header begins with `>` are right-aligned, for numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=column not in OF_WORDS
        )
    return made


def facts(*rows: tuple[str, str | Text]) -> Table:
    """Make a table with a name and a value on each line."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def usd(amount: float) -> str:
    return usd_words(amount * 1e6)


def cost(amount: float, lacks: Sequence[CostPart]) -> str:
    """Return what is known of a cost; one whose price is not known is never shown as nothing."""
    if "node time" not in lacks:
        return usd(amount)
    return f"over {usd(amount)}" if amount else "unknown"


def cost_alone(amount: float, lacks: Sequence[CostPart]) -> str:
    """Return the same for a line that does not say what the number is."""
    known = cost(amount, lacks)
    return "cost unknown" if known == "unknown" else known


def cost_in_words(amount: float, lacks: Sequence[CostPart]) -> str:
    """Return what is known of a cost, and what it lacks."""
    if not lacks:
        return usd(amount)
    known = "unknown" if cost(amount, lacks) == "unknown" else usd(amount)
    return f"{known} (no price is set for {listed(lacks)}: `gangline docs money`)"


def duration(seconds: float | None) -> str:
    return "–" if seconds is None else duration_words(seconds)


def clock(seconds: float | None) -> str:
    """Return a short duration: 9:03, or 1:09:03 with hours."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_time(at_ms: int | None) -> str:
    if at_ms is None:
        return "–"
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
