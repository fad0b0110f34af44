"""`gangline open`: the page of a server, signed in."""

import webbrowser
from typing import Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.output import Output, OutputOption, ProjectOption, ServerOption, TokenOption, out, print_json, say


def open_command(
    link: Annotated[bool, typer.Option("--link", help="Print the link, and open no browser.")] = False,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Open the page of the server in a browser, signed in with the key of this command. The link works once, for five minutes."""
    from gangline.compose.client import address_for_others

    client = make_client(server, token, project)
    made = client.keys.sign_in()
    page = address_for_others(client.server).rstrip("/")
    address = page + made.path
    if output is Output.json:
        print_json({"url": address, "expires_ms": made.expires_ms})
        return
    if link or not webbrowser.open(address):
        say("open this link in a browser; it signs in once, within five minutes:")
        out.print(address, soft_wrap=True)
        return
    say(f"the page of {page} is open in your browser")
