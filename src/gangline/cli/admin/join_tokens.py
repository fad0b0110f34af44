"""`gangline join-tokens`: what lets workers into a pool."""

from typing import Annotated

import typer

from gangline.cli.admin.keys import DAY_S, DaysOption
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    moment_or_dash,
    out,
    print_json,
    say,
    table,
)
from gangline.compose.client import make_client

app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_join_token(
    name: Annotated[str, typer.Argument(help="For people: whose machines have it.", show_default=False)],
    pool: Annotated[str, typer.Option(help="The pool that workers join with it.")] = "default",
    days: DaysOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a join token. It is printed this once: the server keeps only its hash."""
    made = make_client(server, token).add_join_token(name, pool, lasts_s=days and days * DAY_S)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.join_token.id} lets workers into the pool {pool}; it is shown this once:")
    out.print(made.secret)


@app.command("ls")
def list_join_tokens(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """The join tokens of all pools."""
    found = make_client(server, token).join_tokens()
    if output is Output.json:
        print_json(found)
        return
    rows = table("join token", "name", "pool", "standing", "made", "used", "expires")
    for each in found:
        rows.add_row(
            each.id,
            each.name,
            each.pool,
            each.standing,
            moment_or_dash(each.made_ms),
            moment_or_dash(each.used_ms),
            moment_or_dash(each.expires_ms),
        )
    out.print(rows)


@app.command("revoke")
def revoke_join_token(
    join_token: Annotated[
        str, typer.Argument(help="Its id, as `gangline join-tokens ls` shows it.", show_default=False)
    ],
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Let nobody join with it any more. Nodes that have, stay."""
    make_client(server, token).revoke_join_token(join_token)
    if output is Output.json:
        print_json({"join_token": join_token, "standing": "revoked"})
    else:
        say(f"{join_token} is revoked; nodes that have joined with it stay")
