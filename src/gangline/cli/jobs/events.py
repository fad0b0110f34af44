"""`gangline events`: what happens to all jobs of a project."""

from datetime import datetime
from typing import Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    as_typed,
    out,
    print_json,
    say,
)
from gangline.core.display import printable
from gangline.core.errors import Unreachable
from gangline.core.jobs.naming import short
from gangline.core.views import FactView

KIND_CELLS = 15
NAME_CELLS = 20


def events_command(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the events until Ctrl-C.")] = False,
    after: Annotated[
        int | None, typer.Option("--after", min=0, help="Show the events after this number (default: the newest ones).")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, max=500, help="Show at most this many of the newest.")] = 20,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Show only events of this kind; repeatable.")] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what happened to the jobs of the project, in one numbered stream, or follow it.

    With -o json, each event is a line of JSON.
    """
    client = make_client(server, token, project)
    newest = client.facts.newest() if after is None else after
    seen = newest if after is not None else max(0, newest - last)
    try:
        for fact in client.facts.list(seen):
            seen = fact.number
            _print(fact, kind, output)
        if follow:
            seen = max(seen, newest)  # no fact has this number if its job is deleted
            for fact in client.facts.follow(seen, waiting=_waiting):
                seen = fact.number
                _print(fact, kind, output)
    except KeyboardInterrupt:
        where = {"--server": [server], "--project": [project], "--kind": kind or []}
        again = [word for option, values in where.items() for value in values if value for word in (option, value)]
        again += [] if output is Output.text else ["-o", output.value]
        command = as_typed("gangline", "events", "--follow", "--after", str(seen), *again)
        say(f"`{command}` continues after the last one")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _waiting(error: Unreachable) -> None:
    say(f"waiting for the server: {error.message}")


def _print(fact: FactView, kinds: list[str] | None, output: Output) -> None:
    if kinds and fact.kind not in kinds:
        return
    if output is Output.json:
        print_json(fact)
        return
    at = datetime.fromtimestamp(fact.at_ms / 1000).astimezone()
    name = f"{printable(fact.job_name)[:NAME_CELLS]} ({short(fact.job)})"
    out.print(f"{fact.number:>6}  {at:%Y-%m-%d %H:%M:%S}  {fact.kind:<{KIND_CELLS}}  {name}: {fact.because}")
