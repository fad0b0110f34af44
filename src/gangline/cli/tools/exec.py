"""`gangline exec`: any training script, made to survive interruption."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cli.output import Output, OutputOption, duration, print_json, say, usd
from gangline.cli.tools import exec_options as options
from gangline.cli.tools.terminal import Terminal, parse_signal
from gangline.compose.exec import exec_rules, make_exec
from gangline.core.errors import BadInput
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.exec.plan import Summary


def exec_command(
    command: options.CommandArgument,
    checkpoints: options.CheckpointsOption,
    to: options.ToOption,
    data: options.DataOption = None,
    results: options.ResultsOption = None,
    layout: options.LayoutOption = options.Layout.auto,
    complete_when: options.CompleteWhenOption = "",
    step: options.StepOption = "",
    keep: options.KeepOption = 2,
    keep_after_end: options.KeepAfterEndOption = None,
    pin: options.PinOption = None,
    webhook: options.WebhookOption = "",
    price: options.MachinePriceOption = None,
    notice: options.NoticeOption = "",
    grace: options.GraceOption = 90.0,
    stop_signal: options.StopSignalOption = "TERM",
    any_script: options.AnyScriptOption = False,
    in_memory: options.InMemoryOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Run a training command, and resume it from its newest checkpoint on any machine where it is run again.

    Checkpoints are uploaded to the store as soon as they are complete, and the newest good one is downloaded before the command starts.
    On SIGTERM the command is stopped, its last checkpoint is uploaded, and the exit code is 75. Otherwise the exit code is the command's.

    `gangline exec ls` lists the runs in the store, `gangline exec get` downloads their results, `gangline exec rm` removes their files.
    """
    from gangline.exec.plan import ExecPlan

    try:
        number = parse_signal(stop_signal)
    except ValueError:
        raise BadInput(
            f"--stop-signal {stop_signal} is not a signal", hint="pass a signal such as TERM, INT or USR1"
        ) from None
    plan = ExecPlan(
        command=tuple(command),
        rules=exec_rules(layout.value, complete_when, step),
        keep=keep,
        keep_after_end=keep_after_end,
        pins=frozenset(pin or ()),
        grace_s=grace,
        stop_signal=number,
        usd_per_hour=price,
        any_script=any_script,
    )
    shown: list[Terminal] = []

    def show(log: Path, dumb: bool) -> Terminal:
        shown.append(Terminal(log, apart=output is Output.json, dumb=dumb))
        return shown[-1]

    run = make_exec(
        plan,
        checkpoints=checkpoints,
        to=to,
        data=[_data(each) for each in data or ()],
        results=tuple(results or ()),
        webhook=webhook,
        notice=notice,
        in_memory=in_memory,
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
            say(_sentence(ended))
    sys.exit(ended.exit_code)


def _data(word: str) -> tuple[str, Path]:
    address, _, folder = word.rpartition(":")
    if not address or not folder or folder.startswith("//"):
        raise BadInput(
            f"--data {word} does not name a folder", hint="write ADDRESS:FOLDER, e.g. s3://BUCKET/photos:images"
        )
    return address, Path(folder)


def _sentence(ended: "Summary") -> str:
    step = "" if ended.step is None else f", step {ended.step}"
    cost = "" if ended.cost_usd is None else f", {usd(ended.cost_usd)}"
    lost = f", {duration(ended.seconds_lost)} lost" if ended.seconds_lost else ""
    runs = counted(ended.runs, "run")
    saved = f"{counted(ended.checkpoints, 'checkpoint')} saved in this one"
    return f"gangline: {ended.because}{step}; {runs}, {saved}, {duration(ended.seconds)} in all{lost}{cost}"
