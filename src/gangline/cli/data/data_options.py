"""The options of `gangline data convert`, in the order of its help, and those that its neighbours share."""

from typing import Annotated, Literal

import typer

EngineName = Literal["processes", "ray"]
LatentsPrecision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[LatentsPrecision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

TargetArgument = Annotated[
    str,
    typer.Argument(help="Name the data set: a folder, e.g. photos.lance, or s3://BUCKET/PREFIX.", show_default=False),
]
EngineOption = Annotated[
    EngineName, typer.Option(help="Run the work in processes on this machine, or on a Ray cluster.")
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--ray-address",
        help="Use the Ray cluster at this address (default: start one on this machine).",
        show_default=False,
    ),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Show what would be done, but do nothing.")]


SourceArgument = Annotated[
    str,
    typer.Argument(
        help="Convert this folder of images, or of webdataset tars, MDS, Parquet, Arrow, CSV, TSV or JSON files, or one "
        "such file. It may be local or at s3://.",
        show_default=False,
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Keep only the samples for which this SQL condition holds, e.g. 'width >= 512 and aspect <= 2 and pwatermark < "
        "0.5'.",
        show_default=False,
    ),
]
UniqueOption = Annotated[
    str,
    typer.Option(
        help="Keep only the first of several rows that are equal in this column: sha256, dhash, or a column of the source "
        "(default: keep all)."
    ),
]
ShortSideOption = Annotated[
    int | None,
    typer.Option(
        min=8, help="Downscale images whose shorter side is longer than this many pixels (default: keep their size)."
    ),
]
FormatOption = Annotated[
    Literal["keep", "jpeg", "webp", "png"],
    typer.Option(help="Store images in this format; keep stores their original bytes if possible."),
]
QualityOption = Annotated[int, typer.Option(min=1, max=100, help="Store JPEG and WebP images at this quality.")]
CaptionColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Read captions from this column (default: recognised). Repeat it for several.", show_default=False
    ),
]
ImageColumnOption = Annotated[
    str,
    typer.Option(
        help="Read images from this column of a table, or their paths from this column of a CSV, TSV or JSON file (default: "
        "recognised)."
    ),
]
ImageMemberOption = Annotated[
    str,
    typer.Option(
        help="Use the file of a webdataset sample whose name matches this pattern as its image if there are several, e.g. "
        "'*.image.jpg'."
    ),
]
CaptionMemberOption = Annotated[
    str,
    typer.Option(
        help="Use the file of a webdataset sample whose name matches this pattern as its caption, e.g. '*.prompt.txt'."
    ),
]
UrlColumnOption = Annotated[
    str, typer.Option(help="Read the images' URLs (http, https or s3) from this column (default: recognised).")
]
KindOption = Annotated[
    Literal["folder", "tars", "tables", "mds"] | None,
    typer.Option("--from", help="State what the source is (default: recognised)."),
]
LatentsOfOption = Annotated[
    str,
    typer.Option(
        help="Keep the source's own columns of latents (latents_512 and the like). This names the model whose VAE made "
        "them: a folder, a file or a hub id.",
        show_default=False,
    ),
]
LatentsResolutionOption = Annotated[
    list[int] | None,
    typer.Option(
        help="Keep only latents of this resolution (default: all). Repeat it for several. Samples without such latents are "
        "skipped."
    ),
]
LatentsScaledByOption = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        help="State the factor by which the source's latents are scaled, 1 if they are not (default: the VAE's scale).",
        show_default=False,
    ),
]
KeepUncaptionedOption = Annotated[
    bool, typer.Option("--keep-uncaptioned", help="Keep images without a caption, which are otherwise skipped.")
]
RowsOption = Annotated[
    int, typer.Option(min=1, help="Convert this many samples at a time; an interruption loses at most one such piece.")
]
ProcessesOption = Annotated[int, typer.Option(min=1, help="Run this many processes on this machine.")]
ConnectionsOption = Annotated[
    int, typer.Option(min=1, max=1024, help="Open at most this many connections at the same time in each process.")
]
