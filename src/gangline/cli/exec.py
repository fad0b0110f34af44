"""`gangline exec`: any training script, made to survive interruption."""

import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline import compose
from gangline.cli.output import Output, OutputOption, duration, print_json, say, usd
from gangline.cli.terminal import Terminal, parse_signal
from gangline.core.errors import BadInput

if TYPE_CHECKING:
    from gangline.exec.plan import Summary

SETTINGS = {"allow_interspersed_args": False}


class Layout(StrEnum):
    auto = "auto"
    accelerate = "accelerate"
    kohya = "kohya"
    lightning = "lightning"
    hf_trainer = "hf-trainer"
    manifest = "manifest"


def exec_command(
    command: Annotated[
        list[str], typer.Argument(help="The command, after --; `{checkpoint}` in it becomes the checkpoint's path.")
    ],
    checkpoints: Annotated[
        Path, typer.Option("--checkpoints", help="The folder in which the command keeps its checkpoints.")
    ],
    to: Annotated[
        str, typer.Option("--to", help="s3://BUCKET/PREFIX, or a folder on a disk that stays; of this script alone.")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="ADDRESS:FOLDER, brought before the command starts; may be said again."),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", help="A file or folder besides --checkpoints to upload at the end."),
    ] = None,
    layout: Annotated[Layout, typer.Option("--layout", help="Which library writes the checkpoints.")] = Layout.auto,
    complete_when: Annotated[
        str,
        typer.Option(
            "--complete-when", help="A pattern of paths in --checkpoints: a checkpoint is complete when one is there."
        ),
    ] = "",
    keep: Annotated[int, typer.Option("--keep", min=2, help="How many checkpoints stay in the store.")] = 2,
    pin: Annotated[
        list[int] | None, typer.Option("--pin", help="A step whose checkpoint stays, too; may be said again.")
    ] = None,
    webhook: Annotated[
        str,
        typer.Option("--webhook", help="A URL that is told what happens; GANGLINE_WEBHOOK_SECRET (whsec_…) signs it."),
    ] = "",
    price: Annotated[float | None, typer.Option("--price", min=0, help="US dollars an hour of this machine.")] = None,
    notice: Annotated[
        str,
        typer.Option(
            "--notice",
            help="aws, gcp, azure: ask the provider whether it takes this machine back; or a file that appears.",
        ),
    ] = "",
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds that the command has to stop.")] = 90.0,
    stop_signal: Annotated[
        str, typer.Option("--stop-signal", help="What tells the command to save and stop.")
    ] = "TERM",
    any_script: Annotated[bool, typer.Option("--any-script", help="Go on from checkpoints of another script.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Run a command that trains, and go on where it was, wherever this is typed again.

    Its checkpoints go to the store as they become complete; the newest good one is there when it starts. It stops with SIGTERM: the
    command is told, its last checkpoint goes up, and this ends with 75. Otherwise it ends as the command does.
    """
    from gangline.exec.plan import Plan

    try:
        number = parse_signal(stop_signal)
    except ValueError:
        raise BadInput(f"{stop_signal} is no signal", hint="as TERM, INT or USR1") from None
    plan = Plan(
        command=tuple(command),
        rules=compose.exec_rules(layout.value, complete_when),
        keep=keep,
        pins=frozenset(pin or ()),
        grace_s=grace,
        stop_signal=number,
        usd_per_hour=price,
        results=tuple(results or ()),
        any_script=any_script,
    )
    shown: list[Terminal] = []

    def show(log: Path) -> Terminal:
        shown.append(Terminal(log, apart=output is Output.json))
        return shown[-1]

    run = compose.make_exec(
        plan,
        checkpoints=checkpoints,
        to=to,
        data=[_data(each) for each in data or ()],
        webhook=webhook,
        notice=notice,
        terminal=show,
    )
    try:
        ended = run()
    finally:
        for terminal in shown:
            terminal.close()
    with suppress(OSError):  # nobody reads any more
        if output is Output.json:
            print_json(ended)
        else:
            say(_told(ended))
    sys.exit(ended.exit_code)


def _data(word: str) -> tuple[str, Path]:
    address, _, folder = word.rpartition(":")
    if not address or not folder or folder.startswith("//"):
        raise BadInput(f"--data {word} names no folder", hint="say ADDRESS:FOLDER, as s3://BUCKET/photos:images")
    return address, Path(folder)


def _told(ended: "Summary") -> str:
    step = "" if ended.step is None else f", step {ended.step}"
    cost = "" if ended.cost_usd is None else f", {usd(ended.cost_usd)}"
    lost = f", {duration(ended.seconds_lost)} lost" if ended.seconds_lost else ""
    runs = f"{ended.runs} run{'s' * (ended.runs != 1)}"
    saved = f"{ended.checkpoints} checkpoint{'s' * (ended.checkpoints != 1)} saved in this one"
    return f"gangline: {ended.because}{step}; {runs}, {saved}, {duration(ended.seconds)} in all{lost}{cost}"
