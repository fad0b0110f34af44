"""`gangline secrets`: values that commands get in their environment, and nobody sees."""

import sys
from pathlib import Path
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
from gangline.core.errors import BadInput, NotFound

SecretArgument = Annotated[
    str, typer.Argument(help="Name the secret as the variable that commands get it in.", show_default=False)
]
app = typer.Typer(no_args_is_help=True)


@app.command("set")
def set_secret_command(
    name: SecretArgument,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Take the value from this file (default: standard input; in a terminal it asks, and shows nothing)."
        ),
    ] = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Keep a value for commands of the project: `gangline run --secret NAME`. It replaces an earlier one of this name.

    The server encrypts it, masks it in logs and shows it to nobody; but who may submit commands can have one print it in disguise. A line
    break at its end is left out.
    """
    client = make_client(server, token, project)
    made = client.secrets.set(name, _value(name, file))
    if output is Output.json:
        print_json(made)
    else:
        say(f"{name} is set; `gangline run --secret {name} -- COMMAND` gives it to a command")


@app.command("ls")
def list_secrets_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the project's secrets, without their values."""
    found = list(make_client(server, token, project).secrets.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table("secret", "set", "state")
    for secret in found:
        state = "can be used" if secret.readable else "the server lacks the key that encrypted it: set it again"
        rows.add_row(secret.name, format_time(secret.set_ms), state)
    out.print(rows)


@app.command("rm")
def remove_secret_command(
    name: SecretArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Delete a secret. Jobs that wait and need it are paused when a node would get them."""
    client = make_client(server, token, project)
    if all(secret.name != name for secret in client.secrets.list()):
        raise NotFound(f"there is no secret {name}", hint="`gangline secrets ls` lists them")
    client.secrets.remove(name)
    if output is Output.json:
        print_json({"name": name, "removed": True})
    else:
        say(f"{name} is removed")


def _value(name: str, file: Path | None) -> str:
    """Return the value without the line break at its end. Raises `BadInput`."""
    if file is None and sys.stdin.isatty():
        return str(typer.prompt(f"value of {name}", hide_input=True, err=True))
    try:
        content = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput("a secret is text in UTF-8", hint="encode other bytes with base64") from None
