"""`gangline`: the command line's entry. Commands load what they need when they run, so that `--help` is quick."""

import sys
from typing import Annotated

import typer

from gangline import __version__
from gangline.cli import (
    artifacts,
    bases,
    budget,
    data,
    demo,
    estimate,
    exec,
    jobs,
    join_tokens,
    keys,
    logs,
    metrics,
    nodes,
    projects,
    samples,
    scratch,
    server,
    sim,
    train,
    up,
    verify_resume,
    worker,
)
from gangline.cli.output import say_error
from gangline.core.errors import GanglineError

EXIT_USER_ERROR = 2

app = typer.Typer(
    name="gangline",
    help="Train Stable Diffusion on GPUs that can vanish at any moment.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(train.train)
app.command()(scratch.scratch)
app.add_typer(jobs.app, name="jobs")
app.command()(logs.logs)
app.command()(metrics.metrics)
app.command()(artifacts.artifacts)
app.command()(samples.samples)
app.add_typer(bases.app, name="bases")
app.add_typer(nodes.app, name="nodes")
app.add_typer(data.app, name="data")
app.command()(budget.budget)
app.add_typer(keys.app, name="keys")
app.add_typer(projects.app, name="projects")
app.add_typer(join_tokens.app, name="join-tokens")
app.command()(up.up)
app.command()(server.server)
app.command()(worker.worker)
app.command()(demo.demo)
app.command("exec", context_settings=exec.SETTINGS)(exec.exec_command)
app.command()(verify_resume.verify_resume)
app.command()(estimate.estimate)
app.add_typer(sim.app, name="sim")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except GanglineError as error:
        say_error(error)
        sys.exit(EXIT_USER_ERROR)


if __name__ == "__main__":
    main()
