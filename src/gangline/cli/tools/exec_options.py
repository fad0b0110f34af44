"""The options of `gangline exec`, in the order of its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Layout(StrEnum):
    auto = "auto"
    accelerate = "accelerate"
    kohya = "kohya"
    simpletuner = "simpletuner"
    lightning = "lightning"
    hf_trainer = "hf-trainer"
    dcp = "dcp"
    onetrainer = "onetrainer"
    manifest = "manifest"
    files = "files"
    folder = "folder"


CommandArgument = Annotated[
    list[str],
    typer.Argument(
        help="Run this command, written after --; `{checkpoint}` in it is replaced by the path of the checkpoint to resume "
        "from."
    ),
]
CheckpointsOption = Annotated[
    Path, typer.Option("--checkpoints", help="Watch this folder, in which the command saves its checkpoints.")
]
ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="Upload to s3://BUCKET/PREFIX, or to a folder on a disk that outlives this machine. No other script may use it.",
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Download ADDRESS to FOLDER before the command starts, given as ADDRESS:FOLDER. Repeat it for several.",
    ),
]
ResultsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--results", help="Upload this file or folder too, each time that it stops changing. Repeat it for several."
    ),
]
LayoutOption = Annotated[
    Layout,
    typer.Option(
        "--layout",
        help="Name the program that writes the checkpoints, or the form of its checkpoints. `folder` uploads the whole "
        "folder whenever nothing in it is open.",
    ),
]
CompleteWhenOption = Annotated[
    str,
    typer.Option(
        "--complete-when", help="Treat a checkpoint as complete once a path in --checkpoints matches this pattern."
    ),
]
StepOption = Annotated[
    str,
    typer.Option(
        "--step",
        help="Read a checkpoint's step from its name by this pattern with `{step}`, e.g. 'run_{step}_*.pt'. * does not "
        "match a slash.",
    ),
]
KeepOption = Annotated[int, typer.Option("--keep", min=2, help="Keep this many checkpoints in the store.")]
KeepAfterEndOption = Annotated[
    int | None,
    typer.Option(
        "--keep-after-end",
        min=0,
        help="Keep this many checkpoints once the command has ended with 0; 0 keeps only the results (default: keep all "
        "that are there).",
    ),
]
PinOption = Annotated[
    list[int] | None, typer.Option("--pin", help="Keep the checkpoint of this step too. Repeat it for several.")
]
WebhookOption = Annotated[
    str,
    typer.Option("--webhook", help="Send events to this URL, signed with GANGLINE_WEBHOOK_SECRET (whsec_…)."),
]
MachinePriceOption = Annotated[
    float | None,
    typer.Option(
        "--price", min=0, help="Report costs at this price of the machine in US dollars an hour (default: no costs)."
    ),
]
NoticeOption = Annotated[
    str,
    typer.Option(
        "--notice",
        help="Stop in time before the machine is preempted: ask the provider (aws, gcp or azure) for its notice, or watch "
        "for a file at this path.",
    ),
]
GraceOption = Annotated[float, typer.Option("--grace", min=0, help="Give the command this many seconds to stop.")]
StopSignalOption = Annotated[
    str, typer.Option("--stop-signal", help="Send this signal to make the command save and stop.")
]
AnyScriptOption = Annotated[bool, typer.Option("--any-script", help="Resume from checkpoints of another script too.")]
InMemoryOption = Annotated[
    bool,
    typer.Option(
        "--in-memory",
        help="Keep the folder of --checkpoints in memory (tmpfs) while two checkpoints fit into a quarter of what is free, else on disk.",
    ),
]

# Of `gangline exec ls`, `get` and `rm`

AddressArgument = Annotated[
    str, typer.Argument(help="Use the store that --to of `gangline exec` named: s3://BUCKET/PREFIX, or a folder.")
]
FolderArgument = Annotated[
    Path, typer.Argument(help="Write the files to this folder, which is created if it does not exist.")
]
CheckpointOption = Annotated[
    bool, typer.Option("--checkpoint", help="Download the newest good checkpoint too, into FOLDER/checkpoint.")
]
RunOption = Annotated[
    int | None,
    typer.Option(
        "--run", min=1, help="Download the results of this run and those before it (default: the newest run)."
    ),
]
ListCheckpointsOption = Annotated[bool, typer.Option("--checkpoints", help="List the checkpoints of all runs.")]
RemoveRunOption = Annotated[
    int | None,
    typer.Option(
        "--run", min=1, help="Remove the files of this run. Its record of when it began and how it ended is kept."
    ),
]
RemoveCheckpointsOption = Annotated[
    bool, typer.Option("--checkpoints", help="Remove the checkpoints of all runs. Results are kept.")
]
RemoveAllOption = Annotated[
    bool, typer.Option("--all", help="Remove everything, so that the same command starts from the beginning.")
]
RemoveYesOption = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking for confirmation.")]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Remove also what a running or just killed run resumes from."),
]
