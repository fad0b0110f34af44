"""Data sets' reader beside its peers: `python benchmarks/loader.py [PART …] [--peers VENV/bin/python]`.

peers      a shuffled epoch of JPEGs, decoded, and of latents, from this machine's disk and from SeaweedFS on it, in turns with
           mosaicml-streaming, litdata and webdataset
decoder    the share of the rate that the decoder alone reaches with the same bytes in memory, from the disk and from SeaweedFS
requests   what an epoch of JPEGs asks of S3, counted by a proxy before the server, and what that costs
intake     what the trainer is given in a second, latents, noise and tokens, beside the published rate of a card
rows       ten million small rows: how long opening takes, the first batch, memory over an epoch, each row once
--peers    an interpreter that has the peers, with torch and pillow; without it only ours is measured

Each measurement is a process of its own with one loading process, and batches of 64. All read whole epochs in their own shuffled
order; the harness decodes what they deliver, with one decoder. All is counted from when the libraries are imported: who brings in
whole files before the first batch does so within the epoch, too. The peers' data sets are iterated as they are, without a DataLoader.

The decoder alone has its turns in our reader's process, half a second each: one decoder, by itself, varies by half within seconds where
a machine has other tenants, and from process to process by where its memory happens to lie. What is read ahead is so in either's turns.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `queue` is a module of Python's too
# isort: split

import argparse
import io
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import tarfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.machinery import ModuleSpec
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image, ImageDraw

BATCH = 64
PICTURES = 2000
SIDE = 256
TAR_ROWS = 1000
LATENTS = (2, 4, 32, 32)
PEERS = ("mosaicml-streaming", "litdata", "webdataset")
OURS = "gangline"
BYTES = "a bare S3 client"
TURN, SHARE_EPOCHS = 16, 3
"""Of the decoder beside ours: batches, about half a second of decoding, and how often all of them."""

GET_DOLLARS, LIST_DOLLARS = 0.0004 / 1000, 0.005 / 1000
"""AWS S3 pricing, us-east-1, S3 Standard: GET and HEAD; LIST."""


# ------------------------------------------------------------------------------------------------- what a process measures


@dataclass(frozen=True, kw_only=True)
class Task:
    """One contestant reading one kind of content from one place. `options` of S3 are empty for a folder of this machine."""

    who: str
    content: str
    place: str
    options: dict[str, str] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)
    cache: str = ""
    rows: int = 0
    epochs: int = 1
    decodes: bool = True


@dataclass(frozen=True, kw_only=True)
class Found:
    """`rate` is in samples a second; `cpu_ms` is of a sample, of all threads; `told` is what only this contestant can say."""

    rows: int
    first_s: float
    rate: float
    cpu_ms: float
    memory_mb: float
    told: dict[str, Any] = field(default_factory=dict)


Batches = Iterator[Any]
"""Of images lists of their bytes; of latents arrays."""


def measure(task: Task) -> Found:
    open_it, tell = CONTESTANTS[task.who](task)
    use = _decode_all if task.content == "images" and task.decodes else len
    started_s, started_cpu_s = time.perf_counter(), _cpu_s()
    batches = open_it()
    first = use(next(batches))
    first_s = time.perf_counter() - started_s
    rows = first + sum(use(batch) for batch in batches)
    took_s = time.perf_counter() - started_s
    return Found(
        rows=rows,
        first_s=first_s,
        rate=rows / took_s,
        cpu_ms=(_cpu_s() - started_cpu_s) / rows * 1e3,
        memory_mb=_memory_mb("VmHWM"),
        told=tell(),
    )


@dataclass(frozen=True, kw_only=True)
class Share:
    """Rates of samples decoded, in one process by turns: from memory, and from the data set."""

    decoder: float
    ours: float


def measure_share(task: Task, tars: Path) -> Share:
    contents = [sample["image"] for sample in samples(tars, "images")]
    random.Random(0).shuffle(contents)
    open_it, _ = CONTESTANTS[task.who](task)
    of_memory, read_s, decoder_s, rows = iter(contents * task.epochs), 0.0, 0.0, 0
    started_s = time.perf_counter()
    batches = open_it()
    while True:
        turn = sum(_decode_all(batch) for batch in islice(batches, TURN))
        ended_s = time.perf_counter()
        read_s += ended_s - started_s
        if not turn:
            return Share(decoder=rows / decoder_s, ours=rows / read_s)
        assert _decode_all(list(islice(of_memory, turn))) == turn, "as many from memory as from the data set"
        rows += turn
        started_s = time.perf_counter()
        decoder_s += started_s - ended_s


def decoded(content: bytes) -> Any:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def _decode_all(batch: list[bytes]) -> int:
    for content in batch:
        decoded(content)
    return len(batch)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _nothing() -> dict[str, Any]:
    return {}


Opening = tuple[Callable[[], Batches], Callable[[], dict[str, Any]]]


def the_bytes(task: Task) -> Opening:
    """Whole tars, eight at a time, of which nothing is made: what the server gives."""
    from concurrent.futures import ThreadPoolExecutor

    import obstore

    def open_it() -> Batches:
        store = _store(task.place, task.options)
        tars = sorted(entry["path"] for page in obstore.list(store) for entry in page)
        with ThreadPoolExecutor(8) as threads:
            for number, _ in enumerate(threads.map(lambda tar: obstore.get(store, tar).bytes(), tars)):
                yield range(number * TAR_ROWS, min(task.rows, (number + 1) * TAR_ROWS))

    return open_it, _nothing


def gangline(task: Task) -> Opening:
    from gangline.data.dataset import DataSet, open_data_set
    from gangline.data.place import DataPlace
    from gangline.data.reading.reader import DataReader, ReadOrder
    from gangline.data.reading.stream import Stream

    opened: list[DataSet] = []
    column = "image" if task.content == "images" else "latents_256"

    def open_it() -> Batches:
        data = open_data_set(DataPlace(task.place, task.options))
        opened.append(data)
        reader = DataReader(data, ReadOrder(columns=(column, "captions"), seed=7))
        with Stream([reader]) as stream:
            left = task.epochs * stream.rows
            for batch in stream.batches(first=0, size=BATCH):
                yield batch.columns[column][: min(left, BATCH)]
                left -= len(batch)
                if left <= 0:
                    return

    def tell() -> dict[str, Any]:
        stats = opened[0].table.io_stats_incremental()
        return {"requests": stats.read_iops, "bytes": stats.read_bytes}

    return open_it, tell


def mosaicml_streaming(task: Task) -> Opening:
    told = _stand_in_for_torchvision()
    import boto3.session  # noqa: F401 (with the libraries, not with the first batch)
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    if task.options:
        os.environ["S3_ENDPOINT_URL"] = task.options["aws_endpoint"]
        _credentials_for_boto(task)
    clean_stale_shared_memory()

    def open_it() -> Batches:
        where = {"remote": task.place, "local": task.cache} if task.options else {"local": task.place}
        data = StreamingDataset(**where, shuffle=True, batch_size=BATCH, shuffle_seed=7)
        for _ in range(task.epochs):
            yield from batched_samples(task, data)

    return open_it, lambda: told


def litdata(task: Task) -> Opening:
    import boto3.session  # noqa: F401
    import obstore.store  # noqa: F401
    from litdata import StreamingDataset
    from litdata.streaming import downloader

    told = {}
    if task.options:
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # pyright: ignore[reportGeneralTypeIssues]
        told = {"note": "litdata was made to speak plain HTTP to S3, which its client refuses of itself"}

    def open_it() -> Batches:
        where: dict[str, Any] = {"input_dir": task.place}
        if task.options:
            where |= {"cache_dir": task.cache, "storage_options": _options_of_boto(task)}
        data = StreamingDataset(**where, shuffle=True, seed=7)
        for _ in range(task.epochs):
            yield from batched_samples(task, data)

    return open_it, lambda: told


def webdataset(task: Task) -> Opening:
    import webdataset as wds

    def open_it() -> Batches:
        urls = task.urls or sorted(map(str, Path(task.place).glob("*.tar")))
        data = wds.WebDataset(urls, shardshuffle=len(urls), seed=7, empty_check=False).shuffle(1000)
        name = "jpg" if task.content == "images" else "npy"
        for _ in range(task.epochs):
            contents = (sample[name] for sample in data)
            yield from batched(contents) if name == "jpg" else map(np.stack, batched(map(_from_npy, contents)))

    return open_it, _nothing


CONTESTANTS: dict[str, Callable[[Task], Opening]] = {
    BYTES: the_bytes,
    OURS: gangline,
    "mosaicml-streaming": mosaicml_streaming,
    "litdata": litdata,
    "webdataset": webdataset,
}


def batched(values: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(values)
    while batch := list(islice(left, BATCH)):
        yield batch


def batched_samples(task: Task, data: Iterable[Any]) -> Batches:
    name = "image" if task.content == "images" else "latents"
    batches = batched(sample[name] for sample in data)
    return batches if name == "image" else map(np.stack, batches)


def _from_npy(content: bytes) -> Any:
    return np.load(io.BytesIO(content))


def _stand_in_for_torchvision() -> dict[str, Any]:
    """mosaicml-streaming imports it for classes that nothing here uses, and what is installed need not fit this torch."""
    try:
        import torchvision.datasets  # noqa: F401
    except (ImportError, RuntimeError):
        names = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")
        for name in names:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__spec__ = ModuleSpec(name, None)
        sys.modules["torchvision.datasets"].VisionDataset = object  # pyright: ignore[reportAttributeAccessIssue]
        sys.modules["torchvision.transforms.functional"].to_tensor = None  # pyright: ignore[reportAttributeAccessIssue]
        return {"note": "torchvision cannot be imported there: mosaicml-streaming got a stand-in for it"}
    return {}


def _credentials_for_boto(task: Task) -> None:
    os.environ["AWS_ACCESS_KEY_ID"] = task.options["aws_access_key_id"]
    os.environ["AWS_SECRET_ACCESS_KEY"] = task.options["aws_secret_access_key"]
    os.environ["AWS_DEFAULT_REGION"] = task.options["aws_region"]


def _options_of_boto(task: Task) -> dict[str, str]:
    return {
        "endpoint_url": task.options["aws_endpoint"],
        "aws_access_key_id": task.options["aws_access_key_id"],
        "aws_secret_access_key": task.options["aws_secret_access_key"],
        "region_name": task.options["aws_region"],
    }


# ------------------------------------------------------------------------------------------------------------------- data


def make_tars(folder: Path, rows: int) -> None:
    """Images and latents with captions, which all others are made from."""
    pictures = [picture(number) for number in range(min(rows, PICTURES))]
    print(f"{rows} JPEGs of {SIDE}², {statistics.mean(map(len, pictures)) / 1e3:.1f} KB each; latents of ", end="")
    print(f"{' × '.join(map(str, LATENTS))} float16, {np.prod(LATENTS) * 2 / 2**10:.0f} KB each", flush=True)
    numbers = np.random.default_rng(7)
    for content, ending in (("images", "jpg"), ("latents", "npy")):
        (folder / content).mkdir(parents=True)
        for first in range(0, rows, TAR_ROWS):
            with tarfile.open(folder / content / f"{first // TAR_ROWS:05}.tar", "w") as tar:
                for number in range(first, min(first + TAR_ROWS, rows)):
                    value = pictures[number % len(pictures)] if ending == "jpg" else _npy(latents(numbers))
                    _add(tar, f"{number:08}.{ending}", value)
                    _add(tar, f"{number:08}.txt", f"shapes on a gradient, number {number}".encode())


def picture(number: int) -> bytes:
    """Shapes on a gradient, smooth as photos are."""
    rng = random.Random(number)
    ends = [rng.choices(range(256), k=3) for _ in range(4)]
    small = Image.new("RGB", (2, 2))
    for at, colour in enumerate(ends):
        small.putpixel((at % 2, at // 2), tuple(colour))
    image = small.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(26):
        x, y, size = rng.randrange(SIDE), rng.randrange(SIDE), rng.randrange(8, 72)
        shape = rng.choice((draw.ellipse, draw.rectangle))
        shape((x, y, x + size, y + size), fill=tuple(rng.choices(range(256), k=3)))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=82)
    return file.getvalue()


def latents(rng: np.random.Generator) -> Any:
    return rng.standard_normal(LATENTS, dtype=np.float32).astype(np.float16)


def samples(folder: Path, content: str) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.tar")):
        yield from samples_of(path, content)


def samples_of(path: Path, content: str) -> Iterator[dict[str, Any]]:
    with tarfile.open(path) as tar:
        members = iter(tar)
        for member, caption in zip(members, members, strict=True):
            value, text = (tar.extractfile(one).read() for one in (member, caption))  # pyright: ignore
            own = {"image": value} if content == "images" else {"latents": _from_npy(value)}
            yield own | {"caption": text.decode()}


def _npy(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def make_gangline(tars: Path, to: Path) -> None:
    """Converted, and with the latents as a column that was added later, in files of its own."""
    import pyarrow as pa

    from gangline.data.making.conversion import Conversion
    from gangline.data.making.convert import convert
    from gangline.data.making.engine import Processes
    from gangline.data.making.fetch import Fetching
    from gangline.data.place import DataPlace
    from gangline.data.sources import find_source

    source, entries = find_source(DataPlace(str(tars / "images")))
    data, _ = convert(Conversion(source=source, target=DataPlace(str(to))), entries, Processes(1), Fetching())
    numbers = int(np.prod(LATENTS))
    schema = pa.schema([pa.field("latents_256", pa.list_(pa.float16(), numbers))])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in batched(sample["latents"] for sample in samples(tars / "latents", "latents")):
            flat = pa.array(np.concatenate(batch, axis=None))
            yield pa.RecordBatch.from_arrays([pa.FixedSizeListArray.from_arrays(flat, numbers)], schema=schema)

    data.table.add_columns(pa.RecordBatchReader.from_batches(schema, batches()))


def make_peer(who: str, tars: Path, to: Path) -> None:
    """Runs in the peers' interpreter."""
    for content in ("images", "latents"):
        if who == "litdata":
            from litdata import optimize

            optimize(
                fn=_of_images if content == "images" else _of_latents,
                inputs=sorted(map(str, (tars / content).glob("*.tar"))),
                output_dir=str(to / content),
                chunk_bytes="64MB",
                num_workers=1,
                verbose=False,
            )
        if who == "mosaicml-streaming":
            _stand_in_for_torchvision()
            from streaming import MDSWriter

            shape = ",".join(map(str, LATENTS))
            value = {"image": "bytes"} if content == "images" else {"latents": f"ndarray:float16:{shape}"}
            with MDSWriter(out=str(to / content), columns=value | {"caption": "str"}) as writer:
                for sample in samples(tars / content, content):
                    writer.write(sample)


def _of_images(tar: str) -> Iterator[dict[str, Any]]:
    yield from samples_of(Path(tar), "images")


def _of_latents(tar: str) -> Iterator[dict[str, Any]]:
    yield from samples_of(Path(tar), "latents")


# ------------------------------------------------------------------------------------------------------------------ peers


@dataclass(frozen=True)
class Bench:
    """Where everything lies; `peers` is their interpreter."""

    folder: Path
    peers: Path | None

    def contestants(self) -> tuple[str, ...]:
        return (OURS, *PEERS) if self.peers else (OURS,)

    def local(self, who: str, content: str) -> Task:
        return Task(who=who, content=content, place=str(self._path(who, content)))

    def remote(self, who: str, content: str, options: dict[str, str]) -> Task:
        place = f"s3://gangline/{self._path(who, content).relative_to(self.folder)}"
        task = Task(who=who, content=content, place=place, options=options)
        return replace(task, urls=_signed(place, options)) if who == "webdataset" else task

    def _path(self, who: str, content: str) -> Path:
        if who == OURS:
            return self.folder / "gangline.lance"
        return self.folder / (who if who in PEERS[:2] else "tars") / content

    def make(self, rows: int) -> None:
        make_tars(self.folder / "tars", rows)
        make_gangline(self.folder / "tars", self.folder / "gangline.lance")
        for who in PEERS[:2] if self.peers else ():
            self._call(who, "make", who, str(self.folder / "tars"), str(self.folder / who))

    def run(self, task: Task) -> Found:
        with TemporaryDirectory(dir=self.folder) as cache:
            said = self._call(task.who, "measure", json.dumps(asdict(replace(task, cache=cache))))
        return Found(**json.loads(said.splitlines()[-1]))

    def share(self, task: Task) -> Share:
        said = self._call(task.who, "share", json.dumps(asdict(task)), str(self.folder / "tars" / "images"))
        return Share(**json.loads(said.splitlines()[-1]))

    def taken(self, base: Path, resolution: int) -> Any:
        from benchmarks.intake import Taken

        said = self._call(OURS, "intake", str(base), str(self.folder / f"{resolution}.lance"), str(resolution))
        return Taken(**json.loads(said.splitlines()[-1]))

    def _call(self, who: str, *arguments: str) -> str:
        python = str(self.peers) if who in PEERS else sys.executable
        with TemporaryDirectory(dir=self.folder) as home:  # litdata keeps a cache there
            done = subprocess.run(
                [python, __file__, *arguments],
                env=os.environ | {"HOME": home, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise AssertionError(f"{who}: {' '.join(arguments)[:200]}\n{done.stderr[-3000:]}")
        return done.stdout


def peers(bench: Bench, given: argparse.Namespace) -> None:
    who, latent_epochs = bench.contestants(), max(1, 60_000 // given.rows)
    tasks: dict[tuple[str, str], list[Task]] = {
        ("images", "local"): [bench.local(one, "images") for one in who],
        ("latents", "local"): [replace(bench.local(one, "latents"), epochs=latent_epochs) for one in who],
    }
    with s3(bench) as options:
        tasks["images", "S3"] = [bench.remote(one, "images", options) for one in who]
        tasks["latents", "S3"] = [
            replace(bench.remote(BYTES, "latents", options), rows=given.rows),
            *(bench.remote(one, "latents", options) for one in who),
        ]
        for (content, where), of in tasks.items():
            found: dict[str, list[Found]] = {task.who: [] for task in of}
            for number in range(given.rounds):
                for task in reversed(of) if number % 2 else of:
                    found[task.who].append(bench.run(task))
            show(content, where, found)


def decoder(bench: Bench, given: argparse.Namespace) -> None:
    with s3(bench) as options:
        for task, wanted in ((bench.local(OURS, "images"), 0.95), (bench.remote(OURS, "images", options), 0.8)):
            long = replace(task, epochs=SHARE_EPOCHS)
            found = [bench.share(long) for _ in range(given.rounds)]
            alone, ours = (statistics.median(getattr(one, who) for one in found) for who in ("decoder", "ours"))
            print(
                f"\nimages, {'S3' if task.options else 'local'}: the decoder alone {alone:.0f} rows/s, ours {ours:.0f}"
            )
            _compare("of the decoder's rate", [one.ours / one.decoder for one in found], wanted)
            sys.stdout.flush()


def show(content: str, where: str, found: dict[str, list[Found]]) -> None:
    print(f"\n{content}, {where}: median of {len(found[OURS])} rounds")
    print(f"{'':20} {'rows/s':>9} {'least':>9} {'most':>9} {'first batch':>12} {'CPU ms/row':>11} {'memory':>9}")
    for name, rounds in found.items():
        rates = [one.rate for one in rounds]
        first_s, cpu_ms = (statistics.median(getattr(one, what) for one in rounds) for what in ("first_s", "cpu_ms"))
        print(
            f"{name:20} {_rate(rounds):9.0f} {min(rates):9.0f} {max(rates):9.0f} {first_s:10.2f} s {cpu_ms:11.3f} "
            f"{max(one.memory_mb for one in rounds):6.0f} MB"
        )
    ours = found.pop(OURS)
    first_s = statistics.median(one.first_s for one in ours)
    _verdict("first batch", first_s, "s", 1.0, first_s < 1)
    for name, rounds in found.items():
        wanted = {"images": 2, "latents": 5}[content] if name == "mosaicml-streaming" else None
        _compare(f"times the rate of {name}", ratios(ours, rounds), wanted)
    for note in {one.told["note"] for rounds in found.values() for one in rounds if "note" in one.told}:
        print(f"  {note}")
    sys.stdout.flush()


def _verdict(what: str, value: float, unit: str, wanted: float, is_reached: bool) -> None:
    print(f"  {value:8.2f} {unit} {what} (wanted: {wanted:g} {unit}){'' if is_reached else ': MISSED'}")


def ratios(ours: list[Found], others: list[Found]) -> list[float]:
    """Of each round: what is measured close together had the same machine, if any."""
    return [one.rate / other.rate for one, other in zip(ours, others, strict=True)]


def _compare(what: str, rounds: list[float], wanted: float | None) -> None:
    """Where rounds contradict each other, nothing is decided."""
    said = ""
    if wanted is not None and min(rounds) < wanted:
        said = ": MISSED" if max(rounds) < wanted else ": in some rounds only"
    asked = f", wanted {wanted:g}" if wanted is not None else ""
    print(f"  {statistics.median(rounds):8.2f} {what} ({min(rounds):.2f} to {max(rounds):.2f}{asked}){said}")


def _rate(rounds: list[Found]) -> float:
    return statistics.median(one.rate for one in rounds)


# --------------------------------------------------------------------------------------------------------------------- S3


@contextmanager
def s3(bench: Bench, *names: str) -> Iterator[dict[str, str]]:
    """The options for a server that has these of the bench's data sets; all where none is named."""
    from tests.servers import s3_server

    with TemporaryDirectory(dir=bench.folder) as folder, s3_server(Path(folder)) as bucket:
        options = {
            "aws_access_key_id": bucket.credentials.access_key,
            "aws_secret_access_key": bucket.credentials.secret_key,
            "aws_region": bucket.region,
            "aws_endpoint": bucket.endpoint,
            "allow_http": "true",
        }
        for name in names or ("gangline.lance", "tars", *PEERS):
            upload(bench.folder / name, f"s3://gangline/{name}", options)
        yield options


def upload(folder: Path, uri: str, options: dict[str, str]) -> None:
    import obstore

    for path in sorted(folder.rglob("*")):
        if path.is_file():
            obstore.put(_store(uri, options), str(path.relative_to(folder)), path)


def _signed(place: str, options: dict[str, str]) -> list[str]:
    """webdataset reads what has a URL, through curl."""
    from datetime import timedelta

    import obstore

    store = _store(place, options)
    paths = sorted(entry["path"] for page in obstore.list(store) for entry in page)
    return obstore.sign(store, "GET", paths, timedelta(hours=6))


def _store(place: str, options: dict[str, str]) -> Any:
    from obstore.store import S3Store

    config: Any = {name: value for name, value in options.items() if name != "allow_http"}
    return S3Store.from_url(place, config=config, client_options={"allow_http": True})


def requests(bench: Bench, _: argparse.Namespace) -> None:
    """The peers keep what they have read on their disk, so only the first epoch costs them anything, where the disk is large enough;
    so does ours with a cache, which it is measured without."""
    with s3(bench) as options:
        print(f"\n{'from S3':34} {'GET':>7} {'HEAD':>6} {'LIST':>6} {'MB':>8} {'$':>10} {'$/10⁹ rows':>11}")
        for content in ("images", "latents"):
            for who in bench.contestants():
                task = replace(bench.remote(who, content, options), decodes=False)
                first, two = (counted(bench, replace(task, epochs=epochs)) for epochs in (1, 2))
                first.show(f"{content}, {who}")
                two.less(first).show("  each epoch after that")
    print(
        "priced as AWS S3 pricing, us-east-1, S3 Standard says; the first epoch of ours has what is read ahead of the second"
    )


@dataclass(frozen=True)
class Asked:
    """What a server was asked; `own` is the reader's own count of it."""

    rows: int
    requests: Counter[str]
    bytes: int
    own: int = 0

    def less(self, other: "Asked") -> "Asked":
        asked = Counter({what: count - other.requests[what] for what, count in self.requests.items()})
        return Asked(self.rows - other.rows, asked, self.bytes - other.bytes, self.own - other.own)

    def show(self, name: str) -> None:
        get, head, listed = (self.requests[what] for what in ("GET", "HEAD", "LIST"))
        dollars = (get + head) * GET_DOLLARS + listed * LIST_DOLLARS
        own = f"   by its own count: {self.own}" if self.own else ""
        print(
            f"{name:34} {get:7} {head:6} {listed:6} {self.bytes / 1e6:8.1f} {dollars:10.6f} {dollars / self.rows * 1e9:11.2f}{own}",
            flush=True,
        )


def counted(bench: Bench, task: Task) -> Asked:
    """Through a proxy that sees each request."""
    from tests.proxy import Proxy

    address = urlsplit(task.options["aws_endpoint"])
    with Proxy((address.hostname or "", address.port or 0)) as line:
        through = replace(task, options=task.options | {"aws_endpoint": line.url})
        found = bench.run(replace(through, urls=_signed(task.place, through.options) if task.urls else []))
        asked = Counter("LIST" if "list-type" in heard.target else heard.method for heard in line.heard)
        if task.urls:
            asked["LIST"] -= 1  # that of `_signed`
        return Asked(found.rows, asked, line.down.bytes, found.told.get("requests", 0))


# ------------------------------------------------------------------------------------------------------------------- rows

LARGE_BATCH = 4096
FRAGMENT_ROWS = 500_000


def rows(bench: Bench, given: argparse.Namespace) -> None:
    to = bench.folder / "rows.lance"
    make_rows(to, given.small_rows)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    print(f"\n{given.small_rows} small rows, {size / 1e9:.2f} GB")
    local = Task(who="rows", content="rows", place=str(to), rows=given.small_rows)
    show_rows("local", bench.run(local))
    with s3(bench, to.name) as options:
        show_rows("S3", bench.run(replace(local, place=f"s3://gangline/{to.name}", options=options)))
    shutil.rmtree(to)


def make_rows(to: Path, count: int) -> None:
    import lance
    import pyarrow as pa

    from gangline.data.dataset import Info

    info = Info(id="rows", plan="rows", rows=count, image_bytes=0, source="made up")
    numbers = pa.list_(pa.float16(), 8)
    schema = pa.schema([("number", pa.int64()), ("caption", pa.string()), ("numbers", numbers)], info.to_metadata())

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, count, 50_000):
            own = np.arange(first, min(first + 50_000, count))
            captions = pa.array([f"shapes on a gradient, number {number}" for number in own])
            values = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(own % 2048, 8).astype(np.float16)), 8)
            yield pa.RecordBatch.from_arrays([pa.array(own), captions, values], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(reader, str(to), max_rows_per_file=FRAGMENT_ROWS)


def show_rows(where: str, found: Found) -> None:
    told = found.told
    print(f"{where}: {found.rate:.0f} rows/s, in batches of {LARGE_BATCH}; each row came once: {told['once']}")
    asked, size = told["requests"], told["bytes"]
    dollars = asked * GET_DOLLARS / found.rows * 1e9
    print(f"  {asked} reads of {size / 1e9:.2f} GB in all by its own count; as GETs ${dollars:.2f} for 10⁹ rows")
    _verdict("opening", told["open_s"], "s", 1, told["open_s"] < 1)
    _verdict("first batch", found.first_s, "s", 1, found.first_s < 1)
    memory = " ".join(f"{one:.0f}" for one in told["memory_mb"])
    print(f"  memory in MB: {told['before_mb']:.0f} before it is opened, then at its largest in each tenth: {memory}")
    halves = max(told["memory_mb"][1:5]), max(told["memory_mb"][5:])
    growth = halves[1] / halves[0] - 1
    _verdict("more in the second half than from the second to the fifth tenth", growth * 100, "%", 5, growth < 0.05)


def measure_rows(task: Task) -> Found:
    from gangline.data.dataset import open_data_set
    from gangline.data.place import DataPlace
    from gangline.data.reading.reader import DataReader, ReadOrder
    from gangline.data.reading.stream import Stream

    before_mb, started_s, cpu_s = _memory_mb(), time.perf_counter(), _cpu_s()
    data = open_data_set(DataPlace(task.place, task.options))
    reader = DataReader(data, ReadOrder(columns=("number", "caption", "numbers"), seed=7))
    stream = Stream([reader])
    open_s = time.perf_counter() - started_s
    seen, memory, first_s, done = np.full(task.rows, -1, np.int8), [0.0] * 10, 0.0, 0
    with stream:
        for batch in stream.batches(first=0, size=LARGE_BATCH):
            first_s = first_s or time.perf_counter() - started_s
            own = np.asarray(batch.columns["number"])[: task.rows - done]
            np.add.at(seen, own, 1)
            tenth = min(9, done * 10 // task.rows)
            memory[tenth] = max(memory[tenth], _memory_mb())
            done += len(own)
            if done == task.rows:
                break
    took_s = time.perf_counter() - started_s
    stats = data.table.io_stats_incremental()
    return Found(
        rows=done,
        first_s=first_s,
        rate=(done - LARGE_BATCH) / (took_s - first_s),
        cpu_ms=(_cpu_s() - cpu_s) / done * 1e3,
        memory_mb=max(memory),
        told={"open_s": open_s, "before_mb": before_mb, "memory_mb": memory, "once": not seen.any()}
        | {"requests": stats.read_iops, "bytes": stats.read_bytes},
    )


# ----------------------------------------------------------------------------------------------------- what a trainer is given


def intake(bench: Bench, given: argparse.Namespace) -> None:
    from benchmarks import intake

    base, rounds = intake.make_base(bench.folder / "base"), dict[int, list[intake.Taken]]()
    for resolution in intake.PUBLISHED:
        intake.make_data(bench.folder / f"{resolution}.lance", base, resolution, given.intake_rows)
    for _ in range(given.rounds):
        for resolution in intake.PUBLISHED:
            rounds.setdefault(resolution, []).append(bench.taken(base, resolution))
    intake.show(rounds)


def _memory_mb(what: str = "VmRSS") -> float:
    """Held now; or `VmHWM`, the most that was. What `resource` calls the most begins with that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{what}:"))


# ------------------------------------------------------------------------------------------------------------------- main

PARTS = {"peers": peers, "decoder": decoder, "requests": requests, "intake": intake, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"{', '.join(PARTS)}; all where none is given"
    )
    parser.add_argument("--peers", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--rows", type=int, default=20_000, help="of the data set of images and latents")
    parser.add_argument("--rounds", type=int, default=3, help="in turns, of which the median counts")
    parser.add_argument("--intake-rows", type=int, default=8192, help="of the data set of `intake`")
    parser.add_argument("--small-rows", type=int, default=10_000_000)
    given = parser.parse_args()
    parts = given.parts or list(PARTS)
    if given.peers is None and {"peers", "requests"} & set(parts):
        print("no --peers: only ours is measured")
    with TemporaryDirectory(prefix="gangline-benchmark-") as made:
        bench = Bench(Path(made), given.peers)
        if {"peers", "decoder", "requests"} & set(parts):
            bench.make(given.rows)
        for part in parts:
            PARTS[part](bench, given)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", text]:
            asked = Task(**json.loads(text))
            found = measure_rows(asked) if asked.who == "rows" else measure(asked)
            print(json.dumps(asdict(found)))
        case ["share", text, tars]:
            print(json.dumps(asdict(measure_share(Task(**json.loads(text)), Path(tars)))))
        case ["intake", base, place, resolution]:
            from benchmarks.intake import measure as measure_intake

            print(json.dumps(asdict(measure_intake(Path(base), Path(place), int(resolution)))))
        case ["make", who, tars, to]:
            make_peer(who, Path(tars), Path(to))
        case _:
            main()
