"""A bucket that an operator named as a source, on a real S3 server: photos come from below its prefix, with its key and no other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from threading import Thread

import pytest

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.adapters.places.bucket import BucketKey, SourceBucket
from gangline.adapters.places.fetcher import PlacesFetcher
from gangline.adapters.places.web import Web
from gangline.compose.places import LOOK, make_fetcher
from gangline.core.errors import BadInput, Unreachable, UserError
from gangline.core.places.places import PhotoSource, parse_places
from gangline.core.server.settings import ServerSettings, merge_file
from gangline.core.server.sources import FetchingSettings
from tests.servers import ACCESS_KEY, READER, READER_KEY, SECRET_KEY
from tests.service.places.site import packed, picture

DOGS = PhotoSource(name="dogs", place="s3://gangline/dogs/", projects=("kennel",))


def go_on() -> None:
    """It is still wanted."""


def opened(bucket: S3Bucket, access: str = ACCESS_KEY, secret: str = SECRET_KEY) -> SourceBucket:
    return SourceBucket(bucket.name, BucketKey(access=access, secret=secret, endpoint=bucket.endpoint))


def fetcher(bucket: S3Bucket, folder: Path, **settings: int) -> PlacesFetcher:
    sources = {"dogs": DOGS}
    wanted = FetchingSettings(**settings)
    return PlacesFetcher(folder, wanted, sources, Web(), lambda source, name: opened(bucket), LOOK)


@pytest.fixture
def dogs(bucket: S3Bucket) -> S3Bucket:
    files = {"1.png": picture(), "1.txt": b"sks dog", "2.png": picture("blue"), "10_sks dog/3.png": picture("green")}
    there = opened(bucket)
    for name, content in files.items():
        there.put(f"dogs/timber/{name}", [content])
    there.put("dogs/timber.zip", [packed({"a.png": picture()})])
    there.put("dogsled/secret.png", [picture()])
    return bucket


def bring(fetcher: PlacesFetcher, address: str, project: str = "kennel"):
    places = parse_places(address)
    fetcher.check(project, places)
    steps = list(fetcher.bring("job", project, places, go_on))
    return steps, fetcher.look("job", places, go_on)


def test_photos_and_captions_below_a_prefix_are_fetched(dogs: S3Bucket, tmp_path: Path) -> None:
    ours = fetcher(dogs, tmp_path)
    steps, found = bring(ours, "s3://gangline/dogs/timber/")
    assert [(step.done, step.of) for step in steps] == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert (found.photos, found.captions) == (("1.png", "10_sks dog/3.png", "2.png"), ("1.txt",))
    with ours.open("job", "2.png") as content:
        assert content.read() == picture("blue")
    ours.forget("job")
    ours.forget("job")
    assert list(tmp_path.iterdir()) == []


def test_a_zip_in_a_bucket_is_unpacked(dogs: S3Bucket, tmp_path: Path) -> None:
    assert bring(fetcher(dogs, tmp_path), "s3://gangline/dogs/timber.zip")[1].photos == ("a.png",)


@pytest.mark.parametrize(
    ("address", "project"),
    [("s3://gangline/dogsled/", "kennel"), ("s3://gangline/dogs/timber/", "another"), ("s3://other/dogs/", "kennel")],
)
def test_what_the_source_does_not_cover_is_not_asked(
    dogs: S3Bucket, tmp_path: Path, address: str, project: str
) -> None:
    with pytest.raises(BadInput, match="has no source for"):
        bring(fetcher(dogs, tmp_path), address, project)
    with pytest.raises(BadInput, match="has no source for"):  # the operator may take a source away meanwhile
        list(fetcher(dogs, tmp_path).bring("job", project, parse_places(address), go_on))


@pytest.mark.parametrize("address", ["s3://gangline/dogs/nobody/", "s3://gangline/dogs/nobody.zip"])
def test_what_is_not_there_is_said_by_its_address(dogs: S3Bucket, tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInput, match=f"there is nothing at {address}"):
        bring(fetcher(dogs, tmp_path), address)


def test_limits_of_a_folder_hold_before_a_file_is_fetched(dogs: S3Bucket, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds more than 3 files"):
        bring(fetcher(dogs, tmp_path, files_max=3), "s3://gangline/dogs/timber/")


def test_a_key_that_is_refused_is_no_secret_and_final(dogs: S3Bucket, tmp_path: Path) -> None:
    for access, secret in ((ACCESS_KEY, "another-secret"), ("nobody", SECRET_KEY), ("", "")):
        with pytest.raises(BadInput) as refused:
            opened(dogs, access, secret).fetch(
                "dogs/timber/1.png", tmp_path / "x", bytes_max=10**6, seconds=10, check=go_on
            )
        assert "the key of this source may not open" in refused.value.message
        assert SECRET_KEY not in f"{refused.value.message}{refused.value.hint}"
    with pytest.raises(BadInput):
        opened(dogs, READER, READER_KEY).put("dogs/new.png", [b"x"])


def test_a_store_that_is_away_may_come_back(tmp_path: Path) -> None:
    away = SourceBucket("gangline", BucketKey(access="a", secret="b", endpoint="http://127.0.0.1:9"))
    with pytest.raises(Unreachable, match="cannot be reached"):
        away.fetch("x.png", tmp_path / "x", bytes_max=10, seconds=10, check=go_on)


def test_no_key_of_the_environment_is_used(dogs: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own key opens its own bucket, not a user's address."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with pytest.raises(BadInput):
        opened(dogs, "", "").fetch("dogs/timber/1.png", tmp_path / "x", bytes_max=10**6, seconds=10, check=go_on)


def test_long_objects_are_written_in_parts_and_read_back(bucket: S3Bucket, tmp_path: Path) -> None:
    there, piece = opened(bucket), os.urandom(1 << 20)
    there.put("dogs/long", (piece for _ in range(40)))
    assert there.fetch("dogs/long", tmp_path / "long", bytes_max=10**8, seconds=60, check=go_on) == 40 << 20
    assert (tmp_path / "long").read_bytes() == piece * 40
    with pytest.raises(BadInput, match="is larger than"):
        there.fetch("dogs/long", tmp_path / "long", bytes_max=10**6, seconds=60, check=go_on)
    assert "dogs/long" in dict(there.list("dogs/"))


class Cutting(BaseHTTPRequestHandler):
    """A store whose connections end after a while; `version` is of the one object that it has."""

    content = os.urandom(2 << 20)
    version: Iterator[str]
    asked: list[tuple[int, str]]

    def do_GET(self) -> None:
        first = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        version, wanted = f'"{next(self.version)}"', self.headers.get("If-Match", "")
        self.asked.append((first, wanted))
        if wanted not in ("", version):
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        length = len(self.content)
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("ETag", version)
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.send_header("Content-Length", str(length - first))
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {first}-{length - 1}/{length}")
        self.end_headers()
        self.wfile.write(self.content[first : first + 200_000])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def cutting(versions: Iterator[str]) -> Iterator[tuple[SourceBucket, list[tuple[int, str]]]]:
    asked = list[tuple[int, str]]()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Cutting,), {"version": versions, "asked": asked}))
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    yield SourceBucket("kennel", BucketKey(endpoint=f"http://127.0.0.1:{server.server_address[1]}")), asked
    server.shutdown()
    serving.join(10)
    server.server_close()


def test_an_object_that_takes_more_than_one_request_goes_on_where_it_was(tmp_path: Path) -> None:
    with cutting(repeat("one")) as (there, asked):
        assert there.fetch("dog.zip", tmp_path / "got", bytes_max=10**8, seconds=60, check=go_on) == 2 << 20
    assert (tmp_path / "got").read_bytes() == Cutting.content
    assert len(asked) > 10 and asked[-1][1] == '"one"'


def test_an_object_that_changes_meanwhile_is_not_put_together_of_two(tmp_path: Path) -> None:
    with cutting(chain(["one"], repeat("two"))) as (there, _), pytest.raises(Unreachable, match="changed"):
        there.fetch("dog.zip", tmp_path / "got", bytes_max=10**8, seconds=60, check=go_on)


def test_a_bucket_is_asked_no_longer_for_what_nobody_wants_any_more(bucket: S3Bucket, tmp_path: Path) -> None:
    def cancel() -> None:
        raise Unreachable("nobody wants it")

    there = opened(bucket)
    there.put("dogs/long", (os.urandom(1 << 20) for _ in range(8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gangline.adapters.places.saving.ASK_S", 0.0)
        with pytest.raises(Unreachable, match="nobody wants it"):
            there.fetch("dogs/long", tmp_path / "long", bytes_max=10**8, seconds=60, check=cancel)


SETTINGS = """
[sources.dogs]
place = "s3://gangline/dogs/"
projects = ["kennel"]
key_env = "DOGS_KEY"
secret_env = "DOGS_SECRET"
endpoint = "{endpoint}"
"""


def settings_of(bucket: S3Bucket) -> ServerSettings:
    return merge_file(ServerSettings, SETTINGS.format(endpoint=bucket.endpoint), "gangline.toml").settings


def test_the_operator_names_the_keys_in_the_settings(
    dogs: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UserError, match="the source dogs names the variable DOGS_KEY, which the environment does not have"
    ):
        make_fetcher(tmp_path, settings_of(dogs))
    monkeypatch.setenv("DOGS_KEY", f"{READER}\n")
    monkeypatch.setenv("DOGS_SECRET", READER_KEY)
    found = bring(make_fetcher(tmp_path, settings_of(dogs)), "s3://gangline/dogs/timber/")[1]
    assert len(found.photos) == 3
