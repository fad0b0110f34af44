"""Small data as people have it: the same ten or so samples as a folder, as tars, as tables, or on the web."""

import bz2
import csv
import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.data.dataset import DataSet
from gangline.data.making.conversion import Conversion, ConvertedPiece
from gangline.data.making.convert import convert
from gangline.data.making.engine import Engine, Processes
from gangline.data.making.fetch import Fetching
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source

QUICK = Fetching(connections=4, wait_s=0.01)


@dataclass(frozen=True)
class Sample:
    name: str
    image: bytes
    caption: str
    score: float


def picture(number: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """No two numbers look alike, also to a perceptual hash."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.NEAREST)


def encoded(image: Image.Image, form: str = "JPEG", **settings: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **settings)
    return file.getvalue()


def samples(count: int, first: int = 0) -> list[Sample]:
    """Of growing width, each with its own caption and score."""
    return [
        Sample(f"{number:05d}", encoded(picture(number, (40 + number % 7, 30))), f"number {number}", number / 10)
        for number in range(first, first + count)
    ]


def as_folder(root: Path, given: list[Sample]) -> Path:
    for sample in given:
        (root / "some").mkdir(parents=True, exist_ok=True)
        (root / "some" / f"{sample.name}.jpg").write_bytes(sample.image)
        (root / "some" / f"{sample.name}.txt").write_text(sample.caption)
    return root


def as_imagefolder(root: Path, given: list[Sample], form: str = "jsonl") -> Path:
    """Hugging Face's: a file of metadata beside the images, with columns of its own."""
    (root / "train").mkdir(parents=True)
    lines = [{"file_name": f"{one.name}.jpg", "text": one.caption, "score": one.score} for one in given]
    for sample in given:
        (root / "train" / f"{sample.name}.jpg").write_bytes(sample.image)
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(lines), root / "train" / "metadata.parquet")
        return root
    with (root / "train" / f"metadata.{form}").open("w", newline="") as file:
        if form == "jsonl":
            file.writelines(json.dumps(line) + "\n" for line in lines)
        else:
            writer = csv.DictWriter(file, ["file_name", "text", "score"])
            writer.writeheader()
            writer.writerows(lines)
    return root


def as_tars(root: Path, given: list[Sample], each: int = 4, details: list[dict[str, Any]] | None = None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    said = details or [{"caption": one.caption, "score": one.score} for one in given]
    for first in range(0, len(given), each):
        with tarfile.open(root / f"{first:06d}.tar", "w") as tar:
            for one, own in zip(given[first : first + each], said[first : first + each], strict=True):
                members = ("jpg", one.image), ("json", json.dumps(own).encode()), ("txt", one.caption.encode())
                for ending, content in members:
                    info = tarfile.TarInfo(f"{one.name}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return root


def as_img2dataset(root: Path, given: list[Sample], each: int = 4) -> Path:
    """In folders of its own each shard, with a table beside the folder."""
    for first in range(0, len(given), each):
        folder = root / f"{first // each:05d}"
        folder.mkdir(parents=True)
        for one in given[first : first + each]:
            details = {"url": "http://gone.example/", "caption": one.caption, "score": one.score, "exif": "{}"}
            for ending, content in (
                ("jpg", one.image),
                ("txt", one.caption.encode()),
                ("json", json.dumps(details).encode()),
            ):
                (folder / f"{one.name}.{ending}").write_bytes(content)
        table = {"url": ["http://gone.example/"], "caption": ["gone"], "status": ["success"]}
        pq.write_table(pa.table(table), root / f"{folder.name}.parquet")
    return root


def as_parquet(root: Path, given: list[Sample], *, struct: bool = False) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    images: list[Any] = [{"bytes": one.image, "path": None} if struct else one.image for one in given]
    table = pa.table(
        {"image": images, "caption": [one.caption for one in given], "score": [one.score for one in given]}
    )
    half = len(given) // 2
    pq.write_table(table.slice(0, half), root / "a.parquet", row_group_size=3)
    pq.write_table(table.slice(half), root / "b.parquet", row_group_size=3)
    return root


def as_arrow(root: Path, given: list[Sample]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": one.image, "path": None} for one in given]
    table = pa.table({"image": images, "text": [one.caption for one in given], "score": [one.score for one in given]})
    with pa.ipc.new_stream(root / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return root


def as_laion(root: Path, urls: list[str], given: list[Sample]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    columns = {
        "URL": urls,
        "TEXT": [one.caption for one in given],
        "WIDTH": [40] * len(given),
        "HEIGHT": [30] * len(given),
        "punsafe": [0.001] * len(given),
        "pwatermark": [one.score / 100 for one in given],
        "AESTHETIC_SCORE": [one.score for one in given],
        "hash": list(range(len(given))),
    }
    pq.write_table(pa.table(columns), root / "part-00000.parquet")
    return root


@dataclass
class Web:
    """A server of images. What `answers` has for a path is given once after the other, the last one again and again."""

    answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hanging: Event = field(default_factory=Event)
    url: str = ""

    def has(self, path: str, *bodies: bytes, status: int = 200, **headers: str) -> str:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(path, []).extend((status, told, body) for body in bodies or (b"",))
        return f"{self.url}{path}"


@contextmanager
def web() -> Iterator[Web]:
    shown = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.asked.append(self.path)
            answers = shown.answers.get(self.path, [(404, {}, b"")])
            status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
            if "Hang" in headers:
                shown.hanging.wait()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shown.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield shown
    finally:
        shown.hanging.set()
        server.shutdown()
        thread.join()
        server.server_close()


def place_in(bucket: S3Bucket, prefix: str, endpoint: str = "") -> DataPlace:
    return DataPlace(
        f"s3://{bucket.name}/{prefix}",
        {
            "aws_endpoint": endpoint or bucket.endpoint,
            "aws_access_key_id": bucket.credentials.access_key,
            "aws_secret_access_key": bucket.credentials.secret_key,
            "aws_region": bucket.region,
            "allow_http": "true",
        },
    )


def converted(
    source: Path | DataPlace,
    target: Path | DataPlace,
    *,
    engine: Engine | None = None,
    hints: Hints | None = None,
    **settings: Any,
) -> tuple[DataSet, list[ConvertedPiece]]:
    """As the command does it, in this process."""
    found, entries = find_source(as_place(source), hints or Hints())
    conversion = Conversion(source=found, target=as_place(target), **{"rows": 4, **settings})
    return convert(conversion, entries, engine or Processes(1), QUICK)


def as_place(path: Path | DataPlace) -> DataPlace:
    return path if isinstance(path, DataPlace) else DataPlace(str(path))


def rows_of(data: DataSet) -> dict[str, dict[str, Any]]:
    """By the first caption, which no two rows share."""
    rows = data.table.to_table().to_pylist()
    by_caption = {row["captions"][0]: row for row in rows}
    assert len(by_caption) == len(rows), "a sample came twice"
    return by_caption


def as_lines(root: Path, given: list[Sample], form: str) -> Path:
    """A table of paths, as people write one: csv, tsv, jsonl, or json with an array."""
    (root / "photos").mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for one in given:
        (root / "photos" / f"{one.name}.jpg").write_bytes(one.image)
        lines.append({"path": f"photos/{one.name}.jpg", "caption": one.caption, "score": one.score})
    return write_lines(root / f"lines.{form}", lines)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        match path.suffix:
            case ".json":
                json.dump(lines, file, indent=1)
            case ".jsonl":
                file.writelines(json.dumps(line) + "\n" for line in lines)
            case _:
                writer = csv.DictWriter(file, list(lines[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writeheader()
                writer.writerows(lines)
    return path


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zstd": lambda content: pa.compress(content, "zstd", asbytes=True),
}


def as_mds(root: Path, given: list[Sample], each: int = 4, compression: str | None = None) -> Path:
    columns = {"image": "bytes", "caption": "str", "score": "float64"}
    rows = [
        {"image": one.image, "caption": one.caption.encode(), "score": struct.pack("<d", one.score)} for one in given
    ]
    return write_mds(root, columns, [rows[first : first + each] for first in range(0, len(rows), each)], compression)


def write_mds(
    root: Path,
    columns: dict[str, str],
    shards: list[list[dict[str, bytes]]],
    compression: str | None = None,
    size_limit: int = 1 << 26,
) -> Path:
    """MosaicML's format, byte for byte as its own writer has it, of values that are encoded already."""
    root.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    config = {
        "version": 2,
        "format": "mds",
        "compression": compression,
        "hashes": [],
        "size_limit": size_limit,
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": [{"float64": 8, "int64": 8, "int32": 4}.get(columns[name]) for name in names],
    }
    header = json.dumps(config, sort_keys=True).encode()
    listed = []
    for number, rows in enumerate(shards):
        samples = [_in_mds(row, names, config["column_sizes"]) for row in rows]
        begin = 4 * (len(samples) + 2) + len(header)
        offsets = list(accumulate((len(sample) for sample in samples), initial=begin))
        content = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + header + b"".join(samples)
        name = f"shard.{number:05}.mds"
        packed = None
        (root / (f"{name}.{compression}" if compression else name)).write_bytes(
            PACK[compression](content) if compression else content
        )
        if compression:
            packed = {"basename": f"{name}.{compression}", "bytes": 0, "hashes": {}}
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        listed.append(config | {"samples": len(samples), "raw_data": raw, "zip_data": packed})
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": listed}, sort_keys=True))
    return root


def _in_mds(row: dict[str, bytes], names: list[str], sizes: list[int | None]) -> bytes:
    loose = [len(row[name]) for name, size in zip(names, sizes, strict=True) if size is None]
    return struct.pack(f"<{len(loose)}I", *loose) + b"".join(row[name] for name in names)
