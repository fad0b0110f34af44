"""`gangline data`: data sets to train from nothing with."""

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
from gangline.posix import cores

if TYPE_CHECKING:
    from gangline.data.making.engine import Engine
    from gangline.data.place import Entry
    from gangline.data.sources import Source

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
    """Make a data set of images that somebody has. Interrupted and said again, it goes on."""
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
        raise BadInput("columns of latents are spoken of, but not whose they are", hint="add --latents-of MODEL")
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
            bar(share, now.seen, now.seen_before, f"{now.rows} kept, {sum(now.left_out.values())} left out")

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
            help="The model whose VAE and text encoders are used: a folder or file, or a hub id.", show_default=False
        ),
    ],
    resolution: Annotated[
        list[int],
        typer.Option(
            min=8, max=RESOLUTION_MAX, help="Pixels of a square; several give a column each.", show_default=False
        ),
    ],
    vae: Annotated[str, typer.Option(help="Another VAE in the place of the base's own.")] = "",
    crop: Annotated[
        Literal["center", "random"], typer.Option(help="Which square of an image that is none.")
    ] = "center",
    texts: Annotated[
        bool,
        typer.Option(
            "--texts",
            help="Also text embeddings of each first caption: large, and captions cannot be dropped to words then.",
        ),
    ] = False,
    precision: Annotated[
        options.LatentsPrecision, typer.Option(help="What the models compute in; stored is fp16.")
    ] = "fp32",
    batch_size: Annotated[int, typer.Option(min=1)] = 8,
    processes: Annotated[int, typer.Option(min=1, help="On this box; each takes a GPU of its own.")] = 1,
    usd_per_hour: Annotated[
        float, typer.Option(min=0, help="What a process's machine costs, to be told the price.")
    ] = 0.0,
    engine: options.EngineOption = "processes",
    ray_address: options.AddressOption = "",
    plan: options.PlanOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Add image latents, so that training need not compute them in every epoch. Interrupted and said again, it goes on."""
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
    version: Annotated[int | None, typer.Option(min=1, help="An earlier version.", show_default=False)] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Write a sheet of pictures with their captions here (.png).", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which pictures are drawn.")] = 0,
    output: OutputOption = Output.text,
) -> None:
    """What a data set holds: rows, sizes, captions, columns, and what was left out when it was made."""
    with needing("data"):
        from gangline.data.dataset import open_data_set
        from gangline.data.look import sheet, summarise

    data = open_data_set(data_place(target), version=version)
    if pictures is not None:
        check_place(pictures, "--pictures")
        if pictures.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise BadInput(f"{pictures} is no name of a picture", hint="such as look.png")
        sheet(data, seed).save(pictures)
        say(f"wrote {pictures}")
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
    place: Annotated[str, typer.Argument(help="A folder, or s3://BUCKET/PREFIX.")] = ".",
    output: OutputOption = Output.text,
) -> None:
    """The data sets in a folder or under a prefix."""
    with needing("data"):
        from gangline.data.dataset import data_sets

    here = data_place(place)
    if not here.is_remote and not Path(here.uri).is_dir():
        raise BadInput(f"there is no folder {place}", hint="give the path of a folder, or s3://BUCKET/PREFIX")
    found = data_sets(here)
    if output is Output.json:
        print_json([data_json(data) for data in found])
        return
    if not found:
        say(f"there is no data set in {place}")
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
        raise BadInput(f"--latents-of is given, but {found.place.uri} has no columns of latents", hint="leave it out")
    with needing("train"):
        from gangline.train.encoding.drawn import drawn_elsewhere
    return drawn_elsewhere(found, entries, local_model(base), resolutions, scaled_by)


def make_engine(name: options.EngineName, processes: int, address: str, *, on_gpus: bool = False) -> "Engine":
    from gangline.data.making.engine import Processes, Ray

    if address and name != "ray":
        raise BadInput("--ray-address is given, but not --engine ray", hint="give both")
    return Ray(address, processes=processes, on_gpus=on_gpus) if name == "ray" else Processes(processes)


def local_model(name: str) -> Path:
    """A folder or file of this machine, or what a hub id stands for, copied here as the hub's own tools do."""
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
            f"{name} is neither a folder here nor to be had from the hub: {str(error).splitlines()[0]}",
            hint="give a folder or a file",
        ) from None
