"""`gangline jobs rm`: an ended job goes, with all that is its alone."""

from typing import Annotated

import typer

from gangline.cli.jobs.kept.storage import CALLED
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    is_confirmed,
    out,
    print_json,
    say,
    table,
)
from gangline.core.runs.kept import RemovalView
from gangline.core.words import counted, size_words

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking for confirmation.")]


def remove_job_command(
    job: JobArgument,
    yes: YesOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Delete an ended job: its weights, pictures, checkpoints and log, and the photos that nothing else uses. Its bills are kept.

    The command first lists what it will delete, and asks for confirmation. Deleting cannot be undone."""
    client, job = client_and_job(server, token, job)
    going = client.jobs.removal(job)
    if output is Output.text:
        _tell(going)
    if not yes and not is_confirmed("delete", _sentence(going)):
        say("nothing was deleted")
        raise typer.Exit(1)
    gone = client.jobs.remove(job)
    if output is Output.json:
        print_json(gone)
    else:
        say(f"{job} is deleted; its uploaded files are deleted within a minute, its bills are kept")


def _tell(going: RemovalView) -> None:
    rows = table("to delete", ">files", ">size")
    for each in going.kept:
        rows.add_row(CALLED[each.kind], str(each.files), size_words(each.bytes))
    out.print(rows)


def _sentence(going: RemovalView) -> str:
    files, total = (sum(values) for values in zip(*((each.files, each.bytes) for each in going.kept), strict=True))
    return f"{going.job} ({going.name}): {counted(files, 'file')}, {size_words(total)}"
