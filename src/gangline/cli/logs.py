"""`gangline logs`: what a job's trainers printed."""

import threading
from typing import Annotated

import typer

from gangline import compose
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json, say
from gangline.core.job import ENDED

POLL_S = 1.0


def logs(
    job: str,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """What the trainers of all attempts printed, in order. Ctrl-C never stops the job."""
    client = compose.make_client(server, token)
    after: str | None = None
    try:
        while True:
            ended = client.job(job).summary.state in ENDED
            while (piece := client.logs(job, after)).text:
                after = piece.next
                _print(piece.text, piece.next, output)
            if ended or not follow:
                return
            threading.Event().wait(POLL_S)
    except KeyboardInterrupt:
        say(f"the job goes on; look again with `gangline logs {job} -f`")


def _print(text: str, following: str, output: Output) -> None:
    if output is Output.json:
        print_json({"text": text, "next": following})
    else:
        typer.echo(text, nl=False)
