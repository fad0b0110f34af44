"""`gangline join-tokens`: what lets workers into a pool."""

from typing import Annotated

import typer

from gangline.cli.admin.keys import DAY_S, DaysOption
from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
)

app = typer.Typer(no_args_is_help=True)
TokenPriceOption = Annotated[
    float | None,
    typer.Option(
        "--price-usd-per-hour",
        "--price",
        min=0,
        help="Bill a node that joins with this token at this price an hour, 0 if it is free (default: its pool's price).",
        show_default=False,
    ),
]
TrustOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=9,
        help="Give this trust tier to nodes that join with this token (default: its pool's tier).",
        show_default=False,
    ),
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Let at most this many nodes be joined at the same time (default: any number).", show_default=False
    ),
]
RateOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Let at most this many nodes join within an hour (default: any number).", show_default=False
    ),
]


@app.command("add")
def add_join_token_command(
    name: Annotated[
        str, typer.Argument(help="Name the token, e.g. after the machines that will use it.", show_default=False)
    ],
    pool: Annotated[str, typer.Option(help="Let workers join this pool.")] = "default",
    price_usd_per_hour: TokenPriceOption = None,
    trust: TrustOption = None,
    nodes: NodesOption = None,
    nodes_per_hour: RateOption = None,
    days: DaysOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a join token. It is printed only once, because the server keeps only its hash."""
    made = make_client(server, token).join_tokens.add(
        name,
        pool,
        lasts_s=days and days * DAY_S,
        price_usd_per_hour=price_usd_per_hour,
        trust=trust,
        nodes_max=nodes,
        nodes_per_hour=nodes_per_hour,
    )
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.join_token.id} lets workers join the pool {pool}; the token is shown only this once:")
    out.print(made.secret)


@app.command("ls")
def list_join_tokens_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List the join tokens of all pools."""
    found = list(make_client(server, token).join_tokens.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table(
        "join token", "name", "pool", "state", ">$/hour", ">trust", ">nodes", ">per hour", "made", "used", "expires"
    )
    for each in found:
        rows.add_row(
            each.id,
            each.name,
            each.pool,
            each.standing,
            "the pool's" if each.price_usd_per_hour is None else f"{each.price_usd_per_hour:.4f}",
            "the pool's" if each.trust is None else str(each.trust),
            f"{each.nodes}" if each.nodes_max is None else f"{each.nodes} of {each.nodes_max}",
            "–" if each.nodes_per_hour is None else str(each.nodes_per_hour),
            format_time(each.made_ms),
            format_time(each.used_ms),
            format_time(each.expires_ms),
        )
    out.print(rows)


@app.command("revoke")
def revoke_join_token_command(
    join_token: Annotated[
        str, typer.Argument(help="Name the token by its id, as `gangline join-tokens ls` shows it.", show_default=False)
    ],
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Revoke a join token. No node can join with it any more; nodes that have joined stay."""
    make_client(server, token).join_tokens.revoke(join_token)
    if output is Output.json:
        print_json({"join_token": join_token, "standing": "revoked"})
    else:
        say(f"{join_token} is revoked; nodes that have already joined stay")
