"""The options of `gangline data convert`, in the order of its help, and those that its neighbours share."""

from typing import Annotated, Literal

import typer

EngineName = Literal["processes", "ray"]
LatentsPrecision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[LatentsPrecision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

TargetArgument = Annotated[
    str, typer.Argument(help="A data set: a folder, or s3://BUCKET/PREFIX, such as photos.lance.", show_default=False)
]
EngineOption = Annotated[EngineName, typer.Option(help="Who does it: processes of this box, or a Ray cluster.")]
AddressOption = Annotated[
    str,
    typer.Option("--ray-address", help="A running cluster's address; without it one on this box.", show_default=False),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Show what would be done, and stop there.")]


SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A folder of images, one with webdataset tars, MDS, Parquet, Arrow, CSV, TSV or JSON files, or one such file; here "
        "or in s3://.",
        show_default=False,
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What is wanted, as SQL: 'width >= 512 and aspect <= 2 and pwatermark < 0.5'.", show_default=False
    ),
]
UniqueOption = Annotated[
    str, typer.Option(help="Of rows that are equal in this column keep the first: sha256, dhash, or one of yours.")
]
ShortSideOption = Annotated[
    int | None, typer.Option(min=8, help="Make images smaller whose shorter side is longer than that.")
]
FormatOption = Annotated[
    Literal["keep", "jpeg", "webp", "png"],
    typer.Option(help="How images are stored; keep leaves bytes as they are where it can."),
]
QualityOption = Annotated[int, typer.Option(min=1, max=100, help="Of JPEG and WebP.")]
CaptionColumnOption = Annotated[
    list[str] | None,
    typer.Option(help="Where captions are, where that is not found by itself.", show_default=False),
]
ImageColumnOption = Annotated[
    str, typer.Option(help="The column of images of a table; of a CSV, TSV or JSON file that of the images' paths.")
]
ImageMemberOption = Annotated[
    str,
    typer.Option(
        help="Which file of a webdataset sample is its image, where there are several: a pattern of its name, '*.image.jpg'."
    ),
]
CaptionMemberOption = Annotated[
    str, typer.Option(help="Which file of a webdataset sample is its caption: a pattern of its name, '*.prompt.txt'.")
]
UrlColumnOption = Annotated[str, typer.Option(help="The column of images' URLs (http, https or s3).")]
KindOption = Annotated[
    Literal["folder", "tars", "tables", "mds"] | None,
    typer.Option("--from", help="What the source is, where that is not found by itself."),
]
LatentsOfOption = Annotated[
    str,
    typer.Option(
        help="Keep the source's own columns latents_512 and the like: the model whose VAE made them, a folder, a file or a hub id.",
        show_default=False,
    ),
]
LatentsResolutionOption = Annotated[
    list[int] | None,
    typer.Option(help="Which of them, several times for several; a sample without one is left out (default: all)."),
]
LatentsScaledByOption = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        help="What they were multiplied by, 1 where by nothing (default: the VAE's scale).",
        show_default=False,
    ),
]
KeepUncaptionedOption = Annotated[
    bool, typer.Option("--keep-uncaptioned", help="Images without a caption are left out, unless this is given.")
]
RowsOption = Annotated[int, typer.Option(min=1, help="Samples of a piece: what an interruption costs at most.")]
ProcessesOption = Annotated[int, typer.Option(min=1, help="On this box.")]
ConnectionsOption = Annotated[int, typer.Option(min=1, max=1024, help="To the web at a time, of each process.")]
