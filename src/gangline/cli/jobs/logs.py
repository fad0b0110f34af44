"""`gangline logs`: what a job's trainers printed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.jobs.follow import watching
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json, say
from gangline.core.display import LogText
from gangline.core.views import LogView, ProgressView

if TYPE_CHECKING:
    from gangline.compose.client import Client


def logs_command(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Print the output of a job's trainers, over all attempts. Ctrl-C never stops the job."""
    client, job = client_and_job(server, token, job)
    pieces = client.logs.follow(job, progress=_Doing()) if follow else _so_far(client, job)
    text = LogText()
    try:
        with watching(job, "logs", job, "-f"):
            for piece in pieces:
                _print(piece, text, output)
    finally:
        typer.echo(text.end(), nl=False)


class _Doing:
    """Says what a job is doing whenever that changes: it may print nothing for long, as while a base is downloaded."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, progress: ProgressView) -> None:
        doing = progress.phase or progress.state
        if doing != self._said:
            self._said = doing
            say(f"-- {doing}")


def _so_far(client: "Client", job: str) -> Iterator[LogView]:
    after: str | None = None
    while (piece := client.logs.get(job, after)).text:
        after = piece.next
        yield piece


def _print(piece: LogView, text: LogText, output: Output) -> None:
    if output is Output.json:
        print_json({"text": piece.text, "next": piece.next})
    else:
        typer.echo(text.feed(piece.text), nl=False)
