"""What every object store promises: write-once keys, URLs that allow one thing for a while, attested bytes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from gangline.adapters.objects_local import ROUTE, LocalObjects
from gangline.core.errors import BadInput, Damaged, Denied, NotFound
from gangline.ports.objects import Stat

BYTES = b"a checkpoint"
SHA256 = hashlib.sha256(BYTES).hexdigest()
KEY = "projects/p/jobs/j/attempts/a/output/w.safetensors"


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path, "secret")


def put(objects: LocalObjects, content: bytes = BYTES, *, now_ms: int = 0, **changes: str) -> None:
    """Use a URL that was signed at time 0 for a second, with parts of it changed."""
    url = objects.sign_put(KEY, bytes=len(BYTES), sha256=SHA256, now_ms=0, seconds=1)
    use(objects, "PUT", url, content, now_ms=now_ms, **changes)


def use(objects: LocalObjects, method: str, url: str, content: bytes, *, now_ms: int = 0, **changes: str) -> None:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    key = query.get("key", unquote(parts.path.removeprefix(ROUTE)))
    what = query.get("what", "")
    objects.check(method, key, what, int(query["expires"]), query["signature"], now_ms)

    async def body() -> AsyncIterator[bytes]:
        for byte in content:
            yield bytes([byte])

    asyncio.run(objects.receive(key, what, body()))


def test_what_was_put_is_there_and_attested(objects: LocalObjects) -> None:
    assert objects.stat(KEY) is None
    put(objects)
    assert objects.stat(KEY) == Stat(bytes=len(BYTES), sha256=SHA256)
    assert objects.read(KEY) == BYTES


def test_putting_the_same_again_is_no_error(objects: LocalObjects) -> None:
    put(objects)
    put(objects)
    assert objects.read(KEY) == BYTES


@pytest.mark.parametrize("content", [b"", BYTES[:-1], BYTES + b"!", b"A checkpoint"])
def test_other_bytes_than_those_signed_for_leave_nothing(objects: LocalObjects, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Damaged):
        put(objects, content)
    assert objects.stat(KEY) is None
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_key_that_is_taken_keeps_its_bytes(objects: LocalObjects) -> None:
    put(objects)
    other = b"other bytes"
    url = objects.sign_put(KEY, bytes=len(other), sha256=hashlib.sha256(other).hexdigest(), now_ms=0, seconds=1)
    with pytest.raises(BadInput):
        use(objects, "PUT", url, other)
    assert objects.read(KEY) == BYTES


def test_a_crash_before_the_attestation_does_not_open_the_key(objects: LocalObjects, tmp_path: Path) -> None:
    put(objects)
    (tmp_path / "attested" / KEY).unlink()
    other = b"other bytes!"
    url = objects.sign_put(KEY, bytes=len(other), sha256=hashlib.sha256(other).hexdigest(), now_ms=0, seconds=1)
    with pytest.raises(BadInput):
        use(objects, "PUT", url, other)
    put(objects)
    assert objects.stat(KEY) == Stat(bytes=len(BYTES), sha256=SHA256)


def test_an_expired_url_is_refused(objects: LocalObjects) -> None:
    with pytest.raises(Denied, match="expired"):
        put(objects, now_ms=1001)


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "0" * 64},
        {"key": "projects/q/x"},
        {"expires": "999999"},
        {"what": f"99-{SHA256}"},
    ],
)
def test_a_url_with_anything_changed_is_refused(objects: LocalObjects, changes: dict[str, str]) -> None:
    with pytest.raises(Denied, match="signature"):
        put(objects, **changes)


def test_a_url_to_read_does_not_write(objects: LocalObjects) -> None:
    with pytest.raises(Denied):
        use(objects, "PUT", objects.sign_get(KEY, now_ms=0, seconds=1), BYTES)


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "a/../../b", "a\\b", "", "a\x00b"])
def test_a_key_stays_in_the_store(objects: LocalObjects, key: str) -> None:
    with pytest.raises(NotFound):
        objects.stat(key)
    with pytest.raises(NotFound):
        objects.locate(key)


def test_deleting_twice_is_no_error(objects: LocalObjects) -> None:
    put(objects)
    objects.delete(KEY)
    objects.delete(KEY)
    assert objects.stat(KEY) is None
    put(objects)


def test_what_a_killed_server_was_receiving_is_swept(tmp_path: Path) -> None:
    LocalObjects(tmp_path, "secret")
    (tmp_path / "incoming" / "left").write_bytes(b"half")
    LocalObjects(tmp_path, "secret")
    assert list((tmp_path / "incoming").iterdir()) == []
