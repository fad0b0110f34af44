"""`gangline jobs clone`: a new job with the photos of another one and some other settings, which are shown before it is submitted."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    err,
    facts,
    out,
    print_json,
    say,
    table,
)
from gangline.core.errors import GanglineError
from gangline.core.jobs.clone import CloneView
from gangline.core.plans.base import KnownBase
from gangline.core.plans.outlook import CardEstimate, estimates
from gangline.core.plans.rows import estimate_rows
from gangline.core.specs.changes import SettingChange, parse_changes_of
from gangline.core.specs.kinds import DEFAULT_KIND
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import parse_spec

if TYPE_CHECKING:
    from gangline.compose.client import Client

NOTHING = "–"


def clone_job_command(
    job: JobArgument,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Give the new job another value of this setting, e.g. --set rank=16, --set needs.pool=home or --set base=pony. "
            "Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name the new job (default: as the old one).", show_default=False)] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be submitted and what it would cost, but submit nothing.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Submit a new job with the photos, the base and the labels of another one, and with some other settings.

    The job may be in any state and stays as it is. The new one starts at step 0.
    """
    client, job = client_and_job(server, token, job)
    kind = str(client.jobs.get(job).spec.get("kind", DEFAULT_KIND)) if setting else DEFAULT_KIND
    changes = parse_changes_of(kind, setting or [])
    if plan or output is Output.text:
        found = client.jobs.plan_clone(job, changes, name=name)
        if plan and output is Output.json:
            print_json(found)
            return
        _show(found, _estimates(client, found) if plan else ())
    if plan:
        return
    made = client.jobs.clone(job, changes, name=name)
    if output is Output.json:
        print_json(made)
        return
    say(f"{made.summary.id} is {made.summary.state}: {made.summary.because}")
    out.print(made.summary.id)


def _show(found: CloneView, expected: tuple[CardEstimate, ...]) -> None:
    """Show for people what differs; standard output has the new job's id alone, for programs."""
    if found.changes:
        err.print(changes_table(found.changes, "old", "new"))
    for sentence in found.notes:
        say(f"note: {sentence}")
    if expected:
        err.print(facts(*estimate_rows(expected)))


def changes_table(changes: tuple[SettingChange, ...], before: str, after: str) -> Any:
    rows = table("setting", before, after)
    for each in changes:
        rows.add_row(each.setting, value_in_words(each.before), value_in_words(each.after))
    return rows


def value_in_words(value: Any) -> str:
    """Return a value as people write it in a recipe."""
    if value is None or value in ("", [], ()):
        return NOTHING
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _estimates(client: "Client", found: CloneView) -> tuple[CardEstimate, ...]:
    """Return how long the new job would take, as such jobs took before, and what it would cost. A server that cannot say adds nothing."""
    try:
        spec = parse_spec(found.spec)
        if not isinstance(spec, TrainingSpec):
            return ()
        return estimates(spec, KnownBase(name=spec.base.id), client.jobs.place(spec))
    except GanglineError:
        return ()  # its photos are still to be fetched, so nobody knows how many there are
