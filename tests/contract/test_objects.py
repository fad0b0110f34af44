"""What every object store promises: write-once keys, URLs that allow one thing for a while, uploads that only the server
completes. Held by the folder behind the real HTTP application, and by a real S3 server."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import Abilities, find_abilities
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.adapters.store.sqlite import SqliteStore
from gangline.api.answers import problems
from gangline.api.object_routes import object_routes
from gangline.core.errors import BadInput, NotFound
from gangline.core.files import PART_BYTES, Signed, attestations
from gangline.ports.objects import Objects, UploadPart
from tests.servers import served

BYTES = b"a checkpoint"
FOLDER = "projects/p/jobs/j/attempts/a"
KEY = f"{FOLDER}/output/w ü+1%25.safetensors"
TAKEN, REFUSED = 412, range(400, 500)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Reached:
    """A store, and how others than its server reach it."""

    objects: Objects
    http: httpx.Client

    def sign(self, content: bytes = BYTES, key: str = KEY, ago_s: float = 0) -> Signed:
        now_ms = time.time_ns() // 1_000_000 - round(ago_s * 1000)
        return self.objects.sign_put(key, bytes=len(content), sha256=sha256(content), now_ms=now_ms, seconds=60)

    def sign_part(self, upload: str, number: int, content: bytes, key: str = KEY) -> Signed:
        now_ms = time.time_ns() // 1_000_000
        return self.objects.sign_part(key, upload, number, part(content), now_ms=now_ms, seconds=60)

    def put(self, signed: Signed, content: bytes = BYTES) -> int:
        """The status. The length is that of the content: nobody is trusted to send the one that was signed."""
        headers = signed.headers | {"Content-Length": str(len(content))}
        return self.http.put(signed.url, content=content, headers=headers).status_code

    def put_parts(self, upload: str, contents: list[bytes], key: str = KEY) -> None:
        for number, content in enumerate(contents, 1):
            assert self.put(self.sign_part(upload, number, content, key), content) < 300

    def get(self, key: str = KEY, ago_s: float = 0) -> httpx.Response:
        now_ms = time.time_ns() // 1_000_000 - round(ago_s * 1000)
        signed = self.objects.sign_get(key, now_ms=now_ms, seconds=60)
        return self.http.get(signed.url, headers=signed.headers)


def part(content: bytes) -> UploadPart:
    return UploadPart(len(content), sha256(content))


@pytest.fixture(scope="module")
def abilities(bucket: S3Bucket) -> Abilities:
    return find_abilities(Wire(bucket))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reached]:
    if request.param == "folder":
        with folder_store(tmp_path) as reached:
            yield reached
    else:
        bucket: S3Bucket = request.getfixturevalue("bucket")
        with httpx.Client() as http:
            wire = Wire(replace(bucket, prefix=f"tests/{tmp_path.name}"))
            yield Reached(S3Objects(wire, request.getfixturevalue("abilities")), http)


@contextmanager
def folder_store(folder: Path) -> Iterator[Reached]:
    app, objects = FastAPI(), LocalObjects(folder / "store", "secret")
    problems.install(app)
    app.include_router(object_routes(objects, SqliteStore(folder / "db.sqlite")))
    with served(app) as url, httpx.Client(base_url=url) as http:
        yield Reached(objects, http)


# One request


def test_what_was_put_is_there_and_attested(store: Reached) -> None:
    assert store.objects.stat(KEY) is None
    assert store.put(store.sign()) < 300
    found = store.objects.stat(KEY)
    assert found and (found.bytes, found.sha256) == (len(BYTES), sha256(BYTES))
    assert store.objects.read(KEY) == store.get().content == BYTES
    assert store.objects.read_back(KEY) == sha256(BYTES)
    assert b"".join(store.objects.chunks(KEY)) == BYTES


def test_putting_the_same_again_is_no_error_or_finds_the_key_taken(store: Reached) -> None:
    signed = store.sign()
    assert store.put(signed) < 300
    assert store.put(signed) in (200, 201, TAKEN)
    assert store.objects.read(KEY) == BYTES


@pytest.mark.parametrize("content", [b"", BYTES[:-1], BYTES + b"!", b"A checkpoint"])
def test_other_bytes_than_those_signed_for_leave_nothing(store: Reached, content: bytes) -> None:
    assert store.put(store.sign(), content) in REFUSED
    assert store.objects.stat(KEY) is None
    assert list(store.objects.list("projects")) == []


def test_what_is_asked_at_once_is_answered_in_order_and_an_error_is_raised(store: Reached) -> None:
    keys = [f"{FOLDER}/{number}" for number in range(20)]
    for key in keys[::2]:
        store.objects.write(key, key.encode())
    found = store.objects.at_once(partial(store.objects.stat, key) for key in keys)
    assert [each is not None for each in found] == [True, False] * 10
    with pytest.raises(NotFound):
        store.objects.at_once(partial(store.objects.read, key) for key in keys)


def test_a_key_that_is_taken_keeps_its_bytes(store: Reached) -> None:
    other = b"other bytes"
    signed = store.sign(other)
    assert store.put(store.sign()) < 300
    assert store.put(signed, other) == TAKEN
    assert store.put(store.sign(other), other) == TAKEN
    assert store.objects.read(KEY) == BYTES


def test_an_expired_url_is_refused(store: Reached) -> None:
    assert store.put(store.sign(ago_s=100)) == 403
    assert store.objects.stat(KEY) is None
    assert store.put(store.sign()) < 300
    assert store.get(ago_s=100).status_code == 403


def altered(old: str, new: str) -> Callable[[Signed], Signed]:
    def alter(signed: Signed) -> Signed:
        assert old in signed.url
        return replace(signed, url=signed.url.replace(old, new))

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        altered("/jobs/j/", "/jobs/k/"),
        altered("/p/", "/q/"),
        lambda signed: replace(signed, url=signed.url.partition("?")[0]),
        lambda signed: replace(signed, url=signed.url[:-1] + ("0" if signed.url[-1] != "0" else "1")),
    ],
)
def test_a_url_with_anything_changed_is_refused(store: Reached, alter: Callable[[Signed], Signed]) -> None:
    assert store.put(alter(store.sign())) in REFUSED
    assert list(store.objects.list("projects")) == []


def test_a_url_to_read_does_not_write(store: Reached) -> None:
    signed = store.objects.sign_get(KEY, now_ms=time.time_ns() // 1_000_000, seconds=60)
    assert store.put(signed) in REFUSED
    assert store.objects.stat(KEY) is None


def test_a_url_to_write_does_not_read(store: Reached) -> None:
    signed = store.sign()
    store.put(signed)
    assert store.http.get(signed.url).status_code in REFUSED


# What the server itself does


def test_what_the_server_wrote_is_there_and_its_key_is_taken(store: Reached) -> None:
    store.objects.write(KEY, BYTES)
    store.objects.write(KEY, BYTES)
    with pytest.raises(BadInput):
        store.objects.write(KEY, b"other bytes")
    assert store.objects.read(KEY) == BYTES


def test_what_is_not_there_is_not_found(store: Reached) -> None:
    for read in (store.objects.read, store.objects.read_back, lambda key: list(store.objects.chunks(key))):
        with pytest.raises(NotFound):
            read(KEY)
    assert store.get().status_code == 404


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "a/../../b", "a\\b", "", "a\x00b"])
def test_a_key_stays_in_the_store(store: Reached, key: str) -> None:
    with pytest.raises(NotFound):
        store.objects.stat(key)
    with pytest.raises(NotFound):
        store.objects.read(key)


def test_deleting_what_is_gone_is_no_error(store: Reached) -> None:
    store.put(store.sign())
    store.objects.delete([KEY, f"{KEY}-2"])
    store.objects.delete([KEY])
    store.objects.delete([])
    assert store.objects.stat(KEY) is None
    assert store.put(store.sign()) < 300


def test_a_list_has_all_that_lies_below_a_folder_and_nothing_else(store: Reached) -> None:
    names = {f"{FOLDER}/{name}" for name in ("logs/1", "logs/2", "output/ü [1]#{x}~'.png", "output/100%25", "x")}
    for name in (*names, f"{FOLDER}2/x", "projects/p/blobs/x"):
        store.objects.write(name, b"x")
    assert set(store.objects.list(FOLDER)) == names
    assert set(store.objects.sizes(FOLDER)) == {(name, 1) for name in names}
    assert set(store.objects.list(f"{FOLDER}/logs")) == {f"{FOLDER}/logs/1", f"{FOLDER}/logs/2"}
    assert list(store.objects.list(f"{FOLDER}/none")) == []


def test_a_list_of_no_folder_has_all_and_every_name_is_taken_once(store: Reached) -> None:
    assert store.objects.creates_only
    store.objects.write("claims/1.json", BYTES)
    assert "claims/1.json" in set(store.objects.list(""))
    with pytest.raises(BadInput):
        store.objects.write("claims/1.json", b"another's")
    store.objects.delete(["claims/1.json"])


def test_a_list_has_as_many_pages_as_it_needs(store: Reached) -> None:
    names = {f"{FOLDER}/logs/{number:04d}" for number in range(1010)}
    for name in names:
        store.objects.write(name, b"x")
    assert set(store.objects.list(FOLDER)) == names
    store.objects.delete(sorted(names))
    assert list(store.objects.list(FOLDER)) == []


# In parts


CONTENTS = [b"a" * PART_BYTES, b"b" * PART_BYTES, b"the rest"]


def test_a_large_file_goes_up_in_parts_in_any_order_and_is_attested_by_them(store: Reached) -> None:
    assert store.objects.in_parts(PART_BYTES + 1) and not store.objects.in_parts(PART_BYTES)
    upload = store.objects.begin(KEY)
    assert store.objects.parts(KEY, upload) == {}
    for number in (3, 1, 2):
        assert store.put(store.sign_part(upload, number, CONTENTS[number - 1]), CONTENTS[number - 1]) < 300
    here = store.objects.parts(KEY, upload)
    assert here and all(here[number].is_as(part(content)) for number, content in enumerate(CONTENTS, 1))
    assert store.objects.stat(KEY) is None
    store.objects.complete(KEY, upload, [part(content) for content in CONTENTS])
    found, whole = store.objects.stat(KEY), b"".join(CONTENTS)
    assert found and found.bytes == len(whole)
    assert found.sha256 in attestations(sha256(whole), tuple(sha256(content) for content in CONTENTS))
    assert store.objects.read_back(KEY) == sha256(whole) == sha256(store.get().content)
    assert store.objects.parts(KEY, upload) is None and store.objects.uploads(KEY) == []


@pytest.mark.parametrize("content", [b"", b"the res", b"the rest!", b"the Rest"])
def test_a_part_of_other_bytes_than_those_signed_for_is_refused(store: Reached, content: bytes) -> None:
    upload = store.objects.begin(KEY)
    signed = store.sign_part(upload, 1, b"the rest")
    assert store.put(signed, content) in REFUSED
    assert store.objects.parts(KEY, upload) == {}
    assert store.put(signed, b"the rest") < 300
    assert store.put(signed, content) in REFUSED
    assert store.put(signed, b"the rest") < 300
    store.objects.complete(KEY, upload, [part(b"the rest")])
    assert store.objects.read(KEY) == b"the rest"


@pytest.mark.parametrize(
    "declared", [[b"one"], [b"one", b"two", b"three"], [b"two", b"one"], [b"one", b"two!"], [b"one", b"owt"]]
)
def test_an_upload_becomes_an_object_of_what_was_declared_or_of_nothing(store: Reached, declared: list[bytes]) -> None:
    upload = store.objects.begin(KEY)
    store.put_parts(upload, [b"one" + b"1" * (5 << 20), b"two"])
    store.objects.complete(KEY, upload, [part(content) for content in declared])
    assert store.objects.stat(KEY) is None
    store.objects.complete(KEY, upload, [part(b"one" + b"1" * (5 << 20)), part(b"two")])
    assert store.objects.stat(KEY) is not None


def test_the_url_of_a_part_completes_nothing_and_lists_nothing(store: Reached) -> None:
    upload = store.objects.begin(KEY)
    signed = store.sign_part(upload, 1, BYTES)
    store.put(signed)
    for method in ("POST", "GET", "DELETE"):
        answer = store.http.request(method, signed.url, headers=signed.headers, content=BYTES)
        assert answer.status_code in REFUSED
    assert store.objects.stat(KEY) is None and store.objects.parts(KEY, upload) is not None


def test_the_url_of_a_part_serves_no_other_part_or_upload(store: Reached) -> None:
    first, second = store.objects.begin(KEY), store.objects.begin(KEY)
    signed = store.sign_part(first, 1, BYTES)
    assert store.put(replace(signed, url=signed.url.replace(first, second))) in REFUSED
    assert store.objects.parts(KEY, second) == {}


def test_an_upload_that_has_ended_takes_no_part(store: Reached) -> None:
    for end in (
        lambda upload: store.objects.abort(KEY, upload),
        lambda upload: store.objects.complete(KEY, upload, [part(BYTES)]),
    ):
        upload = store.objects.begin(KEY)
        late = store.sign_part(upload, 1, BYTES)
        store.put(late)
        end(upload)
        assert store.put(late) == 404
    assert store.objects.read(KEY) == BYTES


def test_an_upload_does_not_replace_what_is_there(store: Reached) -> None:
    upload = store.objects.begin(KEY)
    store.put_parts(upload, [b"other bytes"])
    store.put(store.sign())
    store.objects.complete(KEY, upload, [part(b"other bytes")])
    assert store.objects.read(KEY) == BYTES
    store.objects.abort(KEY, upload)
    assert store.objects.uploads(KEY) == []


def test_completing_again_is_no_error(store: Reached) -> None:
    upload = store.objects.begin(KEY)
    store.put_parts(upload, [BYTES])
    for _ in range(2):
        store.objects.complete(KEY, upload, [part(BYTES)])
    assert store.objects.read(KEY) == BYTES


def test_an_abort_leaves_nothing_and_again_is_no_error(store: Reached) -> None:
    upload, other = store.objects.begin(KEY), store.objects.begin(f"{KEY}2")
    store.put_parts(upload, [BYTES])
    assert store.objects.uploads(KEY) == [upload]
    for _ in range(2):
        store.objects.abort(KEY, upload)
    assert store.objects.parts(KEY, upload) is None and store.objects.uploads(KEY) == []
    store.objects.complete(KEY, upload, [part(BYTES)])
    assert list(store.objects.list("projects")) == []
    assert store.objects.uploads(f"{KEY}2") == [other]


def test_the_server_itself_may_put_parts_until_the_upload_has_ended(store: Reached) -> None:
    upload, contents = store.objects.begin(KEY), [b"1" * PART_BYTES, b"two"]
    for number, content in enumerate(contents, 1):
        for _ in range(2):
            store.objects.put_part(KEY, upload, number, content)
    store.objects.complete(KEY, upload, [part(content) for content in contents])
    assert store.objects.read_back(KEY) == sha256(b"".join(contents))
    with pytest.raises(NotFound):
        store.objects.put_part(KEY, upload, 1, contents[0])


def test_an_empty_file_goes_up_in_either_way(store: Reached) -> None:
    assert store.put(store.sign(b""), b"") < 300
    upload = store.objects.begin(f"{KEY}2")
    store.put_parts(upload, [b""], key=f"{KEY}2")
    store.objects.complete(f"{KEY}2", upload, [part(b"")])
    assert store.objects.read(KEY) == store.objects.read(f"{KEY}2") == b""


# The folder


def test_a_crash_before_the_attestation_does_not_open_the_key(tmp_path: Path) -> None:
    with folder_store(tmp_path) as store:
        store.put(store.sign())
        (tmp_path / "store" / "attested" / KEY).unlink()
        assert store.put(store.sign(b"other bytes!"), b"other bytes!") == TAKEN
        assert store.put(store.sign()) < 300
        found: Any = store.objects.stat(KEY)
        assert found.sha256 == sha256(BYTES)


def test_what_a_killed_server_was_receiving_is_swept(tmp_path: Path) -> None:
    LocalObjects(tmp_path, "secret")
    (tmp_path / "incoming" / "left").write_bytes(b"half")
    LocalObjects(tmp_path, "secret")
    assert list((tmp_path / "incoming").iterdir()) == []


@pytest.mark.parametrize("key", [f"{FOLDER}/output", f"{KEY}/x"])
def test_a_folder_store_refuses_a_name_that_is_a_folder_or_lies_below_a_file(tmp_path: Path, key: str) -> None:
    with folder_store(tmp_path) as store:
        assert store.put(store.sign()) == 201
        signed = store.sign(key=key)
        answer = store.http.put(signed.url, content=BYTES, headers=signed.headers)
        assert answer.status_code == TAKEN and "cannot be both a file and a folder" in answer.text
        assert store.objects.stat(key) is None
        with pytest.raises(BadInput, match="cannot be both"):
            store.objects.write(key, BYTES)
        store.objects.delete([key])
        assert list(store.objects.list("")) == [KEY]
        assert list((tmp_path / "store" / "incoming").iterdir()) == []
