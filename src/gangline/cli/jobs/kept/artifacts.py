"""`gangline artifacts`: a job's results."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, as_typed, out, print_json, say, table
from gangline.compose.settings import existing
from gangline.core.errors import NotFound


def artifacts_command(
    job: JobArgument,
    to: Annotated[Path | None, typer.Option("--to", help="Download the results into this folder.")] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List a job's results, or download them and check each against its SHA-256."""
    client, job = client_and_job(server, token, job)
    found, view = list(client.artifacts.list(job)), client.jobs.get(job)
    if to is not None:
        if not found:
            raise NotFound(f"{job} has no results yet: it is {view.summary.state}", hint=view.summary.because)
        existing(to)
        client.files.download_all(found, to)
    if output is Output.json:
        rows = [{"path": each.path, "bytes": each.bytes, "sha256": each.sha256} for each in found]
        print_json({"job": job, "folder": str(to) if to else None, "artifacts": rows})
        return
    if not found:
        say(f"{job} has no results; it is {view.summary.state}: {view.summary.because}")
        return
    listing = table("path", ">bytes", "SHA-256")
    for artifact in found:
        listing.add_row(artifact.path, f"{artifact.bytes:,}", artifact.sha256[:16])
    out.print(listing)
    if to:
        say(f"{len(found)} files are in {to}")
    if view.samples.waiting:
        say(f"more pictures will arrive; `{as_typed('gangline', 'samples', job, '--wait')}` waits for them")
