"""`gangline data`: data sets to train from nothing with."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gangline import compose
from gangline.cli.output import Output, OutputOption, check_place, duration, err, facts, out, print_json, say, table
from gangline.core.errors import BadInput
from gangline.core.spec_fields import RESOLUTION_MAX
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.data.convert import Conversion, Done
    from gangline.data.dataset import DataSet
    from gangline.data.engine import Engine
    from gangline.train.encode import Forecast

EXIT_INTERRUPTED = 130
USD_PER_GB_MONTH = 0.023
"""Amazon S3 Standard, us-east-1, first 50 TB, list price of 2026."""

app = typer.Typer(help="Data sets to train from nothing with: made, looked at, listed.", no_args_is_help=True)


EngineName = Literal["processes", "ray"]
Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

TargetArgument = Annotated[
    str, typer.Argument(help="A data set: a folder, or s3://BUCKET/PREFIX, such as photos.lance.", show_default=False)
]
EngineOption = Annotated[EngineName, typer.Option(help="Who does it: processes of this box, or a Ray cluster.")]
AddressOption = Annotated[
    str,
    typer.Option("--ray-address", help="A running cluster's address; without it one on this box.", show_default=False),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Show what would be done, and stop there.")]


@app.command("convert")
def convert_data(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images, one with webdataset tars, Parquet or Arrow files, or one such file; here or in s3://.",
            show_default=False,
        ),
    ],
    target: TargetArgument,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="What is wanted, as SQL: 'width >= 512 and aspect <= 2 and pwatermark < 0.5'.", show_default=False
        ),
    ] = None,
    unique: Annotated[
        str, typer.Option(help="Of rows that are equal in this column keep the first: sha256, dhash, or one of yours.")
    ] = "",
    short_side: Annotated[
        int | None, typer.Option(min=8, help="Make images smaller whose shorter side is longer than that.")
    ] = None,
    format: Annotated[
        Literal["keep", "jpeg", "webp", "png"],
        typer.Option(help="How images are stored; keep leaves bytes as they are where it can."),
    ] = "keep",
    quality: Annotated[int, typer.Option(min=1, max=100, help="Of JPEG and WebP.")] = 95,
    caption_column: Annotated[
        list[str] | None,
        typer.Option(help="Where captions are, where that is not found by itself.", show_default=False),
    ] = None,
    image_column: Annotated[str, typer.Option(help="The column of images of a table.")] = "",
    url_column: Annotated[str, typer.Option(help="The column of images' addresses.")] = "",
    kind: Annotated[
        Literal["folder", "tars", "tables"] | None,
        typer.Option("--from", help="What the source is, where that is not found by itself."),
    ] = None,
    keep_uncaptioned: Annotated[
        bool, typer.Option("--keep-uncaptioned", help="Images without a caption are left out, unless this is given.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, help="Samples of a piece: what an interruption costs at most.")] = 8192,
    processes: Annotated[int, typer.Option(min=1, help="On this box.")] = os.cpu_count() or 1,
    connections: Annotated[int, typer.Option(min=1, max=1024, help="To the web at a time, of each process.")] = 32,
    engine: EngineOption = "processes",
    ray_address: AddressOption = "",
    plan: PlanOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Make a data set of images that somebody has. Interrupted and said again, it goes on."""
    with compose.needing("data"):
        from gangline.data.convert import Conversion, check, convert
        from gangline.data.fetch import Fetching
        from gangline.data.row import Storing
        from gangline.data.sources import Hints, find_source
        from gangline.data.where import Where

    hints = Hints(
        kind=kind or "",
        captions=tuple(caption_column or ()),
        image=image_column,
        url=url_column,
        uncaptioned=keep_uncaptioned,
    )
    found, entries = find_source(compose.data_place(source), hints)
    conversion = Conversion(
        source=found,
        target=compose.data_place(target),
        where=Where(tuple(where or ())),
        unique=unique,
        storing=Storing(format=format, quality=quality, short_side=short_side),
        keep_uncaptioned=keep_uncaptioned,
        rows=rows,
    )
    check(conversion)
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
            conversion, entries, make_engine(engine, processes, ray_address), Fetching(connections=connections), show
        )
    print_made(made, done, output)


@app.command("encode")
def encode_data(
    target: TargetArgument,
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
    precision: Annotated[Precision, typer.Option(help="What the models compute in; stored is fp16.")] = "fp32",
    batch_size: Annotated[int, typer.Option(min=1)] = 8,
    processes: Annotated[int, typer.Option(min=1, help="On this box; each takes a GPU of its own.")] = 1,
    usd_per_hour: Annotated[
        float, typer.Option(min=0, help="What a process's machine costs, to be told the price.")
    ] = 0.0,
    engine: EngineOption = "processes",
    ray_address: AddressOption = "",
    plan: PlanOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Add image latents, so that training need not compute them in every epoch. Interrupted and said again, it goes on."""
    with compose.needing("data"):
        from gangline.data.dataset import open_data_set
    with compose.needing("train"):
        from gangline.train.encode import Encoding, encode, forecast

    data = open_data_set(compose.data_place(target))
    encoding = Encoding(
        target=data.place,
        version=data.version,
        base=local_model(base),
        vae=local_model(vae) if vae else None,
        resolutions=tuple(dict.fromkeys(resolution)),
        crop=crop,
        texts=texts,
        dtype=DTYPES[precision],
        batch_size=batch_size,
    )
    expected = forecast(data, encoding)
    tell_forecast(expected, processes, usd_per_hour)
    if plan:
        if output is Output.json:
            print_json(forecast_json(expected, processes, usd_per_hour))
        return
    with progress("images") as bar, said_again():

        def show(done: int, before: int) -> None:
            bar(done / max(expected.rows, 1), done, before, "")

        made = encode(data, encoding, make_engine(engine, processes, ray_address, on_gpus=True), show)
    print_data_set(made, output)


@app.command("inspect")
def inspect_data(
    target: TargetArgument,
    version: Annotated[int | None, typer.Option(min=1, help="An earlier version.", show_default=False)] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Write a sheet of pictures with their captions here (.png).", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which pictures are drawn.")] = 0,
    output: OutputOption = Output.text,
) -> None:
    """What a data set holds: rows, sizes, captions, columns, and what was left out when it was made."""
    with compose.needing("data"):
        from gangline.data.dataset import open_data_set
        from gangline.data.look import look, sheet

    data = open_data_set(compose.data_place(target), version=version)
    if pictures is not None:
        check_place(pictures, "--pictures")
        if pictures.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise BadInput(f"{pictures} is no name of a picture", hint="such as look.png")
        sheet(data, seed).save(pictures)
        say(f"wrote {pictures}")
    seen = look(data)
    if output is Output.json:
        print_json(asdict(seen) | {"left_out": data.info.left_out, "doubles": data.info.rows - data.rows})
        return
    print_data_set(data, output)
    rows = table("column", "type", "what")
    for column in seen.columns:
        rows.add_row(column.name, column.type, column.what)
    out.print(rows)
    out.print(facts(("shorter side", seen.short_side), ("aspect", seen.aspect), ("captions", seen.captions)))


@app.command("ls")
def list_data(
    place: Annotated[str, typer.Argument(help="A folder, or s3://BUCKET/PREFIX.")] = ".",
    output: OutputOption = Output.text,
) -> None:
    """The data sets in a folder or under a prefix."""
    with compose.needing("data"):
        from gangline.data.dataset import data_sets

    here = compose.data_place(place)
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


@contextmanager
def said_again() -> Iterator[None]:
    """Ctrl-C loses nothing, and waits for nobody: neither for a server on the web, nor for what is half done."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped: what is done stays done; say the same again to go on")
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)


@contextmanager
def progress(what: str) -> Iterator[Callable[[float, int, int, str], None]]:
    """A bar on a terminal: the share that is done, how many, how many of these an earlier try did, and a remark."""
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[count]} " + what),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[remark]}"),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        bar: TaskID = shown.add_task(what, total=1.0, count=0, rate="", left="", remark="")
        begun: list[float] = []

        def move(share: float, count: int, before: int, remark: str) -> None:
            begun.append(share)
            now, elapsed_s = share - begun[0], shown.tasks[0].elapsed or 0.0
            rate = f"{(count - before) / elapsed_s:.0f} a second" if now > 0 else ""
            left = f"{duration((1 - share) / now * elapsed_s)} left" if now > 0 else ""
            shown.update(bar, completed=share, count=count, rate=rate, left=left, remark=remark)

        yield move


def make_engine(name: EngineName, processes: int, address: str, *, on_gpus: bool = False) -> "Engine":
    from gangline.data.engine import Processes, Ray

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


def tell_conversion(conversion: "Conversion", source: str, pieces: int, files: int) -> None:
    kind = {"folder": "a folder of images", "tars": "webdataset tars", "tables": "a table"}[conversion.source.kind]
    say(
        f"{source} is {kind}: {counted(files, 'file')}, {counted(pieces, 'piece')} of about {counted(conversion.rows, 'sample')}"
    )
    for note in conversion.source.notes:
        say(note)


def print_made(data: "DataSet", done: "list[Done]", output: Output) -> None:
    if output is Output.json:
        print_json(data_json(data) | {"examples": {why: names for one in done for why, names in one.examples.items()}})
        return
    examples = {why: names[0] for one in reversed(done) for why, names in one.examples.items()}
    for why, count in data.info.left_out.items():
        such = f", such as {examples[why]}" if why in examples else ""
        say(f"left out: {count} × {why}{such}")
    if data.info.unique:
        say(f"left out: {data.info.rows - data.rows} × equal {data.info.unique}")
    print_data_set(data, output)


def print_data_set(data: "DataSet", output: Output) -> None:
    if output is Output.json:
        print_json(data_json(data))
        return
    added = ", ".join(data.computed()) or "–"
    size = f"{data.rows * data.info.image_bytes / 1e9:.3f} GB, {data.info.image_bytes} bytes each"
    out.print(
        facts(
            ("data set", data.place.uri),
            ("rows", f"{data.rows}"),
            ("images", size),
            ("version", f"{data.version}"),
            ("added", added),
        )
    )


def data_json(data: "DataSet") -> dict[str, Any]:
    return {
        "place": data.place.uri,
        "id": data.info.id,
        "version": data.version,
        "rows": data.rows,
        "image_bytes_mean": data.info.image_bytes,
        "columns": data.table.schema.names,
        "source": data.info.source,
        "where": list(data.info.where),
        "unique": data.info.unique,
        "left_out": data.info.left_out,
        "doubles": data.info.rows - data.rows,
    }


def tell_forecast(expected: "Forecast", processes: int, usd_per_hour: float) -> None:
    told = forecast_json(expected, processes, usd_per_hour)
    size = f"{expected.bytes_added / 1e9:.3f} GB for {counted(expected.rows, 'row')}"
    columns = ", ".join(f"{name} {size} bytes" for name, size in expected.columns.items())
    say(f"it adds {size} ({columns} a row), in a bucket ${told['usd_per_month']:.2f} a month")
    price = f", ${told['usd']:.2f}" if usd_per_hour else ""
    say(
        f"it takes about {duration(told['seconds'])}{price}: {expected.images_per_second:.1f} images a second for each of {processes}"
    )


def forecast_json(expected: "Forecast", processes: int, usd_per_hour: float) -> dict[str, Any]:
    seconds = expected.rows / expected.images_per_second / processes
    return {
        "rows": expected.rows,
        "bytes_added": expected.bytes_added,
        "bytes_per_row": expected.columns,
        "images_per_second_per_process": expected.images_per_second,
        "seconds": seconds,
        "usd": seconds / 3600 * usd_per_hour * processes,
        "usd_per_month": expected.bytes_added / 1e9 * USD_PER_GB_MONTH,
    }
