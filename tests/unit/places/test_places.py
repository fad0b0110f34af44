"""What a user may say of where photos lie, and which sources of the operator cover it."""

import pytest

from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path, partial_name
from gangline.core.places.places import (
    PhotoPlace,
    PhotoSource,
    file_names,
    names_places,
    parse_places,
    source_of,
    why_no_target,
)
from gangline.core.server.settings import ServerSettings, merge_file


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("s3://bucket/dogs/timber/", ["s3://bucket/dogs/timber/"]),
        ("s3://bucket/dogs/timber", ["s3://bucket/dogs/timber/"]),
        ("s3://bucket/dogs.zip", ["s3://bucket/dogs.zip"]),
        ("https://a.example/dogs.zip", ["https://a.example/dogs.zip"]),
        ({"url": "https://a.example/dogs.zip"}, ["https://a.example/dogs.zip"]),
        (
            ["https://a.example/1.jpg", {"url": "https://a.example/2.jpg", "caption": "sks dog"}],
            ["https://a.example/1.jpg", "https://a.example/2.jpg"],
        ),
    ],
)
def test_what_may_be_said(given: object, addresses: list[str]) -> None:
    assert names_places(given)
    assert [place.address for place in parse_places(given)] == addresses


def test_files_that_were_uploaded_are_no_places() -> None:
    assert not names_places([{"path": "a.png", "bytes": 1, "sha256": "0" * 64}])
    assert not names_places([]) and not names_places(None) and not names_places({"path": "a.png"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("dogs/", "is not an address that this server can fetch"),
        ("/etc", "is not an address that this server can fetch"),
        ("file:///etc/", "is not an address that this server can fetch"),
        ("gs://bucket/dogs/", "is not an address that this server can fetch"),
        ("http://2130706433/dogs.zip", "a number for its host"),
        ("https://me:secret@a.example/dogs.zip", "a user's name or password"),
        ("s3://bucket/", "is a whole bucket"),
        ("s3://bucket", "is a whole bucket"),
        ("s3://bucket/a/../b/", "is not a place in a bucket"),
        ("s3:///dogs/", "is not a place in a bucket"),
        ("s3://UPPER/dogs/", "is not a place in a bucket"),
        ("s3://bucket/a//b/", "is not a place in a bucket"),
        (
            ["https://a.example/dogs.zip", "https://a.example/1.jpg"],
            "holds many photos, so it must be the only address",
        ),
        (["s3://bucket/dogs/", "https://a.example/1.jpg"], "holds many photos, so it must be the only address"),
        (
            {"url": "https://a.example/dogs.zip", "caption": "x"},
            "a caption describes one photo, and https://a.example/dogs.zip holds many",
        ),
        ({"url": "https://a.example/1.jpg", "caption": 5}, "a caption is a text"),
        ({"url": "https://a.example/1.jpg", "caption": "a\nb"}, "a caption is a text"),
        ({"url": "https://a.example/1.jpg", "token": "x"}, "has no field token"),
        ({"url": 5}, "is not an address"),
        ([5, "https://a.example/1.jpg"], "is not an address"),
        (["https://a.example/1.jpg"] * 1001, "more than 1,000 URLs"),
    ],
)
def test_what_may_not(given: object, said: str) -> None:
    assert names_places(given)
    with pytest.raises(BadInput, match=said) as refused:
        parse_places(given)
    assert "secret" not in refused.value.message


def test_photos_are_named_as_their_addresses_end_and_no_two_alike() -> None:
    addresses = [
        "https://a/dog.JPG",
        "https://b/dog.png",
        "https://c/Dog.jpg",
        "https://d/view.php?id=3",
        "https://e/",
        "https://f/%2e%2e%2fetc",
        "https://g/a%20b.webp",
        "https://h/" + "x" * 500 + ".png",
        "https://i/a:b.png",
    ]
    found = file_names([PhotoPlace(address=each) for each in addresses])
    assert found == [
        "dog.jpg",
        "dog-2.png",
        "Dog-3.jpg",
        "view-php",
        "photo",
        "etc",
        "a b.webp",
        "x" * 200 + ".png",
        "ab.png",
    ]
    assert file_names([PhotoPlace(address="s3://bucket/a.zip")]) == ["a.zip"]


def test_a_name_is_as_long_as_a_disk_allows_in_bytes_keeps_its_ending_and_stays_different() -> None:
    """In letters of any script: those of two names here have 3 bytes each, and 4."""
    long = [f"https://a.example/{first}{letter * 150}.JPEG" for first in "ab" for letter in ("犬", "\N{DOG FACE}")]
    names = file_names([PhotoPlace(address=each) for each in long])
    assert len({name.lower().rpartition(".")[0] for name in names}) == len(names)
    for name, letter in zip(names, ("犬", "\N{DOG FACE}") * 2, strict=True):
        assert name.startswith(letter) and name.endswith(".jpeg") and "\N{REPLACEMENT CHARACTER}" not in name
        assert is_safe_path(name) and is_safe_path(partial_name(name))


@pytest.mark.parametrize("letter", ["x", "ä", "犬", "\N{DOG FACE}"])
def test_a_file_that_is_still_coming_has_a_name_that_a_disk_takes_and_the_end_of_its_own(letter: str) -> None:
    longest = letter * ((255 - len(".png")) // len(letter.encode())) + ".png"
    assert is_safe_path(longest) and is_safe_path(partial_name(longest))
    assert partial_name(longest).endswith(f"{letter}.png.partial")
    assert partial_name("a.png") == ".a.png.partial"


DOGS = PhotoSource(name="dogs", place="s3://bucket/dogs/", projects=("kennel",))
TIMBER = PhotoSource(name="timber", place="s3://bucket/dogs/timber", projects=("kennel",), deliver=True)
HUB = PhotoSource(name="hub", place="hf://kennel/", projects=("*",), deliver=True)
SOURCES = {each.name: each for each in (DOGS, TIMBER, HUB)}


def test_a_source_covers_what_lies_below_it_for_its_projects() -> None:
    assert source_of("s3://bucket/dogs/rex/", "kennel", SOURCES, "read") is DOGS
    assert source_of("s3://bucket/dogs/timber/", "kennel", SOURCES, "read") is TIMBER
    assert source_of("hf://kennel/timber", "other", SOURCES, "deliver") is HUB


@pytest.mark.parametrize(
    ("address", "project", "use"),
    [
        ("s3://bucket/dogs/", "other", "read"),
        ("s3://bucket/dogsled/", "kennel", "read"),
        ("s3://bucket/", "kennel", "read"),
        ("s3://another/dogs/", "kennel", "read"),
        ("s3://bucket/dogs/rex/", "kennel", "deliver"),
        ("hf://kennels/timber", "kennel", "deliver"),
    ],
)
def test_what_no_source_covers_is_refused_by_name(address: str, project: str, use) -> None:
    with pytest.raises(BadInput) as refused:
        source_of(address, project, SOURCES, use)
    assert address in refused.value.message and "gangline.toml" in refused.value.hint


@pytest.mark.parametrize("good", ["s3://bucket/results/", "s3://bucket/a", "hf://kennel/timber"])
def test_a_place_for_results(good: str) -> None:
    assert why_no_target(good) == ""


@pytest.mark.parametrize(
    "bad",
    ["", "s3://bucket", "s3://bucket/../x", "hf://kennel", "hf://a/b/c", "hf://../x", "https://a.example/", "/tmp"],
)
def test_what_is_none(bad: str) -> None:
    assert why_no_target(bad)


def test_an_operator_says_what_may_be_fetched_in_the_settings() -> None:
    text = """
[fetching]
networks = ["10.1.0.0/16"]
files_max = 50
[sources.dogs]
place = "s3://bucket/dogs/"
projects = ["kennel"]
key_env = "DOGS_KEY"
secret_env = "DOGS_SECRET"
"""
    found = merge_file(ServerSettings, text, "gangline.toml").settings
    assert found.fetching.networks == ("10.1.0.0/16",) and found.fetching.files_max == 50
    assert found.sources["dogs"].named("dogs") == DOGS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fetching]\nnetworks = ['10.1.0.1/16']", "networks"),
        ("[sources.dogs]\nplace = 'https://a/'\nprojects = ['p']", "place looks like"),
        ("[sources.dogs]\nplace = 's3://bucket/dogs/'", "names its place and its projects"),
        ("[sources.dogs]\nplace = 'hf://kennel/'\nprojects = ['p']", "deliver = true"),
        ("[sources.dogs]\nplaces = 's3://bucket/dogs/'", "did you mean place"),
    ],
)
def test_a_source_that_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        merge_file(ServerSettings, text, "gangline.toml")
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_names_stay_different_where_one_has_the_number_that_another_would_get() -> None:
    urls = ("https://a.example/a-3.png", "https://a.example/a.png", "https://a.example/b/a.png")
    found = file_names([PhotoPlace(address=url) for url in urls])
    assert found[:2] == ["a-3.png", "a.png"] and len(set(found)) == 3


def test_what_is_no_text_is_no_address() -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        parse_places(["https://a.example/\ud800.jpg"])


def test_an_address_is_understood_again_as_it_was_kept() -> None:
    longest = "s3://bucket/" + "a" * 987
    with pytest.raises(BadInput, match="is not a place in a bucket"):
        parse_places(f"{longest}a")
    (place,) = parse_places(longest)
    assert parse_places(place.address) == (place,)
