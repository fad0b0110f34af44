"""`gangline jobs`: what was asked for and how it stands."""

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gangline.cli.jobs import metrics
from gangline.cli.jobs.asking import finish_job_command, sample_job_command, save_job_command
from gangline.cli.jobs.extend import extend_job_command
from gangline.cli.jobs.kept.checkpoints import job_checkpoints_command
from gangline.cli.jobs.kept.removal import remove_job_command
from gangline.cli.jobs.lists.labels import label_job_command, labels_in_words
from gangline.cli.jobs.lists.ls import list_jobs_command
from gangline.cli.jobs.samples import samples_standing
from gangline.cli.jobs.story.timeline import job_timeline_command
from gangline.cli.jobs.variants.clone import clone_job_command
from gangline.cli.jobs.variants.diff import diff_jobs_command
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    cost,
    cost_in_words,
    duration,
    facts,
    format_number,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.display import printable
from gangline.core.runs.metrics import Measured
from gangline.core.views import DeliveryView, EventView, JobSummary, JobView

app = typer.Typer(no_args_is_help=True)


app.command("ls")(list_jobs_command)
app.command("label")(label_job_command)


@app.command("show")
def show_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Show a job's state, attempts, events and cost."""
    client, job = client_and_job(server, token, job)
    found = client.jobs.get(job)
    if output is Output.json:
        print_json(found)
        return
    out.print(job_page(found, list(client.events.list(job)), client.metrics.get(job).points))


@app.command("cancel")
def cancel_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Cancel a job for good. A job that has ended does not change."""
    client, job = client_and_job(server, token, job)
    _tell(client.jobs.cancel(job), output)


@app.command("pause")
def pause_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Pause a job until it is resumed. A node that runs it saves a checkpoint first."""
    client, job = client_and_job(server, token, job)
    _tell(client.jobs.pause(job), output)


@app.command("resume")
def resume_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Resume a paused job. A job that was not paused does not change."""
    client, job = client_and_job(server, token, job)
    _tell(client.jobs.resume(job), output)


@app.command("retry")
def retry_job_command(
    job: JobArgument,
    from_checkpoint: Annotated[
        bool,
        typer.Option("--from-checkpoint", help="Start from the newest checkpoint of the old job (default: at step 0)."),
    ] = False,
    from_step: Annotated[
        int | None, typer.Option("--from-step", help="Start from the checkpoint of this step of the old job.")
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Submit an ended job again, with the same settings.

    With --from-checkpoint no checkpointed step is trained again: the old checkpoints are kept until the new job has one of its own.
    """
    client, job = client_and_job(server, token, job)
    found = client.jobs.retry(job, from_checkpoint=from_checkpoint, from_step=from_step)
    _tell(found, output)
    if output is Output.text:
        out.print(found.summary.id)


app.command("save")(save_job_command)
app.command("sample")(sample_job_command)
app.command("finish")(finish_job_command)
app.command("extend")(extend_job_command)
app.command("clone")(clone_job_command)
app.command("diff")(diff_jobs_command)
app.command("timeline")(job_timeline_command)
app.command("checkpoints")(job_checkpoints_command)
app.command("rm")(remove_job_command)


def _tell(found: JobView, output: Output) -> None:
    if output is Output.json:
        print_json(found)
    else:
        say(f"{found.summary.id} is {found.summary.state}: {found.summary.because}")


def job_page(job: JobView, events: list[EventView], points: tuple[Measured, ...]) -> Group:
    happened = table("when", "what", "why")
    for event in events:
        happened.add_row(format_time(event.at_ms), event.kind, event.because)
    measured = (Text(), metrics.as_table(points)) if points else ()
    said = (Text(printable(job.verdict)), Text()) if job.verdict else ()
    return Group(*said, _head(job.summary, job), *measured, Text(), attempts_table(job), Text(), happened)


def attempts_table(job: JobView) -> Table:
    rows = table(">attempt", "node", "ended", ">from", ">to step", ">s/step", ">time", ">cost")
    for fencing, attempt in enumerate(job.attempts, start=1):
        seconds = None if attempt.ended_ms is None else (attempt.ended_ms - attempt.started_ms) / 1000
        rows.add_row(
            str(fencing),
            attempt.node_name,
            attempt.phase or attempt.state,
            str(attempt.from_step),
            str(attempt.step),
            format_number(attempt.seconds_per_step, 3),
            duration(seconds),
            cost(attempt.cost_usd, attempt.cost_lacks),
        )
    return rows


def _head(summary: JobSummary, job: JobView) -> Table:
    safe = "" if summary.state == "succeeded" else f" (safe: {summary.committed_step})"
    return facts(
        ("job", summary.id),
        ("name", summary.name),
        ("owner", _owner(summary)),
        *([("labels", labels_in_words(summary.labels))] if summary.labels else []),
        *_continues(job),
        ("state", f"{summary.state}: {summary.because}"),
        ("step", summary.steps_done.replace("/", " of ") + safe),
        ("loss", format_number(summary.loss)),
        ("ETA", duration(summary.eta_s)),
        ("interruptions", f"{summary.interruptions} ({job.steps_redone} steps redone, {job.seconds_lost:.1f} s lost)"),
        *_saves(job),
        ("cost", cost_in_words(summary.cost_usd, summary.cost_lacks)),
        ("samples", samples_standing(job)),
        *([("data set", job.dataset)] if job.dataset else []),
        *([("delivery", _delivery(job.delivery))] if job.delivery else []),
    )


def _owner(summary: JobSummary) -> str:
    if summary.owner is None:
        return "not known: the job is of an older version"
    return f"{summary.owner.name} ({summary.owner.id})" if summary.owner.name else summary.owner.id


def _saves(job: JobView) -> list[tuple[str, str]]:
    live = [attempt.saving for attempt in job.attempts if attempt.state == "live" and attempt.saving]
    return [("saves", saving.because.removeprefix("saves ")) for saving in live]


def _continues(job: JobView) -> list[tuple[str, str]]:
    before: Any = job.spec.get("continues")
    return [("continues", f"step {before['step']} of {before['job']}")] if before else []


def _delivery(found: DeliveryView) -> str:
    if found.state == "delivered":
        return f"{found.files} files are at {found.to}"
    waiting = "follows" if found.state == "waiting" else found.state
    return f"{waiting}: to {found.to}" + (f"; {found.because}" if found.because else "")
