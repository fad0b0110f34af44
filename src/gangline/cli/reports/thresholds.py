"""`gangline costs thresholds`: amounts of money of whose crossing there is a notice."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.filters import check_text
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
    usd,
)
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.money.forecast import COST_SPANS, CostSpan
from gangline.core.money.thresholds import PERCENTS, scope_words

if TYPE_CHECKING:
    from gangline.core.reports.thresholds import ThresholdView

app = typer.Typer(no_args_is_help=True)


@app.command("set")
def set_threshold_command(
    amount: Annotated[
        float, typer.Argument(metavar="USD", min=0, help="Name an amount in US dollars.", show_default=False)
    ],
    per: Annotated[str, typer.Option("--per", help="Sum the costs of each day or each month: day or month.")] = "month",
    project: Annotated[
        str,
        typer.Option(
            "--of", help="Sum the costs of this project (default: all that the service costs).", show_default=False
        ),
    ] = "",
    pool: Annotated[
        str, typer.Option("--pool", help="Sum the costs on nodes of this pool (default: of all).", show_default=False)
    ] = "",
    at: Annotated[
        list[int] | None,
        typer.Option(
            "--at",
            min=1,
            max=1000,
            help="Give notice when this share, in percent, is spent; repeat it for several (default: 50, 80 and 100).",
            show_default=False,
        ),
    ] = None,
    forecast: Annotated[
        bool, typer.Option(help="Give notice, too, when more than the amount is expected to be spent.")
    ] = True,
    zone: Annotated[
        str, typer.Option("--zone", help="Days and months are those of this time zone, such as Europe/Berlin.")
    ] = "UTC",
    notify: Annotated[
        str,
        typer.Option(
            "--notify",
            help="Send the notices to the endpoints of this project (default: those of --of).",
            show_default=False,
        ),
    ] = "",
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Set what each day or month may cost before endpoints get a notice (for operators). It stops nothing."""
    for text, option in ((project, "--of"), (pool, "--pool"), (zone, "--zone"), (notify, "--notify")):
        check_text(text, option)
    found = make_client(server, token).costs.set_threshold(
        amount,
        _span(per),
        project=project,
        pool=pool,
        percents=tuple(at) if at else PERCENTS,
        forecast=forecast,
        zone=zone,
        notify=notify,
    )
    if output is Output.json:
        print_json(found)
    else:
        out.print(_table([found]))
        _say_unheard([found])


@app.command("ls")
def list_thresholds_command(
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the thresholds, with what is spent and expected of them now, and the notices of this day or month."""
    found = make_client(server, token, project).costs.thresholds()
    if output is Output.json:
        print_json(found)
    elif not found:
        say("there is no threshold")
    else:
        out.print(_table(found))
        _say_unheard(found)
        for each in found:
            for notice in each.notices:
                out.print(printable(f"{format_time(notice.at_ms)}: {notice.because}"))


@app.command("rm")
def remove_threshold_command(
    threshold: Annotated[
        str,
        typer.Argument(
            help="Name the threshold by its id, as `gangline costs thresholds ls` shows it.", show_default=False
        ),
    ],
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Remove a threshold (for operators)."""
    make_client(server, token).costs.remove_threshold(threshold)
    say(f"{threshold} is no threshold any more")


def _say_unheard(found: "Iterable[ThresholdView]") -> None:
    """Say which projects' endpoints do not hear of thresholds: their notices wait."""
    for project in sorted({each.notify for each in found if not each.endpoints}):
        say(
            f"nobody hears of thresholds in the project {project} yet, and notices wait: add an endpoint there "
            f"(`gangline notify add CHANNEL ADDRESS --project {project}`), or let one receive cost_threshold, too"
        )


def _span(text: str) -> CostSpan:
    for each in COST_SPANS:
        if each == text:
            return each
    raise BadInput(f"--per: {text!r} is no time", hint=f"give one of {', '.join(COST_SPANS)}")


def _table(found: "list[ThresholdView] | tuple[ThresholdView, ...]") -> object:
    rows = table("threshold", "costs of", ">a", ">amount", ">spent", ">expected", "notices at", "notifies")
    for each in found:
        shares = [f"{percent} %" for percent in each.percents] + (["a forecast"] if each.forecast else [])
        rows.add_row(
            each.id,
            printable(scope_words(each.project, each.pool)),
            each.per,
            usd(each.usd),
            usd(each.spent_usd),
            "–" if each.expected_usd is None else usd(each.expected_usd),
            ", ".join(shares),
            each.notify,
        )
    return rows
