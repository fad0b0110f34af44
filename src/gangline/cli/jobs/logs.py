"""`gangline logs`: what a job's trainers printed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, as_typed, print_json, say
from gangline.compose.client import make_client
from gangline.core.display import LogText
from gangline.core.views import LogView

if TYPE_CHECKING:
    from gangline.wire.client import Client


def logs(
    job: str,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """What the trainers of all attempts printed, in order. Ctrl-C never stops the job."""
    client = make_client(server, token)
    pieces, text = client.follow_logs(job) if follow else _so_far(client, job), LogText()
    try:
        for piece in pieces:
            _print(piece, text, output)
    except KeyboardInterrupt:
        say(f"the job goes on; look again with `{as_typed('gangline', 'logs', job, '-f')}`")
    finally:
        typer.echo(text.end(), nl=False)


def _so_far(client: "Client", job: str) -> Iterator[LogView]:
    after: str | None = None
    while (piece := client.logs(job, after)).text:
        after = piece.next
        yield piece


def _print(piece: LogView, text: LogText, output: Output) -> None:
    if output is Output.json:
        print_json({"text": piece.text, "next": piece.next})
    else:
        typer.echo(text.feed(piece.text), nl=False)
