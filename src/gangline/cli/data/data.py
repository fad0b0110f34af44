"""`gangline data`: make, encode, inspect and list data sets for training from scratch."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.data import data_options as options
from gangline.cli.data.data_page import (
    data_json,
    forecast_json,
    print_data_set,
    print_made,
    tell_conversion,
    tell_forecast,
)
from gangline.cli.data.progress import progress, said_again
from gangline.cli.output import Output, OutputOption, check_place, facts, out, print_json, say, table
from gangline.compose.buckets import data_place
from gangline.compose.settings import needing
from gangline.core.errors import BadInput
from gangline.core.specs.fields import RESOLUTION_MAX
from gangline.core.words import listed
from gangline.posix import cores

if TYPE_CHECKING:
    from gangline.data.making.engine import Engine
    from gangline.data.place import Entry
    from gangline.data.sources import Source

SHEET_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
app = typer.Typer(no_args_is_help=True)


@app.command("convert")
def convert_data_command(
    source: options.SourceArgument,
    target: options.TargetArgument,
    where: options.WhereOption = None,
    unique: options.UniqueOption = "",
    short_side: options.ShortSideOption = None,
    format: options.FormatOption = "keep",
    quality: options.QualityOption = 95,
    caption_column: options.CaptionColumnOption = None,
    image_column: options.ImageColumnOption = "",
    url_column: options.UrlColumnOption = "",
    image_member: options.ImageMemberOption = "",
    caption_member: options.CaptionMemberOption = "",
    kind: options.KindOption = None,
    keep_uncaptioned: options.KeepUncaptionedOption = False,
    latents_of: options.LatentsOfOption = "",
    latents_resolution: options.LatentsResolutionOption = None,
    latents_scaled_by: options.LatentsScaledByOption = None,
    rows: options.RowsOption = 8192,
    processes: options.ProcessesOption = cores(),
    connections: options.ConnectionsOption = 32,
    engine: options.EngineOption = "processes",
    ray_address: options.AddressOption = "",
    plan: options.PlanOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Convert images into a data set. After an interruption the same command continues from there."""
    with needing("data"):
        from gangline.data.making.conversion import Conversion
        from gangline.data.making.convert import check_conversion, convert
        from gangline.data.making.fetch import Fetching
        from gangline.data.making.row import Storing
        from gangline.data.sources import Hints, find_source
        from gangline.data.where import Where

    hints = Hints(
        kind=kind or "",
        captions=tuple(caption_column or ()),
        image=image_column,
        url=url_column,
        image_member=image_member,
        caption_member=caption_member,
        uncaptioned=keep_uncaptioned,
    )
    found, entries = find_source(data_place(here_or_bundled(source)), hints)
    if latents_of:
        found = with_latents(found, entries, latents_of, latents_resolution or [], latents_scaled_by)
    elif latents_resolution or latents_scaled_by:
        raise BadInput(
            "--latents-resolution and --latents-scaled-by describe columns of latents, but --latents-of does not name "
            "their model",
            hint="pass --latents-of MODEL too",
        )
    conversion = Conversion(
        source=found,
        target=data_place(target),
        where=Where(tuple(where or ())),
        unique=unique,
        storing=Storing(format=format, quality=quality, short_side=short_side),
        keep_uncaptioned=keep_uncaptioned,
        rows=rows,
    )
    check_conversion(conversion)
    pieces = len(found.shards(entries, rows))
    tell_conversion(conversion, source, pieces, len(entries))
    if plan:
        if output is Output.json:
            print_json(
                {"kind": found.kind, "files": len(entries), "pieces": pieces, "columns": conversion.schema.names}
            )
        return
    with progress("samples") as bar, said_again():

        def show(now: Any) -> None:
            share = now.shards_done / max(now.shards, 1)
            bar(share, now.seen, now.seen_before, f"{now.rows} kept, {sum(now.left_out.values())} skipped")

        made, done = convert(
            conversion,
            entries,
            make_engine(engine, processes, ray_address),
            Fetching(connections=connections, buckets=data_place("s3://any").options),
            show,
        )
    print_made(made, done, output)


@app.command("encode")
def encode_data_command(
    target: options.TargetArgument,
    base: Annotated[
        str,
        typer.Option(
            help="Encode with the VAE and text encoders of this model: a folder, a file or a hub id.",
            show_default=False,
        ),
    ],
    resolution: Annotated[
        list[int],
        typer.Option(
            min=8,
            max=RESOLUTION_MAX,
            help="Encode squares whose side has this many pixels. Repeat it for a column of each resolution.",
            show_default=False,
        ),
    ],
    vae: Annotated[str, typer.Option(help="Use this VAE instead of the base's own.")] = "",
    crop: Annotated[
        Literal["center", "random"],
        typer.Option(help="Crop an image that is not square at its center, or at one random place."),
    ] = "center",
    texts: Annotated[
        bool,
        typer.Option(
            "--texts",
            help="Store text embeddings of each first caption too. Compared with latents of 512 pixels, they are 5 times as "
            "large for SDXL and about twice as large for Stable Diffusion 1 and 2. Training with them uses no other captions.",
        ),
    ] = False,
    precision: Annotated[
        options.LatentsPrecision, typer.Option(help="Compute in this precision; the results are stored in fp16.")
    ] = "fp32",
    batch_size: Annotated[int, typer.Option(min=1, help="Encode this many images, and captions, at a time.")] = 8,
    processes: Annotated[
        int, typer.Option(min=1, help="Run this many processes on this machine, each on its own GPU.")
    ] = 1,
    usd_per_hour: Annotated[
        float,
        typer.Option(
            min=0,
            help="Estimate the cost from this price in US dollars an hour for each process (default: no estimate).",
        ),
    ] = 0.0,
    engine: options.EngineOption = "processes",
    ray_address: options.AddressOption = "",
    plan: options.PlanOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Add image latents to a data set, so that training need not compute them in every epoch. After an interruption the same command
    continues from there."""
    with needing("data"):
        from gangline.data.dataset import open_data_set
    with needing("train"):
        from gangline.train.encoding.encode import encode_data_set, forecast_encoding
        from gangline.train.encoding.encoder import Encoding

    data = open_data_set(data_place(target))
    encoding = Encoding(
        target=data.place,
        version=data.version,
        base=local_model(base),
        vae=local_model(vae) if vae else None,
        resolutions=tuple(dict.fromkeys(resolution)),
        crop=crop,
        texts=texts,
        dtype=options.DTYPES[precision],
        batch_size=batch_size,
    )
    expected = forecast_encoding(data, encoding)
    tell_forecast(expected, processes, usd_per_hour)
    if plan:
        if output is Output.json:
            print_json(forecast_json(expected, processes, usd_per_hour))
        return
    with progress("images") as bar, said_again():

        def show(done: int, before: int) -> None:
            bar(done / max(expected.rows, 1), done, before, "")

        made = encode_data_set(data, encoding, make_engine(engine, processes, ray_address, on_gpus=True), show)
    print_data_set(made, output)


@app.command("inspect")
def inspect_data_command(
    target: options.TargetArgument,
    version: Annotated[
        int | None, typer.Option(min=1, help="Inspect this earlier version (default: the newest).", show_default=False)
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            help="Write a sheet of images with their captions to this .png, .jpg, .jpeg or .webp file.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Choose the images of the sheet with this seed.")] = 0,
    output: OutputOption = Output.text,
) -> None:
    """Show a data set's rows, sizes, captions and columns, and what was skipped when it was converted."""
    with needing("data"):
        from gangline.data.dataset import open_data_set
        from gangline.data.look import sheet, summarise

    data = open_data_set(data_place(target), version=version)
    if pictures is not None:
        check_place(pictures, "--pictures")
        if pictures.suffix.lower() not in SHEET_SUFFIXES:
            raise BadInput(
                f"{pictures} does not name a picture file",
                hint=f"end its name in {listed(SHEET_SUFFIXES, 'or')}, e.g. look.png",
            )
        sheet(data, seed).save(pictures)
        say(f"the sheet is in {pictures}")
    seen = summarise(data)
    if output is Output.json:
        known = data_json(data)
        print_json(asdict(seen) | {name: known[name] for name in ("left_out", "dropped", "doubles")})
        return
    print_data_set(data, output)
    rows = table("column", "type", "what")
    for column in seen.columns:
        rows.add_row(column.name, column.type, column.what)
    out.print(rows)
    out.print(facts(("shorter side", seen.short_side), ("aspect", seen.aspect), ("captions", seen.captions)))


@app.command("ls")
def list_data_command(
    place: Annotated[str, typer.Argument(help="List the data sets in this folder, or below s3://BUCKET/PREFIX.")] = ".",
    output: OutputOption = Output.text,
) -> None:
    """List the data sets in a folder or below a prefix."""
    with needing("data"):
        from gangline.data.dataset import data_sets

    here = data_place(place)
    if not here.is_remote and not Path(here.uri).is_dir():
        raise BadInput(f"the folder {place} does not exist", hint="pass the path of a folder, or s3://BUCKET/PREFIX")
    found = data_sets(here)
    if output is Output.json:
        print_json([data_json(data) for data in found])
        return
    if not found:
        say(f"there are no data sets in {place}")
        return
    rows = table("data set", ">rows", ">GB of images", "version", "made from", "added")
    for data in found:
        size = f"{data.rows * data.info.image_bytes / 1e9:.2f}"
        rows.add_row(
            data.place.name, f"{data.rows}", size, f"{data.version}", data.info.source, ", ".join(data.computed())
        )
    out.print(rows)


def with_latents(
    found: "Source", entries: "list[Entry]", base: str, resolutions: list[int], scaled_by: float | None
) -> "Source":
    from gangline.data.sources.tables import TableSource

    if not isinstance(found, TableSource):
        raise BadInput(
            f"--latents-of is set, but {found.place.uri} has no columns of latents", hint="leave --latents-of out"
        )
    with needing("train"):
        from gangline.train.encoding.drawn import drawn_elsewhere
    return drawn_elsewhere(found, entries, local_model(base), resolutions, scaled_by)


def make_engine(name: options.EngineName, processes: int, address: str, *, on_gpus: bool = False) -> "Engine":
    from gangline.data.making.engine import Processes, Ray

    if address and name != "ray":
        raise BadInput("--ray-address is set, but --engine is not ray", hint="pass --engine ray too")
    return Ray(address, processes=processes, on_gpus=on_gpus) if name == "ray" else Processes(processes)


def local_model(name: str) -> Path:
    """Return a folder or file of this machine, or download the model of a hub id as the hub's own tools do."""
    path = Path(name).expanduser()
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repo, _, revision = name.partition("@")
    wanted = [
        "*.json",
        "*.txt",
        "vae/*.safetensors",
        "text_encoder*/*.safetensors",
        "diffusion_pytorch_model.safetensors",
    ]
    try:
        return Path(snapshot_download(repo, revision=revision or None, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise BadInput(
            f"{name} is neither a folder nor available on the hub: {str(error).splitlines()[0]}",
            hint="give a folder, a file or a hub id",
        ) from None
