"""`gangline jobs extend`: a job that has ended is continued to more steps, and what its learning rate does is shown first."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    err,
    facts,
    is_confirmed,
    out,
    print_json,
    say,
    table,
)
from gangline.core.errors import GanglineError
from gangline.core.plans.base import KnownBase
from gangline.core.plans.outlook import CardEstimate, estimates
from gangline.core.plans.rows import estimate_rows
from gangline.core.runs.extension import ExtensionView, ExtensionWay, remaining
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import parse_spec
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client


def extend_job_command(
    job: JobArgument,
    steps: Annotated[
        int, typer.Option("--steps", help="Train to this many steps in all, those of the old job included.")
    ],
    schedule: Annotated[
        Literal["keep", "stretch"],
        typer.Option(
            "--schedule",
            help="Compute the schedule of the learning rate for all steps (stretch), or keep the old job's, after whose last step the rate "
            "stays what it was there.",
        ),
    ] = "stretch",
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done and submit nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Submit without asking for confirmation.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Continue a job that has ended to more steps, as a new job that starts from its newest checkpoint.

    The command first shows the learning rate with each schedule, and asks for confirmation."""
    client, job = client_and_job(server, token, job)
    found = client.jobs.extension(job, steps, schedule)
    if plan and output is Output.json:
        print_json(found)
        return
    if output is Output.text:
        _show(found, _estimates(client, found))
    if plan:
        return
    if not yes and not is_confirmed("extend", _sentence(found), for_good=False):
        say("nothing was submitted")
        raise typer.Exit(1)
    made = client.jobs.extend(job, steps, schedule)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.summary.id} is {made.summary.state}: {made.summary.because}")
    out.print(made.summary.id)


def _show(found: ExtensionView, expected: tuple[CardEstimate, ...]) -> None:
    first = found.ways[0]
    heads = (f"old end, step {first.before.step}", f"start, step {first.start.step}")
    rows = table(
        "schedule",
        *(f">{head}" for head in (*heads, f"middle, step {first.middle.step}", f"end, step {first.end.step}")),
        "why",
    )
    for way in found.ways:
        rows.add_row(_named(way, found), *(f"{rate:.3g}" for rate in _rates(way)), way.because)
    out.print(rows)
    if expected:
        err.print(facts(*estimate_rows(expected)))
    for sentence in found.notes:
        say(f"note: {sentence}")


def _named(way: ExtensionWay, found: ExtensionView) -> str:
    return f"{way.schedule} *" if len(found.ways) > 1 and way.schedule == found.schedule else way.schedule


def _rates(way: ExtensionWay) -> tuple[float, ...]:
    return tuple(each.learning_rate for each in (way.before, way.start, way.middle, way.end))


def _estimates(client: "Client", found: ExtensionView) -> tuple[CardEstimate, ...]:
    """Return how long the steps that are left take, as such jobs took before, and what they cost. A server that cannot say adds nothing."""
    spec = parse_spec(found.spec)
    assert isinstance(spec, TrainingSpec), "only trainings are extended"
    try:
        return estimates(remaining(spec), KnownBase(name=spec.base.id), client.jobs.place(spec))
    except GanglineError:
        return ()


def _sentence(found: ExtensionView) -> str:
    left = counted(found.steps - found.from_step, "step")
    schedule = "" if found.schedule == "constant" else f", with the schedule {found.schedule} (*)"
    return f"A new job continues {found.job} ({found.name}) from step {found.from_step}: it trains {left}, to step {found.steps}{schedule}."
