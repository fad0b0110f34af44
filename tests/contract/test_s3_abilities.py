"""What a store can do is found out by asking it; a bucket that cannot be used is refused with a sentence and a hint."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials

from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import CHECKSUM, RIGHT, Abilities, checksum, find_abilities
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.compose.server import make_objects
from gangline.compose.settings import read_server_settings
from gangline.core.errors import GanglineError, Unreachable, UserError
from tests.servers import ACCESS_KEY, READER, READER_KEY, SECRET_KEY, Lesser, before, s3_server

ALL = Abilities(create_only=True, completes_once=True, checks=True, attests=True, measures=True)


def test_this_store_does_all_that_is_asked_for(bucket: S3Bucket) -> None:
    assert find_abilities(Wire(bucket)) == ALL
    assert ALL.lacking() == []


def test_what_was_tried_leaves_nothing(bucket: S3Bucket) -> None:
    wire = Wire(replace(bucket, prefix="tried"))
    objects = S3Objects(wire, find_abilities(wire))
    assert list(objects.list("probes")) == []
    assert b"<Upload>" not in wire.ask("GET", query={"uploads": "", "prefix": "tried/"}).content


def test_a_store_that_ignores_create_only_makes_every_file_an_upload_in_parts(bucket: S3Bucket) -> None:
    with before(Lesser(bucket, frozenset({"if-none-match"}))) as seen:
        wire = Wire(seen)
        found = find_abilities(wire)
        assert (found.create_only, found.completes_once, found.checks) == (False, False, True)
        assert S3Objects(wire, found).in_parts(1)
        assert any("parts" in lack for lack in found.lacking())


def test_a_store_that_checks_nothing_attests_nothing_whatever_it_tells(bucket: S3Bucket) -> None:
    with before(Lesser(bucket, frozenset({CHECKSUM}))) as seen:
        found = find_abilities(Wire(seen))
    assert (found.checks, found.attests) == (False, False)
    with before(Lesser(bucket, frozenset({CHECKSUM}), attests=checksum(RIGHT))) as seen:
        found = find_abilities(Wire(seen))
    assert (found.checks, found.attests) == (False, False)


def test_a_store_that_tells_no_checksum_attests_nothing(bucket: S3Bucket) -> None:
    with before(Lesser(bucket, frozenset({"x-amz-checksum-mode"}), attests="")) as seen:
        found = find_abilities(Wire(seen))
    assert (found.checks, found.attests) == (True, False)


@pytest.mark.parametrize(
    ("change", "sentence", "hint"),
    [
        ({"name": "no-such-bucket"}, "there is no bucket no-such-bucket at 127.0.0.1", "GANGLINE_OBJECTS"),
        ({"credentials": Credentials("nobody", SECRET_KEY)}, "does not know the access key", "AWS_ACCESS_KEY_ID"),
        ({"credentials": Credentials(ACCESS_KEY, "wrong")}, "rejects the signature", "AWS_SECRET_ACCESS_KEY"),
        (
            {"credentials": Credentials(READER, READER_KEY)},
            "the access key may not write in the bucket",
            "must be allowed",
        ),
    ],
)
def test_a_bucket_that_cannot_be_used_says_why(
    bucket: S3Bucket, change: dict[str, Any], sentence: str, hint: str
) -> None:
    with pytest.raises(UserError) as refusal:
        find_abilities(Wire(replace(bucket, **change)))
    assert sentence in refusal.value.message and hint in refusal.value.hint


def test_nobody_there_is_unreachable(bucket: S3Bucket) -> None:
    with pytest.raises(Unreachable, match="does not answer") as refusal:
        find_abilities(Wire(replace(bucket, endpoint="http://127.0.0.1:9")))
    assert "AWS_ENDPOINT_URL" in refusal.value.hint


def test_what_is_no_s3_store_is_told_so(tmp_path: Path, bucket: S3Bucket) -> None:
    from fastapi import FastAPI

    from tests.servers import served

    app = FastAPI()
    app.add_api_route("/{path:path}", lambda path: {"some": "page"})
    with served(app) as url, pytest.raises(UserError, match="does not answer as an S3 store does"):
        find_abilities(Wire(replace(bucket, endpoint=url)))


@pytest.mark.parametrize(("ahead_s", "which"), [(-3600, "behind")])
def test_a_clock_that_is_off_is_named(bucket: S3Bucket, ahead_s: int, which: str) -> None:
    wire = Wire(bucket, lambda: time.time_ns() // 1_000_000 + ahead_s * 1000)
    with pytest.raises(UserError, match=f"(3599|3600|3601) s {which}") as refusal:
        find_abilities(wire)
    assert "NTP" in refusal.value.hint


def test_a_secret_is_in_no_repr_and_in_no_error(bucket: S3Bucket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wire = Wire(bucket)
    objects = S3Objects(Wire(replace(bucket, credentials=Credentials(ACCESS_KEY, f"{SECRET_KEY}, altered"))), ALL)
    said = [repr(bucket), repr(wire), repr(objects), str(vars(objects))]
    for ask in (
        lambda: objects.stat("a"),
        lambda: objects.read("a"),
        lambda: objects.write("a", b""),
        lambda: objects.begin("a"),
        lambda: list(objects.list("a")),
        lambda: objects.delete(["a"]),
    ):
        with pytest.raises(Unreachable) as refusal:
            ask()
        said += [str(refusal.value), refusal.value.hint, repr(refusal.value.__cause__)]
    assert not any(SECRET_KEY in text or "Signature=" in text for text in [*said, caplog.text])


# After the start


def test_a_store_that_goes_away_is_unreachable_and_has_everything_when_it_is_back(tmp_path: Path) -> None:
    with s3_server(tmp_path) as bucket:
        objects = S3Objects(Wire(bucket), ALL)
        objects.write("a/b", b"bytes")
    for ask in (lambda: objects.stat("a/b"), lambda: objects.read("a/b"), lambda: objects.begin("a/b")):
        with pytest.raises(Unreachable):
            ask()
    with s3_server(tmp_path) as again:
        assert S3Objects(Wire(again), ALL).read("a/b") == b"bytes"


# The settings


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, bucket: S3Bucket) -> Iterator[pytest.MonkeyPatch]:
    for name, value in {
        "GANGLINE_OBJECTS": f"s3://{bucket.name}/below/here",
        "AWS_ACCESS_KEY_ID": bucket.credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.credentials.secret_key,
        "AWS_ENDPOINT_URL": bucket.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_environment_names_a_bucket_and_everything_lies_below_its_prefix(
    surroundings: pytest.MonkeyPatch, bucket: S3Bucket, tmp_path: Path
) -> None:
    objects = make_objects(read_server_settings({"server.home": tmp_path}).settings.server, "secret")
    objects.write("projects/p/x", b"bytes")
    assert S3Objects(Wire(bucket), ALL).read("below/here/projects/p/x") == b"bytes"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("GANGLINE_OBJECTS", "http://x/y", "which is not a bucket"),
        ("GANGLINE_OBJECTS", "s3:///y", "which is not a bucket"),
        ("GANGLINE_OBJECTS", "s3://b/y?z", "which is not a bucket"),
        ("AWS_ACCESS_KEY_ID", "", "no key was found for s3://"),
        ("AWS_SECRET_ACCESS_KEY", "", "cannot be read: Partial credentials"),
        ("AWS_ENDPOINT_URL", "no address", "AWS_ENDPOINT_URL is not a URL"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    surroundings: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    surroundings.setenv(name, value)
    with pytest.raises(GanglineError, match=sentence) as refusal:
        make_objects(read_server_settings({"server.home": tmp_path}).settings.server, "secret")
    assert refusal.value.hint
