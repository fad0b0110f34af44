"""The options of `gangline estimate`, in the order of its help."""

from pathlib import Path
from typing import Annotated

import typer

RECIPE = "A training recipe"
MEASURED, PRICES, INTERRUPTIONS, DATA = "What was measured", "Prices", "Interruptions", "Storage and egress"

OutlineArgument = Annotated[
    str | None,
    typer.Argument(
        help="A TOML file, or the name of a recipe that `gangline recipes ls` lists; options override it.",
        show_default=False,
    ),
]
MeasureOption = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Run the trainer on this machine first, for a short time, in the place of --gpus and --images-per-second.",
        rich_help_panel=RECIPE,
    ),
]
MeasureSOption = Annotated[
    float, typer.Option(metavar="X", min=0.1, max=600, help="So long in each phase.", rich_help_panel=RECIPE)
]
DataSetOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A data set to measure on, in the place of the recipe's: a folder, or s3://.", rich_help_panel=RECIPE
    ),
]
DataWhereOption = Annotated[
    str | None,
    typer.Option(
        help="The rows of each data set to measure on, in the place of the recipe's condition; '' for all of them.",
        rich_help_panel=RECIPE,
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        help="The model to measure or compute with, in the place of the recipe's: a folder in diffusers' layout, or a hub id.",
        rich_help_panel=RECIPE,
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting of the recipe anew, as TOML: --set needs.slots=4.", rich_help_panel=RECIPE),
]
FamilyOption = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="sdxl|sd15|sd2",
        help="What the recipe's base is, where that cannot be seen from a folder or a published name.",
        rich_help_panel=RECIPE,
    ),
]
PhotosOption = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=10_000, help="Photos that a LoRA's recipe is used with.", rich_help_panel=RECIPE
    ),
]
SamplesOption = Annotated[str | None, typer.Option(metavar="N", help="Images to train on, each as often as it comes.")]
GpusOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="N,N…",
        help="Numbers of GPUs measured. Of a recipe's phases once, or once for each; without --images-per-second, numbers to compute.",
        rich_help_panel=MEASURED,
    ),
]
ImagesPerSecondOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="X,X…",
        help="Of all GPUs together, one by one. With a recipe once for each phase.",
        rich_help_panel=MEASURED,
    ),
]
BatchSizeOption = Annotated[
    str | None, typer.Option(metavar="N", help="Images of a step over all GPUs.", rich_help_panel=MEASURED)
]
MicrobatchOption = Annotated[
    str | None, typer.Option(metavar="N", help="Images that a GPU takes at a time.", rich_help_panel=MEASURED)
]
PhasesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--phase",
        metavar="NAME:SAMPLES:GPUS=X,…[:MICROBATCH]",
        help="Of several, in place of --samples, --gpus and --images-per-second. May be repeated.",
        rich_help_panel=MEASURED,
    ),
]
MeasuredOnOption = Annotated[str | None, typer.Option(metavar="GPU", help="The kind of GPU.", rich_help_panel=MEASURED)]
PrecomputeGpuHoursOption = Annotated[
    str | None, typer.Option(metavar="X", help="Of what is made once before training.", rich_help_panel=MEASURED)
]
PredictOption = Annotated[str | None, typer.Option(metavar="N,N…", help="Numbers of GPUs not measured.")]
UsdPerGpuHourOption = Annotated[
    str | None,
    typer.Option(metavar="X[,N=X…]", help="The price; of N GPUs another one.", rich_help_panel=PRICES),
]
GpuOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=USD",
        help="A kind of GPU and its price per hour. May be repeated. Of a recipe without --images-per-second it is computed.",
        rich_help_panel=PRICES,
    ),
]
InterruptionsPerNodeHourOption = Annotated[
    str | None, typer.Option(metavar="X", help="How often a node is taken away.", rich_help_panel=INTERRUPTIONS)
]
GpusPerNodeOption = Annotated[str | None, typer.Option(metavar="N", help="[default: 8]", rich_help_panel=INTERRUPTIONS)]
CheckpointSOption = Annotated[
    str | None,
    typer.Option(metavar="X", help="A checkpoint stops training so long.", rich_help_panel=INTERRUPTIONS),
]
RestartSOption = Annotated[
    str | None,
    typer.Option(metavar="X", help="From an interruption until training goes on.", rich_help_panel=INTERRUPTIONS),
]
DatasetGbOption = Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)]
DatasetImagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Read again in every epoch, as nodes keep no cache; else once.", rich_help_panel=DATA
    ),
]
CheckpointGbOption = Annotated[
    str | None, typer.Option(metavar="X", help="Of each; two are kept.", rich_help_panel=DATA)
]
StorageUsdPerGbMonthOption = Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)]
EgressUsdPerGbOption = Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)]
FiguresOption = Annotated[
    list[Path] | None,
    typer.Option("--figure", metavar="FILE", help="Draw days against GPUs: .svg or .png. May be repeated."),
]
