"""`gangline budget`: what one's project may have, and what it has spent."""

from gangline.cli.admin.projects import NoLimitOption, ShareOption, UsdOption, allow, print_project
from gangline.cli.client import make_client
from gangline.cli.output import Output, OutputOption, ProjectOption, ServerOption, TokenOption


def budget_command(
    limit: UsdOption = None,
    none: NoLimitOption = False,
    share: ShareOption = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show the project's share and budget. Operators change them with options, as with `gangline projects set`."""
    client = make_client(server, token, project)
    print_project(allow(client, client.projects.current(), limit, none=none, share=share), output)
