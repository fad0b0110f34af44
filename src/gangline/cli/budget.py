"""`gangline budget`: what a project may have, and what it has spent."""

from typing import Annotated

import typer

from gangline import compose
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, facts, out, print_json, usd
from gangline.core.errors import BadInput


def budget(
    limit: Annotated[float | None, typer.Option("--usd", min=0, help="Spend no more than this, ever.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Spend without a limit.")] = False,
    share: Annotated[float | None, typer.Option(help="Of the nodes, beside the other projects'.")] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show the project's share and money; with options, change them.

    What runs beyond a new budget is told to save and stop with its next heartbeat.
    """
    if none and limit is not None:
        raise BadInput("--usd and --none say opposite things", hint="give one of them")
    client = compose.make_client(server, token)
    found = client.project()
    if none or limit is not None or share is not None:
        budget_usd = None if none else found.budget_usd if limit is None else limit
        found = client.set_project(share=found.share if share is None else share, budget_usd=budget_usd)
    if output is Output.json:
        print_json(found)
        return
    out.print(
        facts(
            ("project", found.project),
            ("share", f"{found.share:g}"),
            ("budget", "no limit" if found.budget_usd is None else usd(found.budget_usd)),
            ("spent", usd(found.spent_usd)),
            ("reserved", f"{usd(found.reserved_usd)} by what runs"),
        )
    )
