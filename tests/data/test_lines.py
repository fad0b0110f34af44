"""Tables that people write themselves, CSV, TSV, JSON and JSON lines: of URLs or of paths, of any length, with what is wrong in them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.errors import BadInput
from gangline.data.making.conversion import dropped, left_out_counts
from gangline.data.making.convert import convert
from gangline.data.making.engine import Processes
from gangline.data.making.fetch import Fetching
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from gangline.data.sources.lines import MARKED
from tests.data import made
from tests.data.made import converted, rows_of, samples, write_lines

FORMS = ("csv", "tsv", "json", "jsonl")


def photos(root: Path, count: int = 3) -> list[str]:
    (root / "photos").mkdir(parents=True)
    for one in samples(count):
        (root / "photos" / f"{one.name}.jpg").write_bytes(one.image)
    return [f"photos/{one.name}.jpg" for one in samples(count)]


def table(root: Path, content: str | bytes, name: str = "lines.csv") -> Path:
    root.mkdir(exist_ok=True)
    (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root / name


@pytest.mark.parametrize("form", FORMS)
def test_images_are_fetched_from_urls(form: str, web: made.Web, tmp_path: Path) -> None:
    lines = [{"url": web.has(f"/{one.name}", one.image), "text": one.caption, "n": 7} for one in samples(3)]
    rows = rows_of(converted(write_lines(tmp_path / f"lines.{form}", lines), tmp_path / "made.lance")[0])
    assert {caption: row["image"] for caption, row in rows.items()} == {one.caption: one.image for one in samples(3)}
    assert {row["n"] for row in rows.values()} == {7}
    assert {row["url"] for row in rows.values()} == {line["url"] for line in lines}


@pytest.mark.parametrize("form", FORMS)
def test_paths_are_seen_from_the_folder_of_the_table(form: str, tmp_path: Path) -> None:
    names = photos(tmp_path)
    (tmp_path / "tables" / "en").mkdir(parents=True)
    paths = [f"../../{names[0]}", str(tmp_path / names[1]), f"./../../tables/../{names[2]}", "gone.jpg"]
    lines = [{"file_name": path, "caption": str(number)} for number, path in enumerate(paths)]
    write_lines(tmp_path / "tables" / "en" / f"lines.{form}", lines)
    for source in (tmp_path / "tables", tmp_path / "tables" / "en" / f"lines.{form}"):
        data, done = converted(source, tmp_path / f"{source.name}.lance")
        assert {caption: row["image"] for caption, row in rows_of(data).items()} == {
            str(number): one.image for number, one in enumerate(samples(3))
        }
        assert left_out_counts(done) == {"the file is gone": 1}


def test_images_lie_in_any_bucket_whether_the_table_does_or_not(bucket: S3Bucket, tmp_path: Path) -> None:
    given = samples(3)
    place = made.place_in(bucket, f"{tmp_path.name}/set")
    for one in given:
        place.write(f"{one.name}.jpg", one.image)
    lines = [{"path": f"{place.uri}/{one.name}.jpg", "caption": one.caption} for one in given]
    lines.append({"path": f"{place.uri}/gone.jpg", "caption": "gone"})
    local = write_lines(tmp_path / "lines.csv", lines)
    found, entries = find_source(DataPlace(str(local)), Hints())
    from gangline.data.making.conversion import Conversion

    conversion = Conversion(source=found, target=DataPlace(str(tmp_path / "made.lance")))
    data, done = convert(conversion, entries, Processes(1), Fetching(connections=2, buckets=place.options))
    assert sorted(rows_of(data)) == sorted(one.caption for one in given)
    assert left_out_counts(done) == {"the file is gone": 1}

    there = [
        {"path": path, "caption": path} for path in (f"../{given[0].name}.jpg", "/etc/hostname", "../../../up.jpg")
    ]
    place.below("tables").write("lines.jsonl", "\n".join(map(json.dumps, there)).encode())
    data, done = converted(place.below("tables"), tmp_path / "remote.lance")
    assert list(rows_of(data)) == [f"../{given[0].name}.jpg"]
    assert left_out_counts(done) == {"a path that leads elsewhere": 1, "the file is gone": 1}


@pytest.mark.parametrize("form", FORMS)
def test_a_mark_of_byte_order_is_no_part_of_the_first_name(form: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / f"lines.{form}", [{"path": name, "caption": name} for name in photos(tmp_path)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert converted(path, tmp_path / "made.lance")[0].rows == 3


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_table_in_another_encoding_is_told(encoding: str, tmp_path: Path) -> None:
    content = "\ufeffpath,caption\na.jpg,x\n" if encoding.endswith("be") else "path,caption\na.jpg,x\n"
    with pytest.raises(BadInput, match=r"lines\.csv is not in UTF-8"):
        converted(table(tmp_path / "source", content.encode(encoding)), tmp_path / "made.lance")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 7, MARKED, 1000])
def test_pieces_of_any_length_have_each_row_once(form: str, rows: int, tmp_path: Path) -> None:
    """Also where a caption has line breaks, quotes and letters of several bytes in it."""
    count = 3 * MARKED + 5
    captions = [f'number {number}, “ü”\n"said"\r\n and {"x" * (number % 300)}' for number in range(count)]
    lines = [{"url": f"http://x/{number}", "caption": caption} for number, caption in enumerate(captions)]
    found, entries = find_source(DataPlace(str(write_lines(tmp_path / f"lines.{form}", lines))))
    shards = found.shards(entries, rows)
    assert len(shards) == -(-count // rows)
    some = shards if rows > 1 else [shards[number] for number in (0, 1, MARKED - 1, MARKED, MARKED + 1, count - 1)]
    items = [item for shard in some for item in found.read(shard)]
    numbers = range(count) if rows > 1 else (0, 1, MARKED - 1, MARKED, MARKED + 1, count - 1)
    assert [(item.url, item.captions) for item in items] == [
        (f"http://x/{number}", (" ".join(captions[number].split()),)) for number in numbers
    ]


LINES = {
    "csv": b"path,caption,n\na.jpg,one,1\n\nb.jpg,two,2,3\nc.jpg,\xff,3\nd.jpg\n",
    "jsonl": b'{"path": "a.jpg", "caption": "one", "n": 1}\n\n{"path": "b.jpg"\n{"caption": "\xff"}\n[1]\n{"path": "d.jpg"}\n',
    "json": b'[{"path": "a.jpg", "caption": "one", "n": 1},\n\n3,\n{"caption": "\xff"},\n["b"],\n{"path": "d.jpg"}]\n',
}


@pytest.mark.parametrize(
    ("form", "problems"),
    [
        (
            "csv",
            {
                "a line with more cells than there are columns": ["lines.csv:4"],
                "a text that is not UTF-8": ["lines.csv:5"],
                "no caption": ["lines.csv:6"],
            },
        ),
        (
            "jsonl",
            {
                "not JSON": ["lines.jsonl:3"],
                "a text that is not UTF-8": ["lines.jsonl:4"],
                "not a JSON object": ["lines.jsonl:5"],
                "no caption": ["lines.jsonl:6"],
            },
        ),
        (
            "json",
            {
                "not a JSON object": ["lines.json:3", "lines.json:5"],
                "a text that is not UTF-8": ["lines.json:4"],
                "no caption": ["lines.json:6"],
            },
        ),
    ],
)
def test_a_bad_line_is_left_out_and_named_by_its_number(
    form: str, problems: dict[str, list[str]], tmp_path: Path
) -> None:
    source = table(tmp_path / "source", LINES[form], f"lines.{form}")
    (tmp_path / "source" / "a.jpg").write_bytes(samples(1)[0].image)
    data, done = converted(source, tmp_path / "made.lance", rows=100)
    assert list(rows_of(data)) == ["one"]
    assert done[0].examples == problems


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "http://x/1.jpg,a dog\nhttp://x/2.jpg,a cat\n", "the first line of a.csv has http://x/1.jpg where"),
        ("a.tsv", "1.jpg\ta dog\n", r"the first line of a\.tsv has 1\.jpg where the name of a column should be"),
        ("a.csv", "url,text,url\nhttp://x,y,z\n", "a.csv has several columns with the same name: url"),
        ("a.csv", "url,caption\n", "a.csv has no rows"),
        ("a.csv", "", "a.csv has no rows"),
        ("a.csv", 'url,caption\nhttp://x,"one\nhttp://y,two\n', r"a quote that line 2 of a\.csv opens is never closed"),
        ("a.csv", 'url,caption\nhttp://x,"' + "x\n" * 2**20, r"line 2 of a\.csv cannot be read: field larger than"),
        ("a.csv", "alt,words\nx,y\n", "neither a column of URLs nor one of paths: alt, words"),
        ("a.csv", "url,words\nhttp://x,y\n", "no column has a known name for captions: url, words"),
        ("a.json", "", "a.json has no rows"),
        ("a.json", '[{"url": "http://x"', r"a\.json is not JSON from line 1 on, or ends early"),
        ("a.json", '[{"url": "http://x"},\n{"url": }]', r"a\.json is not JSON from line 2 on, or ends early"),
        ("a.json", '[{"url": "http://x"}\n', r"a\.json is not JSON from line 2 on, or ends early"),
        ("a.json", '{\n "images": [1]\n}\n', r"a\.json is not a table: line 1 is not JSON"),
        ("a.jsonl", "hello\n", r"a\.jsonl is not a table: line 1 is not JSON"),
    ],
)
def test_what_is_no_table_is_told_before_anything_is_done(name: str, content: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        converted(table(tmp_path / "source", content, name), tmp_path / "made.lance")
    assert not list(tmp_path.glob("made*"))


def test_columns_are_of_the_type_that_all_of_their_rows_have(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "path": name,
            "caption": name,
            "whole": 3,
            "broken": "1e-3",
            "id": "007",
            "long": "1" * 19,
            "mixed": 1,
            "none": "",
        }
        for name in photos(tmp_path)
    ]
    lines[-1] |= {"whole": "", "broken": 2, "mixed": "x"}
    data, done = converted(write_lines(tmp_path / "lines.csv", lines), tmp_path / "made.lance")
    types = {field.name: str(field.type) for field in data.table.schema}
    assert (types["whole"], types["broken"], types["id"], types["long"], types["mixed"], types["none"]) == (
        "int64",
        "double",
        "string",
        "string",
        "string",
        "string",
    )
    last = rows_of(data)[lines[-1]["caption"]]
    assert (last["whole"], last["broken"], last["id"], last["mixed"]) == (None, 2.0, "007", "x")
    assert not dropped(done)


def test_columns_that_come_late_are_columns_and_what_is_nested_is_counted(tmp_path: Path) -> None:
    names = photos(tmp_path)
    lines: list[dict[str, Any]] = [{"path": name, "captions": [name, "same"], "tags": ["a"]} for name in names]
    lines[-1] |= {"late": 2, "size": {"w": 1}, "tags": None}
    data, done = converted(write_lines(tmp_path / "lines.json", lines), tmp_path / "made.lance")
    assert rows_of(data)[names[-1]]["late"] == 2
    assert rows_of(data)[names[0]]["captions"] == [names[0], "same"]
    assert dropped(done) == {"tags (a list)": 2, "size (an object)": 1}


def test_tables_of_one_folder_may_have_other_columns(tmp_path: Path) -> None:
    names = photos(tmp_path / "elsewhere")
    root = tmp_path / "source"
    root.mkdir()
    for number, more in enumerate(({"n": 1}, {"n": 2.5}, {"m": "x"})):
        path = str(tmp_path / "elsewhere" / names[number])
        write_lines(root / f"{number}.jsonl", [{"path": path, "caption": names[number]} | more])
    rows = rows_of(converted(root, tmp_path / "made.lance")[0])
    assert [(rows[name]["n"], rows[name]["m"]) for name in names] == [(1.0, None), (2.5, None), (None, "x")]


def test_tables_of_several_kinds_in_one_folder_are_told_but_json_beside_them_is_about_them(tmp_path: Path) -> None:
    names = photos(tmp_path / "elsewhere")
    lines = [{"path": str(tmp_path / "elsewhere" / name), "caption": name} for name in names]
    root = tmp_path / "source"
    root.mkdir()
    write_lines(root / "lines.csv", lines)
    (root / "dataset_info.json").write_text('{"description": "x"}')
    assert converted(root, tmp_path / "made.lance")[0].rows == 3
    write_lines(root / "lines.jsonl", lines)
    with pytest.raises(BadInput, match=r"has tables of several kinds: \.csv, \.jsonl"):
        converted(root, tmp_path / "other.lance")


def test_images_go_before_a_table_beside_them_which_is_told(tmp_path: Path) -> None:
    made.as_folder(tmp_path / "source", samples(2))
    lines = [{"path": f"some/{one.name}.jpg", "caption": "of the table"} for one in samples(2)]
    path = write_lines(tmp_path / "source" / "lines.csv", lines)
    found, _ = find_source(DataPlace(str(tmp_path / "source")))
    assert (found.kind, found.notes) == (
        "folder",
        ("lines.csv: not read; give the file alone to read its images and captions",),
    )
    for place, hints in ((path, Hints()), (tmp_path / "source", Hints(kind="tables"))):
        data, _ = converted(place, tmp_path / f"{place.name}.lance", hints=hints)
        assert data.table.to_table()["captions"].to_pylist() == [["of the table"]] * 2


def test_the_column_of_paths_and_that_of_urls_may_be_named(web: made.Web, tmp_path: Path) -> None:
    names = photos(tmp_path)
    lines = [
        {"here": name, "there": web.has(f"/{number}", samples(1, 9)[0].image), "url": "http://gone", "caption": name}
        for number, name in enumerate(names)
    ]
    path = write_lines(tmp_path / "lines.csv", lines)
    local = rows_of(converted(path, tmp_path / "local.lance", hints=Hints(image="here"))[0])
    assert [local[name]["image"] for name in names] == [one.image for one in samples(3)]
    remote = rows_of(converted(path, tmp_path / "remote.lance", hints=Hints(url="there"))[0])
    assert {row["image"] for row in remote.values()} == {samples(1, 9)[0].image}


def test_of_a_table_that_is_given_alone_the_rest_of_its_folder_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "lines.csv", [{"path": name, "caption": name} for name in photos(tmp_path)])
    listed: list[str] = []
    monkeypatch.setattr(DataPlace, "entries", lambda place, **how: listed.append(place.uri) or [])
    found, entries = find_source(DataPlace(str(path)))
    assert ([entry.name for entry in entries], listed, found.kind) == (["lines.csv"], [], "lines")


def test_a_table_that_changed_is_read_anew(tmp_path: Path) -> None:
    names = photos(tmp_path)
    path = write_lines(tmp_path / "lines.jsonl", [{"path": name, "caption": name} for name in names[:1]])
    assert converted(path, tmp_path / "one.lance")[0].rows == 1
    write_lines(path, [{"path": name, "caption": name} for name in names])
    os.utime(path, ns=(1, 1))
    assert converted(path, tmp_path / "three.lance")[0].rows == 3
