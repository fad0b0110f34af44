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
    list[str], typer.Argument(help="The command, after --; `{checkpoint}` in it becomes the checkpoint's path.")
]
CheckpointsOption = Annotated[
    Path, typer.Option("--checkpoints", help="The folder in which the command keeps its checkpoints.")
]
ToOption = Annotated[
    str, typer.Option("--to", help="s3://BUCKET/PREFIX, or a folder on a disk that stays; of this script alone.")
]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data", help="ADDRESS:FOLDER, brought before the command starts; may be said again."),
]
ResultsOption = Annotated[
    list[Path] | None,
    typer.Option("--results", help="A file or folder besides --checkpoints to upload as it settles; may be repeated."),
]
LayoutOption = Annotated[
    Layout,
    typer.Option(
        "--layout",
        help="What writes the checkpoints. `folder` takes the whole folder each time that nothing in it is open.",
    ),
]
CompleteWhenOption = Annotated[
    str,
    typer.Option(
        "--complete-when", help="A pattern of paths in --checkpoints: a checkpoint is complete when one is there."
    ),
]
StepOption = Annotated[
    str,
    typer.Option(
        "--step",
        help="Where a checkpoint's name has its step: a pattern with `{step}`, as 'run_{step}_*.pt'. * stands for no slash.",
    ),
]
KeepOption = Annotated[int, typer.Option("--keep", min=2, help="How many checkpoints stay in the store.")]
KeepAfterEndOption = Annotated[
    int | None,
    typer.Option(
        "--keep-after-end",
        min=0,
        help="How many checkpoints stay once the command has ended with 0 (default: those that are there). 0: results alone stay.",
    ),
]
PinOption = Annotated[
    list[int] | None, typer.Option("--pin", help="A step whose checkpoint stays, too; may be said again.")
]
WebhookOption = Annotated[
    str,
    typer.Option("--webhook", help="A URL that is told what happens; GANGLINE_WEBHOOK_SECRET (whsec_…) signs it."),
]
MachinePriceOption = Annotated[float | None, typer.Option("--price", min=0, help="US dollars an hour of this machine.")]
NoticeOption = Annotated[
    str,
    typer.Option(
        "--notice",
        help="aws, gcp, azure: ask the provider whether it takes this machine back; or a file that appears.",
    ),
]
GraceOption = Annotated[float, typer.Option("--grace", min=0, help="Seconds that the command has to stop.")]
StopSignalOption = Annotated[str, typer.Option("--stop-signal", help="What tells the command to save and stop.")]
AnyScriptOption = Annotated[bool, typer.Option("--any-script", help="Go on from checkpoints of another script.")]

# Of `gangline exec ls`, `get` and `rm`

AddressArgument = Annotated[
    str, typer.Argument(help="What --to of `gangline exec` was: s3://BUCKET/PREFIX, or a folder.")
]
FolderArgument = Annotated[Path, typer.Argument(help="Where the files go; made where it lacks.")]
CheckpointOption = Annotated[
    bool, typer.Option("--checkpoint", help="Download the newest good checkpoint, too, into FOLDER/checkpoint.")
]
RunOption = Annotated[
    int | None,
    typer.Option("--run", min=1, help="Results of this run and those before it (default: the newest run)."),
]
ListCheckpointsOption = Annotated[bool, typer.Option("--checkpoints", help="List the checkpoints of all runs.")]
RemoveRunOption = Annotated[
    int | None, typer.Option("--run", min=1, help="What this run left. When it began and how it ended stays.")
]
RemoveCheckpointsOption = Annotated[
    bool, typer.Option("--checkpoints", help="The checkpoints of all runs. Results stay.")
]
RemoveAllOption = Annotated[bool, typer.Option("--all", help="All that lies there: the same line begins anew.")]
RemoveYesOption = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Also what a run that is at work goes on from, or one that has just been killed."),
]
