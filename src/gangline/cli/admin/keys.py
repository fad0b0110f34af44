"""`gangline keys`: who may ask this server, and for what."""

from typing import Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.access import KEY_ROLES
from gangline.core.errors import BadInput

DAY_S = 86_400
DaysOption = Annotated[
    float | None,
    typer.Option("--days", min=0.001, max=3650, help="Expires after this many days (default: never)."),
]

app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_key_command(
    name: Annotated[
        str, typer.Argument(help="Name the key, e.g. after the person or program that will use it.", show_default=False)
    ],
    role: Annotated[
        str,
        typer.Option(
            help="Grant this role: viewer reads, member also submits and controls jobs, admin also manages keys, operator does "
            "everything."
        ),
    ] = "member",
    days: DaysOption = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a key. It is printed only once, because the server keeps only its hash."""
    if role not in KEY_ROLES:
        raise BadInput(f"a key cannot have the role {role}", hint=f"choose one of {', '.join(KEY_ROLES)}")
    client = make_client(server, token, project)
    made = client.keys.add(name, role, lasts_s=days and days * DAY_S)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.key.id} makes {name} {role} of {made.key.project or 'everything'}; the key is shown only this once:")
    out.print(made.secret)


@app.command("ls")
def list_keys_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the keys of a project, or all keys for an operator who names no project."""
    found = list(make_client(server, token, project).keys.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table("key", "name", "role", "project", "state", "made", "used", "expires")
    for key in found:
        rows.add_row(
            key.id,
            key.name,
            key.role,
            key.project or "–",
            key.standing,
            format_time(key.made_ms),
            format_time(key.used_ms),
            format_time(key.expires_ms),
        )
    out.print(rows)


@app.command("revoke")
def revoke_key_command(
    key: Annotated[
        str, typer.Argument(help="Name the key by its id, as `gangline keys ls` shows it.", show_default=False)
    ],
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Revoke a key at once and for good."""
    make_client(server, token, project).keys.revoke(key)
    if output is Output.json:
        print_json({"key": key, "standing": "revoked"})
    else:
        say(f"{key} is revoked")
