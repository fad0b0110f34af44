"""MosaicML's format: which of its shards are read, and what is wrong with one costs a sentence."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.data.making.conversion import left_out_counts
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from tests.data import made
from tests.data.made import converted, rows_of, samples


def test_folders_with_an_index_each_are_one_source(tmp_path: Path) -> None:
    given = samples(9)
    made.as_mds(tmp_path / "source" / "0-256" / "a", given[:5])
    made.as_mds(tmp_path / "source" / "256-512", given[5:])
    data, _ = converted(tmp_path / "source", tmp_path / "made.lance")
    assert sorted(rows_of(data)) == sorted(one.caption for one in given)
    assert {row["source"] for row in rows_of(data).values()} >= {
        "0-256/a/shard.00001.mds#0",
        "256-512/shard.00000.mds#3",
    }


def test_shards_that_no_index_lists_are_not_read(tmp_path: Path) -> None:
    source = made.as_mds(tmp_path / "source", samples(4))
    shutil.copy(source / "shard.00000.mds", source / "shard.00001.mds")
    assert converted(source, tmp_path / "made.lance")[0].rows == 4


def test_a_shard_that_is_not_there_is_named_before_anything_is_done(tmp_path: Path) -> None:
    source = made.as_mds(tmp_path / "source", samples(9))
    (source / "shard.00001.mds").unlink()
    with pytest.raises(BadInput, match=r"lacks 1 file that its index\.json lists, such as shard\.00001\.mds"):
        converted(source, tmp_path / "made.lance")
    assert not list(tmp_path.glob("made*"))


def test_shards_that_a_reader_unpacked_into_its_cache_are_read(tmp_path: Path) -> None:
    plain = made.as_mds(tmp_path / "plain", samples(8))
    source = made.as_mds(tmp_path / "source", samples(8), compression="zstd")
    for path in plain.glob("*.mds"):
        shutil.copy(path, source)
        (source / f"{path.name}.zstd").unlink()
    assert converted(source, tmp_path / "made.lance")[0].rows == 8


@pytest.mark.parametrize("compression", [None, "zstd", "bz2"])
@pytest.mark.parametrize("kept", [0, 3, 40, 600, -3])
def test_a_shard_that_breaks_off_is_named(compression: str | None, kept: int, tmp_path: Path) -> None:
    source = made.as_mds(tmp_path / "source", samples(8), compression=compression)
    shard = next(path for path in sorted(source.iterdir()) if path.name.startswith("shard.00001"))
    shard.write_bytes(shard.read_bytes()[:kept])
    with pytest.raises(BadInput, match=f"{shard.name} is damaged, or not a shard of MDS"):
        converted(source, tmp_path / "made.lance")


@pytest.mark.parametrize(
    "change", [{"samples": "4"}, {"samples": -1}, {"column_sizes": [None, -8, None]}, {"column_names": [1, 2, 3]}]
)
def test_an_index_with_nonsense_in_it_is_told(change: dict[str, Any], tmp_path: Path) -> None:
    source = made.as_mds(tmp_path / "source", samples(4))
    index = json.loads((source / "index.json").read_text())
    index["shards"][0] |= change
    (source / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match=r"index\.json is not an index of MDS"):
        converted(source, tmp_path / "made.lance")


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", r"index\.json is not an index of MDS"),
        ("[]", r"index\.json is not an index of MDS"),
        ('{"shards": [{"version": 1, "format": "mds"}]}', r"index\.json lists files that are not MDS of version 2"),
        ('{"version": 2, "shards": []}', "has no rows"),
    ],
)
def test_what_is_no_index_is_told(index: str, said: str, tmp_path: Path) -> None:
    source = made.as_mds(tmp_path / "source", samples(4))
    (source / "index.json").write_text(index)
    with pytest.raises(BadInput, match=said):
        converted(source, tmp_path / "made.lance")


def test_a_value_that_is_damaged_costs_one_sample(tmp_path: Path) -> None:
    image = samples(1)[0].image
    rows = [
        {"jpg": image, "caption": caption, "n": n, "meta": meta}
        for caption, n, meta in [
            (b"good", b"1", b"{}"),
            (b"\xff\xfe", b"1", b"{}"),
            (b"no number", b"one", b"{}"),
            (b"no json", b"1", b"{"),
        ]
    ]
    columns = {"jpg": "bytes", "caption": "str", "n": "str_int", "meta": "json"}
    data, done = converted(made.write_mds(tmp_path / "source", columns, [rows]), tmp_path / "made.lance")
    assert list(rows_of(data)) == ["good"]
    assert left_out_counts(done) == {"a damaged sample": 2, "a text that is not UTF-8": 1}


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        struct.pack("<3I", 2, 2, 3) + b"RGB" + bytes(11),
        struct.pack("<3I", 2**31, 2**31, 3) + b"RGB" + bytes(12),
        struct.pack("<3I", 2, 2, 3) + b"XYZ" + bytes(12),
        struct.pack("<3I", 2, 2, 3) + b"HSV" + bytes(12),
        struct.pack("<3I", 2, 2, 2**31) + b"RGB" + bytes(12),
    ],
)
def test_a_picture_that_is_none_costs_one_sample(stored: bytes, tmp_path: Path) -> None:
    good = struct.pack("<3I", 2, 2, 3) + b"RGB" + bytes(range(12))
    rows = [{"image": good, "caption": b"good"}, {"image": stored, "caption": b"bad"}]
    source = made.write_mds(tmp_path / "source", {"image": "pil", "caption": "str"}, [rows])
    data, done = converted(source, tmp_path / "made.lance")
    assert list(rows_of(data)) == ["good"]
    assert sum(left_out_counts(done).values()) == 1


def test_a_picture_of_inks_is_read_as_it_looks(tmp_path: Path) -> None:
    inks = struct.pack("<3I", 2, 2, 4) + b"CMYK" + bytes(16)
    source = made.write_mds(
        tmp_path / "source", {"image": "pil", "caption": "str"}, [[{"image": inks, "caption": b"x"}]]
    )
    assert rows_of(converted(source, tmp_path / "made.lance")[0])["x"]["width"] == 2


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    row = {"image": samples(1)[0].image, "caption": b"x", "bad": b"cos\nabort\n(tR."}
    columns = {"image": "bytes", "caption": "str", "bad": "pkl"}
    source = made.write_mds(tmp_path / "source", columns, [[row]])
    assert converted(source, tmp_path / "made.lance")[0].rows == 1
    with pytest.raises(BadInput, match="column bad holds no image: its type is pkl"):
        converted(source, tmp_path / "other.lance", hints=Hints(image="bad"))


def test_small_shards_are_read_together_and_large_ones_in_parts(tmp_path: Path) -> None:
    small = made.as_mds(tmp_path / "small", samples(10), each=2)
    large = made.as_mds(tmp_path / "large", samples(10), each=10)
    for source, parts in ((small, [2, 2, 1]), (large, [1, 1, 1])):
        found, entries = find_source(DataPlace(str(source)))
        assert [len(shard.parts) for shard in found.shards(entries, 4)] == parts
        data, _ = converted(source, tmp_path / f"{source.name}.lance", rows=4)
        assert len(rows_of(data)) == 10


def test_urls_and_names_of_columns_are_those_of_tables(web: made.Web, tmp_path: Path) -> None:
    given = samples(2)
    rows = [
        {"link": web.has(f"/{one.name}", one.image).encode(), "alt": one.caption.encode(), "n": struct.pack("<i", 7)}
        for one in given
    ]
    source = made.write_mds(tmp_path / "source", {"link": "str", "alt": "str", "n": "int32"}, [rows])
    data, _ = converted(source, tmp_path / "made.lance", hints=Hints(url="link", captions=("alt",)))
    assert {row["n"] for row in rows_of(data).values()} == {7}


def test_an_index_leads_to_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    made.as_mds(tmp_path / "secret", samples(4))
    source = made.as_mds(tmp_path / "source", samples(4))
    index = json.loads((source / "index.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = "../secret/shard.00000.mds"
    (source / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="lacks 1 file"):
        converted(source, tmp_path / "made.lance")
