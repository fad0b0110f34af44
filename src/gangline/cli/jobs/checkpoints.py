"""`gangline checkpoints`: those that a job keeps, and which of them are to stay."""

from typing import Annotated

import typer

from gangline.cli.jobs.storage import size
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    table,
)
from gangline.core.runs.kept import CheckpointView

StepArgument = Annotated[int, typer.Argument(help="Name the checkpoint by its step.", show_default=False)]
app = typer.Typer(no_args_is_help=True)


@app.command("ls")
def list_checkpoints_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List a job's checkpoints, newest first, and when they will be deleted."""
    client, job = client_and_job(server, token, job)
    _show(client.checkpoints(job), output)


@app.command("pin")
def pin_checkpoint_command(
    job: JobArgument,
    step: StepArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Pin the checkpoint of a step, so that it is kept until it is unpinned or its job is deleted."""
    client, job = client_and_job(server, token, job)
    _show(client.pin_checkpoint(job, step), output)


@app.command("unpin")
def unpin_checkpoint_command(
    job: JobArgument,
    step: StepArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Unpin the checkpoint of a step, so that it is deleted by its age again."""
    client, job = client_and_job(server, token, job)
    _show(client.pin_checkpoint(job, step, pinned=False), output)


def _show(found: list[CheckpointView], output: Output) -> None:
    if output is Output.json:
        print_json(found)
        return
    rows = table(">step", ">size", "verified", "pinned", "committed", "expires", "why")
    for each in found:
        rows.add_row(
            str(each.step),
            size(each.bytes),
            "yes" if each.verified else "no",
            "yes" if each.pinned else "no",
            format_time(each.committed_ms),
            format_time(each.goes_ms),
            each.because,
        )
    out.print(rows)
