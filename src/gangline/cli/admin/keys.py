"""`gangline keys`: who may ask this server, and for what."""

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from gangline.cli.client import is_on_this_machine, make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    as_typed,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.access import KEY_ROLES
from gangline.core.errors import BadInput
from gangline.core.words import listed

if TYPE_CHECKING:
    from gangline.compose.client import Client

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
    from gangline.compose.client import address_for_others

    client = make_client(server, token, project)
    made = client.keys.add(name, role, lasts_s=days and days * DAY_S)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.key.id} makes {name} {role} of {made.key.project or 'everything'}; the key is shown only this once:")
    out.print(made.secret)
    for line in _what_to_type(
        name, address_for_others(client.server), made.secret if sys.stdout.isatty() else "THE-KEY"
    ):
        say(line)


def _what_to_type(name: str, server: str, secret: str) -> tuple[str, ...]:
    """Return the lines for the holder of a key, whose machine is most often another one: there, an address of this machine is none.

    The secret is in them only where a terminal shows it anyway; what a program reads of a key must not be in its log, too.
    """
    parts = urlsplit(server)
    is_here = is_on_this_machine(server)
    address = f"{parts.scheme}://HOST{f':{parts.port}' if parts.port else ''}" if is_here else server
    about = " (HOST is the name of this machine on the network: `gangline docs colleagues`)" if is_here else ""
    return (
        f"{name} types{about}:",
        f"  export {as_typed(f'GANGLINE_SERVER={address}')}",
        f"  export {as_typed(f'GANGLINE_TOKEN={secret}')}",
    )


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
        str,
        typer.Argument(
            help="Name the key by its id, as `gangline keys ls` shows it, or by its name if one valid key alone has that.",
            show_default=False,
        ),
    ],
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Revoke a key at once and for good."""
    client = make_client(server, token, project)
    found = _find_key(client, key)
    client.keys.revoke(found)
    if output is Output.json:
        print_json({"key": found, "standing": "revoked"})
    else:
        say(f"{key} is revoked" if key == found else f"{found} ({key}) is revoked")


def _find_key(client: "Client", given: str) -> str:
    """Return the id of a key that is given by its id or its name. Raise `BadInput` if the name is not that of one valid key.

    A text that is neither is returned as it is, for the server to refuse.
    """
    named = list[str]()
    is_known = False
    for key in client.keys.list():
        if key.id == given:
            return given
        if key.name == given:
            is_known = True
            named += [key.id] if key.standing == "valid" else []
    if len(named) > 1:
        raise BadInput(
            f"{len(named)} valid keys have the name {given}: {listed(named)}", hint="name the one to revoke by its id"
        )
    if is_known and not named:
        raise BadInput(f"no key of the name {given} is valid any more", hint="`gangline keys ls` lists them")
    return named[0] if named else given
