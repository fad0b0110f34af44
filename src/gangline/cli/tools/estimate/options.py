"""The options of `gangline estimate`, in the order of its help."""

from pathlib import Path
from typing import Annotated

import typer

RECIPE = "Training recipe"
MEASURED, PRICES, INTERRUPTIONS, DATA = "Measurements", "Prices", "Interruptions", "Storage and egress"

OutlineArgument = Annotated[
    str | None,
    typer.Argument(
        help="Estimate this outline or recipe: a TOML file, or a recipe that `gangline recipes ls` lists. Options override it.",
        show_default=False,
    ),
]
MeasureOption = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Measure the throughput by running the trainer on this machine for a short time, instead of passing --gpus and "
        "--images-per-second.",
        rich_help_panel=RECIPE,
    ),
]
MeasureSOption = Annotated[
    float,
    typer.Option(
        metavar="X", min=0.1, max=600, help="Measure each phase for this many seconds.", rich_help_panel=RECIPE
    ),
]
DataSetOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Measure on this data set instead of the recipe's: a folder, or an s3:// address. Repeat it for several.",
        rich_help_panel=RECIPE,
    ),
]
DataWhereOption = Annotated[
    str | None,
    typer.Option(
        help="Measure on the rows of each data set for which this SQL condition holds, instead of the recipe's condition; "
        "'' uses all rows.",
        rich_help_panel=RECIPE,
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        help="Measure or compute with this model instead of the recipe's: a folder in diffusers' layout, or a hub id.",
        rich_help_panel=RECIPE,
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a setting of the recipe, as TOML, e.g. --set needs.slots=4. Repeat it for several.",
        rich_help_panel=RECIPE,
    ),
]
FamilyOption = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="sdxl|sd15|sd2",
        help="Name the family of the recipe's base (default: recognised from its folder or its published name).",
        rich_help_panel=RECIPE,
    ),
]
PhotosOption = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=10_000, help="Estimate a LoRA's recipe for this many photos.", rich_help_panel=RECIPE
    ),
]
SamplesOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Train on this many images in total, counting each as often as it is seen."),
]
GpusOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="N,N…",
        help="List the numbers of GPUs that were measured, comma-separated. With a recipe pass it once for all phases, or "
        "once for each. Without --images-per-second it lists the numbers to compute.",
        rich_help_panel=MEASURED,
    ),
]
ImagesPerSecondOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="X,X…",
        help="List the total throughput at each number in --gpus, comma-separated. With a recipe pass it once for each phase.",
        rich_help_panel=MEASURED,
    ),
]
BatchSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Train on this many images per step, over all GPUs together.", rich_help_panel=MEASURED
    ),
]
MicrobatchOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Compute this many images at a time on each GPU.", rich_help_panel=MEASURED),
]
PhasesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--phase",
        metavar="NAME:SAMPLES:GPUS=X,…[:MICROBATCH]",
        help="Describe one of several phases, instead of passing --samples, --gpus and --images-per-second. Repeat it for "
        "each phase.",
        rich_help_panel=MEASURED,
    ),
]
MeasuredOnOption = Annotated[
    str | None,
    typer.Option(
        metavar="GPU", help="Name the kind of GPU on which the throughput was measured.", rich_help_panel=MEASURED
    ),
]
PrecomputeGpuHoursOption = Annotated[
    str | None,
    typer.Option(
        metavar="X",
        help="Add this many GPU hours for what is computed once before training, e.g. latents.",
        rich_help_panel=MEASURED,
    ),
]
PredictOption = Annotated[
    str | None,
    typer.Option(metavar="N,N…", help="Predict these numbers of GPUs, which were not measured, comma-separated."),
]
UsdPerGpuHourOption = Annotated[
    str | None,
    typer.Option(
        metavar="X[,N=X…]",
        help="Price a GPU at this many US dollars an hour; N=X sets another price for N GPUs.",
        rich_help_panel=PRICES,
    ),
]
GpuOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=USD",
        help="Estimate for this kind of GPU at its price in US dollars an hour. Repeat it for several. With a recipe but "
        "without --images-per-second the throughput is computed.",
        rich_help_panel=PRICES,
    ),
]
InterruptionsPerNodeHourOption = Annotated[
    str | None,
    typer.Option(
        metavar="X", help="Each node is interrupted this often an hour (default: never).", rich_help_panel=INTERRUPTIONS
    ),
]
GpusPerNodeOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Each node has this many GPUs (default: 8).", rich_help_panel=INTERRUPTIONS),
]
CheckpointSOption = Annotated[
    str | None,
    typer.Option(
        metavar="X", help="Each checkpoint stops training for this many seconds.", rich_help_panel=INTERRUPTIONS
    ),
]
RestartSOption = Annotated[
    str | None,
    typer.Option(
        metavar="X", help="Training resumes this many seconds after an interruption.", rich_help_panel=INTERRUPTIONS
    ),
]
DatasetGbOption = Annotated[
    str | None, typer.Option(metavar="X", help="The data set has this size in GB.", rich_help_panel=DATA)
]
DatasetImagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="The data set has this many images; nodes without a cache download it again in every epoch (default: it is "
        "downloaded once).",
        rich_help_panel=DATA,
    ),
]
CheckpointGbOption = Annotated[
    str | None,
    typer.Option(metavar="X", help="Each checkpoint has this size in GB; two are kept.", rich_help_panel=DATA),
]
StorageUsdPerGbMonthOption = Annotated[
    str | None,
    typer.Option(metavar="X", help="Storage costs this many US dollars per GB and month.", rich_help_panel=DATA),
]
EgressUsdPerGbOption = Annotated[
    str | None, typer.Option(metavar="X", help="Downloads cost this many US dollars per GB.", rich_help_panel=DATA)
]
FiguresOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--figure", metavar="FILE", help="Draw days against GPUs into this .svg or .png file. Repeat it for several."
    ),
]
