"""Captions as people write them: each photo has the one that is nearest to it, and what is odd is told or refused by name."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.data.chance import stream
from gangline.data.images.captions import (
    Caption,
    find_captions,
    read_captions,
    shuffled,
    tags_of,
    thinned,
    with_choices,
)

PROMPT = "a photo of sks dog"


def captions(folder: Path, *photos: str) -> tuple[dict[str, Caption], list[str]]:
    told: list[str] = []
    return read_captions(folder, list(photos), PROMPT, told.append), told


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def lines(*values: object) -> str:
    return "\n".join(json.dumps(value, ensure_ascii=False) for value in values)


def test_a_photo_without_a_caption_has_the_prompt(tmp_path: Path) -> None:
    assert captions(tmp_path, "a.jpg") == ({"a.jpg": Caption(text=PROMPT)}, [])


@pytest.mark.parametrize("name", ["a.txt", "a.caption", "a.TXT", "a.jpg.txt"])
def test_a_file_named_as_the_photo_is_its_caption(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, "sks dog on a beach\n")
    assert captions(tmp_path, "a.jpg", "b.jpg")[0] == {
        "a.jpg": Caption(text="sks dog on a beach"),
        "b.jpg": Caption(text=PROMPT),
    }


def test_metadata_says_text_or_caption_and_repeats(tmp_path: Path) -> None:
    content = lines(
        {"file_name": "a.jpg", "text": "one", "repeats": 3},
        {"file_name": "b.jpg", "caption": "two", "width": 7},
        {"file_name": "c.jpg", "repeats": 2},
    )
    write(tmp_path / "metadata.jsonl", f"{content}\n\n")
    assert captions(tmp_path, "a.jpg", "b.jpg", "c.jpg") == (
        {
            "a.jpg": Caption(text="one", repeats=3),
            "b.jpg": Caption(text="two"),
            "c.jpg": Caption(text=PROMPT, repeats=2),
        },
        [],
    )


def test_a_folder_named_as_kohya_does_gives_repeats_and_words(tmp_path: Path) -> None:
    write(tmp_path / "10_sks dog/b.txt", "its own")
    found, told = captions(tmp_path, "10_sks dog/a.jpg", "10_sks dog/b.jpg", "3_/c.jpg", "d.jpg")
    assert found == {
        "10_sks dog/a.jpg": Caption(text="sks dog", repeats=10),
        "10_sks dog/b.jpg": Caption(text="its own", repeats=10),
        "3_/c.jpg": Caption(text=PROMPT, repeats=3),
        "d.jpg": Caption(text=PROMPT),
    }
    assert told == []


def test_metadata_in_a_subfolder_speaks_of_the_photos_there(tmp_path: Path) -> None:
    write(tmp_path / "2_dog/metadata.jsonl", lines({"file_name": "a.jpg", "text": "one"}))
    assert captions(tmp_path, "2_dog/a.jpg", "a.jpg")[0]["2_dog/a.jpg"] == Caption(text="one", repeats=2)


def test_of_two_captions_the_photos_own_file_is_taken_and_told(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "from the file")
    write(tmp_path / "metadata.jsonl", lines({"file_name": "a.jpg", "text": "from the line", "repeats": 2}))
    found, told = captions(tmp_path, "a.jpg")
    assert found["a.jpg"] == Caption(text="from the file", repeats=2)
    assert told == [
        "a.jpg has two captions: the one in a.txt is used, not the one in line 1 of metadata.jsonl",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_encoding_that_says_what_it_is_is_read_silently(tmp_path: Path, encoding: str) -> None:
    write(tmp_path / "a.txt", "ein Hündchen, 犬\r\n".encode(encoding))
    assert captions(tmp_path, "a.jpg") == ({"a.jpg": Caption(text="ein Hündchen, 犬")}, [])


def test_an_encoding_that_is_guessed_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "ein Hündchen – 5 €".encode("cp1252"))
    found, told = captions(tmp_path, "a.jpg")
    assert found["a.jpg"].text == "ein Hündchen – 5 €"
    assert told == ["a.txt is not UTF-8: it is read as Windows-1252"]


def test_lines_of_a_caption_are_one_text(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "sks dog,\r\n  on a\tbeach\u200b\r\n\r\n")
    assert captions(tmp_path, "a.jpg")[0]["a.jpg"].text == "sks dog, on a beach"


@pytest.mark.parametrize("nothing", ["", " \r\n", "\ufeff"])
def test_an_empty_caption_is_as_none_and_told(tmp_path: Path, nothing: str) -> None:
    write(tmp_path / "a.txt", nothing)
    assert captions(tmp_path, "a.jpg") == (
        {"a.jpg": Caption(text=PROMPT)},
        ["a.txt is empty, and is ignored"],
    )


def test_captions_of_photos_that_are_not_there_are_told(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "nobody's")
    write(tmp_path / "metadata.jsonl", lines({"file_name": "c.jpg", "text": "nobody's"}))
    found, told = captions(tmp_path, "a.jpg")
    assert found == {"a.jpg": Caption(text=PROMPT)}
    assert told == [
        "b.txt is skipped: there is no photo of that name",
        "line 1 of metadata.jsonl names c.jpg, but there is no such photo",
    ]


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ('{"file_name": "a.jpg", "text": "x"}\n{"file_name": ', "line 2 of metadata.jsonl is not JSON"),
        ("[" * 100_000, "line 1 of metadata.jsonl is not JSON"),
        ('["a.jpg"]', "line 1 of metadata.jsonl does not name a photo"),
        ('{"text": "x"}', "line 1 of metadata.jsonl does not name a photo"),
        ('{"file_name": "a.jpg", "text": 3}', "line 1 of metadata.jsonl has a caption that is not a text"),
        ('{"file_name": "a.jpg", "repeats": 0}', "line 1 of metadata.jsonl has repeats 0"),
        ('{"file_name": "a.jpg", "repeats": true}', "line 1 of metadata.jsonl has repeats True"),
        ('{"file_name": "a.jpg", "repeats": "many"}', "line 1 of metadata.jsonl has repeats 'many'"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_its_number(tmp_path: Path, content: str, because: str) -> None:
    write(tmp_path / "metadata.jsonl", content)
    with pytest.raises(BadInput, match=because):
        captions(tmp_path, "a.jpg")


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"x" * 2001, "the caption in a.txt has 2001 characters"),
        ("UTF-16 without a mark".encode("utf-16-le"), "a.txt is not a text"),
        (b"\xff\xfed\0o\0g", "a.txt is damaged"),
    ],
)
def test_a_file_that_is_no_caption_is_refused_by_name(tmp_path: Path, content: bytes, because: str) -> None:
    write(tmp_path / "a.txt", content)
    with pytest.raises(BadInput, match=because):
        captions(tmp_path, "a.jpg")


@given(st.binary(max_size=60))
@example(b"\x01\t\x01")
def test_whatever_a_caption_holds_the_photo_has_words_or_one_sentence_says_why(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.txt", content)
        try:
            text = captions(Path(folder), "a.jpg")[0]["a.jpg"].text
        except BadInput as refusal:
            assert "a.txt" in refusal.message
        else:
            assert text.strip() == text
            assert text.isprintable()
            assert text


def test_tags_stand_between_separators() -> None:
    assert tags_of("sks dog, beach, ,sunny , ball", ",") == ["sks dog", "beach", "sunny", "ball"]
    assert tags_of("sks dog; on a beach, in the sun;ball", ";") == ["sks dog", "on a beach, in the sun", "ball"]
    assert tags_of("a || b |c", "||") == ["a", "b |c"]
    assert tags_of("no tags here", ",") == ["no tags here"]


def test_shuffling_loses_no_tag() -> None:
    tags = ["beach", "sunny", "ball"]
    orders = {tuple(shuffled(tags, stream(seed, "tags"))) for seed in range(50)}
    assert len(orders) == 6 and {frozenset(order) for order in orders} == {frozenset(tags)}
    assert shuffled([], stream(1, "tags")) == []


def test_each_tag_is_dropped_as_often_as_is_asked_and_the_rest_stay_in_order() -> None:
    tags = ["beach", "sunny", "ball", "dog"]
    left = [thinned(tags, 0.3, stream(seed, "tags")) for seed in range(2000)]
    for tag in tags:
        assert sum(tag in some for some in left) == pytest.approx(1400, abs=5 * (2000 * 0.3 * 0.7) ** 0.5)
    assert len({tuple(some) for some in left}) == 2**4
    assert all(some == [tag for tag in tags if tag in some] for some in left)
    assert thinned(tags, 0, stream(1, "tags")) == tags and thinned(tags, 1, stream(1, "tags")) == []


@pytest.mark.parametrize(
    ("caption", "first", "all_of_them"),
    [
        ("{red|blue} collar", "red collar", {"red collar", "blue collar"}),
        ("a {big|} dog, {x|y}", "a big dog, x", {"a big dog, x", "a big dog, y", "a dog, x", "a dog, y"}),
        ("{{red|blue}} collar", "{red|blue} collar", {"{red|blue} collar"}),
        ("{one}", "one", {"one"}),
        ("{a|a|b}", "a", {"a", "b"}),
        ("an {open brace", "an {open brace", {"an {open brace"}),
        ("no braces | here", "no braces | here", {"no braces | here"}),
        ("{red, shiny|blue}", "red, shiny", {"red, shiny", "blue"}),
    ],
)
def test_a_wildcard_is_one_of_its_choices(caption: str, first: str, all_of_them: set[str]) -> None:
    assert with_choices(caption) == first
    assert {with_choices(caption, stream(seed, "wildcard")) for seed in range(60)} == all_of_them


def test_choices_are_equally_likely_and_wildcards_do_not_depend_on_each_other() -> None:
    found = Counter(with_choices("{a|b} {c|d|e}", stream(seed, "wildcard")) for seed in range(3000))
    assert len(found) == 6
    assert all(count == pytest.approx(500, abs=5 * (3000 * 5 / 36) ** 0.5) for count in found.values())


@pytest.mark.parametrize("name", ["a.txt", "metadata.jsonl", "3_sks dog/b.caption"])
def test_a_caption_that_is_a_link_out_of_the_folder_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "photos"
    write(tmp_path / "secret.txt", lines({"file_name": "a.jpg", "text": "a password"}))
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / "secret.txt")
    with pytest.raises(BadInput, match=f"{name} is a link that leads out of .*, to .*secret.txt"):
        captions(folder, "a.jpg", "3_sks dog/b.jpg")
    with pytest.raises(BadInput, match="leads out"):
        find_captions(folder, ["a.jpg", "3_sks dog/b.jpg"])


def test_a_caption_that_is_a_link_within_the_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path / "real" / "words.txt", "sks dog on a beach")
    (tmp_path / "photos").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "a.txt").symlink_to("words.txt")
    assert captions(tmp_path / "photos", "a.jpg")[0] == {"a.jpg": Caption(text="sks dog on a beach")}


def test_captions_of_a_snapshot_in_the_hubs_cache_are_read(tmp_path: Path) -> None:
    write(tmp_path / "blobs" / "abc", "sks dog on a beach")
    snapshot = tmp_path / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    (snapshot / "a.txt").symlink_to("../../blobs/abc")
    assert captions(snapshot, "a.jpg")[0] == {"a.jpg": Caption(text="sks dog on a beach")}


def test_a_line_of_metadata_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "metadata.jsonl", "[" * 100_000 + "]" * 100_000)
    with pytest.raises(BadInput, match=r"line 1 of metadata.jsonl is not JSON"):
        captions(tmp_path, "a.jpg")
