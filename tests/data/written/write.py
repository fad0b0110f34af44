"""Write the data sets that lie beside this file, with the programs that people use. README.md has the versions and the command.

`expected.json` has the caption and the SHA-256 of the image that each of the samples was given, by number.
"""

import hashlib
import io
import json
import shutil
import sys
import tarfile
import types
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
COUNT = 7


def image(number: int) -> Image.Image:
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
    return small.resize((36 + number, 32), Image.Resampling.NEAREST)


def encoded(number: int) -> bytes:
    file = io.BytesIO()
    image(number).save(file, "JPEG", quality=80)
    return file.getvalue()


def caption(number: int) -> str:
    return f"number {number}, “quoted”\nand on"


def mds() -> None:
    import transformers.feature_extraction_utils  # noqa: F401 - before there seems to be a torchvision

    absent = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")
    for name in absent:
        module: Any = types.ModuleType(name)  # what the writer does not need, and its package imports
        module.VisionDataset = module.to_tensor = object
        sys.modules[name] = module
    from streaming import MDSWriter
    from streaming.base.util import merge_index

    for name in absent:
        del sys.modules[name]
    root = HERE / "mds"
    for compression in (None, "zstd", "gz", "br", "bz2", "snappy"):
        columns = {"image": "bytes", "caption": "str", "score": "float64"}
        with MDSWriter(
            out=str(root / (compression or "plain")), columns=columns, compression=compression, size_limit=4000
        ) as writer:
            for number in range(COUNT):
                writer.write({"image": encoded(number), "caption": caption(number), "score": number / 2})
    kinds = {
        "photo": "jpeg",
        "caption": "str",
        "whole": "int",
        "small": "uint8",
        "half": "float16",
        "single": "float32",
        "digits": "str_int",
        "fraction": "str_float",
        "exact": "str_decimal",
        "tags": "json",
        "fixed": "ndarray:float32:2,3",
        "loose": "ndarray",
        "several": "list[png]",
        "anything": "pkl",
    }
    with MDSWriter(out=str(root / "kinds"), columns=kinds) as writer:
        for number in range(COUNT):
            writer.write(
                {
                    "photo": encoded(number),
                    "caption": caption(number),
                    "whole": -number,
                    "small": number,
                    "half": number / 2,
                    "single": number / 4,
                    "digits": 10**20 + number,
                    "fraction": number / 8,
                    "exact": Decimal(number) / 16,
                    "tags": {"id": number, "of": ["a", "b"]},
                    "fixed": np.full((2, 3), number, np.float32),
                    "loose": np.arange(1, 3 + number, dtype=np.int16),
                    "several": [image(number)],
                    "anything": {"number": number},
                }
            )
    for form in ("png", "pil"):
        with MDSWriter(out=str(root / form), columns={"image": form, "caption": "str"}) as writer:
            for number in range(2):
                writer.write({"image": image(number), "caption": caption(number)})
    parts = root / "parts"
    for part, numbers in (("0", range(3)), ("1", range(3, COUNT))):
        with MDSWriter(out=str(parts / part), columns={"image": "bytes", "caption": "str"}, size_limit=4000) as writer:
            for number in numbers:
                writer.write({"image": encoded(number), "caption": caption(number)})
    merge_index(str(parts), keep_local=True)


def tars() -> None:
    import webdataset

    (HERE / "webdataset").mkdir()
    with webdataset.ShardWriter(str(HERE / "webdataset" / "%06d.tar"), maxcount=4, verbose=0) as writer:
        for number in range(COUNT):
            details = {"score": number / 2, "tags": ["a", "b"], "size": {"width": 1}}
            writer.write(
                {
                    "__key__": f"some/{number:04d}",
                    "image.jpg": encoded(number),
                    "seg.png": encoded(number + 100),
                    "txt": caption(number),
                    "json": details,
                }
            )


def hugging_face() -> None:
    import datasets

    root = HERE / "datasets"
    images = [{"bytes": encoded(number), "path": None} for number in range(COUNT)]
    columns = {"image": images, "text": [caption(number) for number in range(COUNT)], "score": [0.5] * COUNT}
    made = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    made.save_to_disk(root / "saved", num_shards=2)
    made.to_parquet(root / "table" / "train.parquet")
    photos = root / "paths" / "photos"
    photos.mkdir(parents=True)
    for number in range(COUNT):
        (photos / f"{number}.jpg").write_bytes(encoded(number))
    paths = [f"photos/{number}.jpg" for number in range(COUNT)]
    with_paths = datasets.Dataset.from_dict({"path": paths, "text": columns["text"], "score": columns["score"]})
    with_paths.to_csv(root / "paths" / "lines.csv", index=False)
    with_paths.to_json(root / "paths" / "lines.jsonl")
    with_paths.to_json(root / "paths" / "array.json", lines=False, orient="records")


def fetched() -> None:
    import img2dataset

    photos = HERE / "datasets" / "paths" / "photos"
    server = ThreadingHTTPServer(("127.0.0.1", 8765), partial(SimpleHTTPRequestHandler, directory=str(photos)))
    Thread(target=server.serve_forever, daemon=True).start()
    urls = HERE / "urls.jsonl"
    lines = [
        {"url": f"http://127.0.0.1:8765/{number}.jpg", "caption": caption(number), "punsafe": number / 100}
        for number in range(COUNT)
    ]
    lines.append({"url": "http://127.0.0.1:8765/gone.jpg", "caption": "gone", "punsafe": 0.0})
    urls.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for form in ("files", "webdataset", "parquet"):
        img2dataset.download(
            url_list=str(urls),
            input_format="jsonl",
            output_format=form,
            output_folder=str(HERE / "img2dataset" / form),
            url_col="url",
            caption_col="caption",
            save_additional_columns=["punsafe"],
            resize_mode="no",
            disable_all_reencoding=True,
            number_sample_per_shard=4,
            processes_count=1,
            thread_count=1,
        )
    server.shutdown()
    urls.unlink()


if __name__ == "__main__":
    for folder in ("mds", "webdataset", "datasets", "img2dataset"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    for write in (mds, tars, hugging_face, fetched):
        write()
    for path in (HERE / "img2dataset").rglob("_tmp"):
        shutil.rmtree(path)
    for path in HERE.rglob("*.tar"):
        assert tarfile.is_tarfile(path)
    expected = [[caption(number), hashlib.sha256(encoded(number)).hexdigest()] for number in range(COUNT)]
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
