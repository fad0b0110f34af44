"""`gangline checkpoints` and `gangline jobs checkpoints`: those that a job keeps, which of them are to stay, and copies of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.jobs.which import JobArgument, client_and_job
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
from gangline.compose.settings import existing
from gangline.core.runs.kept import CheckpointView
from gangline.core.words import size_words

StepArgument = Annotated[int, typer.Argument(help="Name the checkpoint by its step.", show_default=False)]
app = typer.Typer(no_args_is_help=True)


@app.command("ls")
def list_checkpoints_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List a job's checkpoints, newest first, and when they will be deleted."""
    client, job = client_and_job(server, token, job)
    _show(list(client.checkpoints.list(job)), output)


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
    _show(client.checkpoints.pin(job, step), output)


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
    _show(client.checkpoints.pin(job, step, pinned=False), output)


def job_checkpoints_command(
    job: JobArgument,
    pin: Annotated[
        int | None, typer.Option("--pin", help="Keep the checkpoint of this step until it is unpinned.")
    ] = None,
    unpin: Annotated[int | None, typer.Option("--unpin", help="Let the checkpoint of this step expire again.")] = None,
    download: Annotated[int | None, typer.Option("--download", help="Download the checkpoint of this step.")] = None,
    to: Annotated[Path, typer.Option("--to", help="The folder to download into.")] = Path(),
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List a job's checkpoints and why each is kept; pin, unpin or download one."""
    client, job = client_and_job(server, token, job)
    for step, pinned in ((pin, True), (unpin, False)):
        if step is not None:
            client.checkpoints.pin(job, step, pinned=pinned)
    if download is None:
        _show(list(client.checkpoints.list(job)), output)
        return
    folder = client.checkpoints.download(job, download, existing(to))
    if output is Output.json:
        print_json({"job": job, "step": download, "folder": str(folder)})
    else:
        say(f"the checkpoint of step {download} is in {folder}")


def _show(found: Sequence[CheckpointView], output: Output) -> None:
    if output is Output.json:
        print_json(found)
        return
    rows = table(">step", ">size", "verified", "pinned", "best", "committed", "expires", "why")
    for each in found:
        rows.add_row(
            str(each.step),
            size_words(each.bytes),
            "yes" if each.verified else "no",
            "yes" if each.pinned else "no",
            "yes" if each.best else "",
            format_time(each.committed_ms),
            format_time(each.goes_ms),
            each.because,
        )
    out.print(rows)
