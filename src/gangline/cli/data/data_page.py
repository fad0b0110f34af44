"""What `gangline data` prints: of a conversion, of an encoding, of a data set; as text and as JSON."""

from typing import TYPE_CHECKING, Any

from gangline.cli.output import Output, duration, facts, out, print_json, say, usd
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.data.dataset import DataSet
    from gangline.data.making.conversion import Conversion, ConvertedPiece
    from gangline.train.encoding.encode import EncodingForecast

USD_PER_GB_MONTH = 0.023
"""Amazon S3 Standard, us-east-1, first 50 TB, list price of 2026."""


def tell_conversion(conversion: "Conversion", source: str, pieces: int, files: int) -> None:
    from gangline.data.sources import CALLED

    kind = CALLED[conversion.source.kind]
    say(
        f"{source} is {kind}: {counted(files, 'file')}, {counted(pieces, 'piece')} of about {counted(conversion.rows, 'sample')}"
    )
    for note in conversion.source.notes:
        say(note)


def print_made(data: "DataSet", done: "list[ConvertedPiece]", output: Output) -> None:
    if output is Output.json:
        print_json(data_json(data) | {"examples": {why: names for one in done for why, names in one.examples.items()}})
        return
    examples = {why: names[0] for one in reversed(done) for why, names in one.examples.items()}
    for why, count in data.info.left_out.items():
        such = f", such as {examples[why]}" if why in examples else ""
        say(f"skipped: {count} × {why}{such}")
    for what, count in data.info.dropped.items():
        say(f"not kept: {count} × {what}")
    if data.info.unique:
        say(f"skipped: {data.info.rows - data.rows} × equal {data.info.unique}")
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
        "dropped": data.info.dropped,
        "doubles": data.info.rows - data.rows,
    }


def tell_forecast(expected: "EncodingForecast", processes: int, usd_per_hour: float) -> None:
    forecast = forecast_json(expected, processes, usd_per_hour)
    size = f"{expected.bytes_added / 1e9:.3f} GB for {counted(expected.rows, 'row')}"
    columns = ", ".join(f"{name} {size} bytes" for name, size in expected.columns.items())
    say(f"the encoding adds {size} ({columns} a row), which cost {usd(forecast['usd_per_month'])} a month in a bucket")
    price = f", {usd(forecast['usd'])}" if usd_per_hour else ""
    workers = "1 process" if processes == 1 else f"each of {processes} processes"
    say(
        f"the encoding takes about {duration(forecast['seconds'])}{price}: "
        f"{expected.images_per_second:.1f} images a second in {workers}"
    )


def forecast_json(expected: "EncodingForecast", processes: int, usd_per_hour: float) -> dict[str, Any]:
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
