"""`gangline keys`: who may ask this server, and for what."""

from typing import Annotated

import typer

from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    moment_or_dash,
    out,
    print_json,
    say,
    table,
)
from gangline.compose.client import make_client
from gangline.core.access import KEY_ROLES
from gangline.core.errors import BadInput

DAY_S = 86_400
DaysOption = Annotated[
    float | None,
    typer.Option("--days", min=0.001, max=3650, help="It opens nothing after so many; else until revoked."),
]

app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_key_command(
    name: Annotated[str, typer.Argument(help="For people: who or what has it.", show_default=False)],
    role: Annotated[
        str, typer.Option(help="viewer: reads. member: submits and steers. admin: keys too. operator: everything.")
    ] = "member",
    days: DaysOption = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a key. It is printed this once: the server keeps only its hash."""
    if role not in KEY_ROLES:
        raise BadInput(f"{role} is no role of a key", hint=f"choose one of {', '.join(KEY_ROLES)}")
    client = make_client(server, token, project)
    made = client.add_key(name, role, lasts_s=days and days * DAY_S)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.key.id} is {name}'s, as {role} of {made.key.project or 'everything'}; it is shown this once:")
    out.print(made.secret)


@app.command("ls")
def list_keys_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """The keys of a project; for an operator who names none, all of them."""
    found = make_client(server, token, project).keys()
    if output is Output.json:
        print_json(found)
        return
    rows = table("key", "name", "role", "project", "standing", "made", "used", "expires")
    for key in found:
        rows.add_row(
            key.id,
            key.name,
            key.role,
            key.project or "–",
            key.standing,
            moment_or_dash(key.made_ms),
            moment_or_dash(key.used_ms),
            moment_or_dash(key.expires_ms),
        )
    out.print(rows)


@app.command("revoke")
def revoke_key_command(
    key: Annotated[str, typer.Argument(help="Its id, as `gangline keys ls` shows it.", show_default=False)],
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a key open nothing any more, at once and for good."""
    make_client(server, token, project).revoke_key(key)
    if output is Output.json:
        print_json({"key": key, "standing": "revoked"})
    else:
        say(f"{key} is revoked")
