"""`gangline projects`: whose jobs, keys and money are kept apart."""

from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    cost,
    cost_in_words,
    facts,
    out,
    print_json,
    table,
    usd,
)
from gangline.core.errors import BadInput, NotFound
from gangline.core.views import ProjectView

if TYPE_CHECKING:
    from gangline.compose.client import Client

UsdOption = Annotated[
    float | None,
    typer.Option(
        "--usd",
        min=0,
        help="Limit what the project may ever spend to this many US dollars (default: leave it as it is; a new project has "
        "no limit).",
    ),
]
NoLimitOption = Annotated[bool, typer.Option("--none", help="Remove the limit.")]
ShareOption = Annotated[
    float | None,
    typer.Option("--share", help="Set the project's share of the nodes, relative to the shares of other projects."),
]

app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_project_command(
    project: Annotated[
        str, typer.Argument(help="Name the project with lower-case letters, digits and hyphens.", show_default=False)
    ],
    limit: UsdOption = None,
    share: ShareOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a project. An existing project is changed only by the options."""
    client = make_client(server, token)
    print_project(allow(client, client.projects.add(project), limit, none=False, share=share), output)


@app.command("ls")
def list_projects_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List all projects with their shares, budgets and spending."""
    found = list(make_client(server, token).projects.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table("project", ">share", ">budget", ">spent", ">reserved")
    for each in found:
        rows.add_row(
            each.project,
            f"{each.share:g}",
            limit_of(each),
            cost(each.spent_usd, each.cost_lacks),
            usd(each.reserved_usd),
        )
    out.print(rows)


@app.command("set")
def set_project_command(
    project: Annotated[str, typer.Argument(help="Name the project.", show_default=False)],
    limit: UsdOption = None,
    none: NoLimitOption = False,
    share: ShareOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Set a project's budget or share. Jobs that run beyond a new budget save a checkpoint and stop at their next heartbeat."""
    client = make_client(server, token)
    found = next((each for each in client.projects.list() if each.project == project), None)
    if found is None:
        raise NotFound(f"there is no project {project}", hint="`gangline projects ls` lists all projects")
    print_project(allow(client, found, limit, none=none, share=share), output)


def allow(client: "Client", found: ProjectView, limit: float | None, *, none: bool, share: float | None) -> ProjectView:
    """Set what was given and keep the rest."""
    if none and limit is not None:
        raise BadInput("--usd and --none contradict each other", hint="pass only one of them")
    if not none and limit is None and share is None:
        return found
    budget_usd = None if none else found.budget_usd if limit is None else limit
    return client.projects.set(found.project, share=found.share if share is None else share, budget_usd=budget_usd)


def print_project(found: ProjectView, output: Output) -> None:
    if output is Output.json:
        print_json(found)
        return
    out.print(
        facts(
            ("project", found.project),
            ("share", f"{found.share:g}"),
            ("budget", limit_of(found)),
            ("spent", cost_in_words(found.spent_usd, found.cost_lacks)),
            ("reserved", f"{usd(found.reserved_usd)} by running jobs"),
        )
    )


def limit_of(found: ProjectView) -> str:
    return "no limit" if found.budget_usd is None else usd(found.budget_usd)
