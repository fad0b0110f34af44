"""`gangline jobs pictures`: what a job drew, prompt by prompt and step by step, and which step is the best."""

from typing import Annotated

import typer

from gangline.cli.jobs.kept.storage import size_words
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json, say, table
from gangline.core.errors import BadInput
from gangline.core.pictures.views import PictureView, StoredWeights

WEIGHTS: dict[StoredWeights, str] = {
    "none": "",
    "checkpoint": "checkpoint",
    "file": "LoRA file",
    "result": "result",
}


def job_pictures_command(
    job: JobArgument,
    winner: Annotated[
        int | None,
        typer.Option("--winner", help="Choose this step: keep its weights, and label the job winner=STEP."),
    ] = None,
    no_winner: Annotated[bool, typer.Option("--no-winner", help="Undo the choice of a step.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List a job's sample pictures by prompt and step, and choose the best step. `gangline samples` downloads them."""
    if winner is not None and no_winner:
        raise BadInput("--winner and --no-winner contradict each other", hint="give one of them")
    client, job = client_and_job(server, token, job)
    if winner is not None:
        client.pictures.choose(job, winner)
    elif no_winner:
        client.pictures.undo_choice(job)
    found = list(client.pictures.list(job))
    if output is Output.json:
        print_json(found)
        return
    rows = table(">prompt", ">seed", ">step", "of", "pixels", ">size", "weights", "winner", "text")
    for each in found:
        rows.add_row(
            str(each.prompt),
            str(each.seed),
            str(each.step),
            each.of,
            f"{each.width} × {each.height}" if each.width else "",
            size_words(each.bytes),
            _weights(each),
            "winner" if each.winner else "",
            each.text,
        )
    out.print(rows)
    if winner is not None:
        say(f"step {winner} is chosen: `gangline jobs ls --label winner` lists the jobs of which a step is chosen")


def _weights(picture: PictureView) -> str:
    return f"{WEIGHTS[picture.weights]}{', pinned' if picture.pinned else ''}"
