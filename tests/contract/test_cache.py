"""A node's cache on a real disk: what is linked is in use, what is locked is on its way, and workers of one machine share it."""

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event

import pytest

from gangline.adapters.host.cache import Cache
from gangline.adapters.transfer.partial import Partial
from gangline.adapters.transfer.transfer import HttpTransfer, NodesTransfer
from gangline.core.errors import Unreachable
from gangline.core.files import PART_BYTES, File, Signed
from tests.proxy import Proxy
from tests.transfer.conftest import Place, ended, make_transfer, place, transfer  # noqa: F401 - fixtures

KB = 1000


def put(cache: Cache, content: bytes, age_s: float = 0.0) -> File:
    file = File(path="w", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    at = cache.place(file.sha256)
    at.write_bytes(content)
    os.utime(at, (at.stat().st_mtime - age_s,) * 2)
    return file


def test_the_limit_holds_and_what_a_run_uses_stays_until_it_has_ended(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 10 * KB)
    oldest, old, new = (put(cache, bytes([age]) * 4 * KB, age) for age in (30, 20, 10))
    assert cache.link(oldest, tmp_path / "run" / "base" / "w")
    cache.make_room(2 * KB)
    assert [cache.place(file.sha256).exists() for file in (oldest, old, new)] == [True, False, True]
    (tmp_path / "run" / "base" / "w").unlink()
    cache.make_room(6 * KB)
    assert [cache.place(file.sha256).exists() for file in (oldest, new)] == [True, False], "it was used last"


def test_what_is_cut_short_on_the_disk_is_not_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10 * KB)
    file = put(cache, b"whole")
    cache.place(file.sha256).write_bytes(b"who")
    assert not cache.link(file, tmp_path / "run") and not cache.place(file.sha256).exists()
    assert not cache.link(file, tmp_path / "run")


def test_without_a_limit_half_of_what_is_free_may_be_used(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert 0.4 < Cache(tmp_path).limit_bytes / free < 0.6


def test_a_base_is_there_as_long_as_all_of_its_files_are(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10 * KB)
    unet, vae = put(cache, b"unet"), put(cache, b"vae")
    cache.remember("hub:a/b@c", (unet, vae))
    assert cache.bases() == Cache(tmp_path, 10 * KB).bases() == ("hub:a/b@c",)
    cache.place(vae.sha256).unlink()
    assert cache.bases() == ()


def test_a_download_under_way_is_no_waste_and_one_that_was_given_up_is(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 2 * KB)
    file = File(path="w", bytes=5 * KB, sha256="a" * 64)
    with Partial(cache.place(file.sha256), file, Event()):
        cache.make_room(0)
        assert list(tmp_path.glob("*.partial")) == list(tmp_path.glob(f".{file.sha256}*"))
        assert list(tmp_path.glob(".*.partial"))
    cache.make_room(0)
    assert not list(tmp_path.glob(".*.partial"))


def test_two_workers_that_want_the_same_file_at_once_fetch_it_once(
    place: Place,  # noqa: F811
    make_transfer: Callable[..., HttpTransfer],  # noqa: F811
) -> None:
    file, content = place.stored(2 * PART_BYTES + 5)
    to = place.folder / "cache" / file.sha256
    with Proxy(place.address, bytes_per_s=30e6) as proxy:
        signed = place.to_read(proxy, file)
        tasks = [make_transfer().download(signed, file, to, durable=True) for _ in range(3)]
        assert [ended(task) for task in tasks] == [None] * 3
        assert proxy.down.bytes == file.bytes
    assert to.read_bytes() == content and [path.name for path in to.parent.iterdir()] == [file.sha256]


def test_who_waits_for_anothers_download_goes_on_with_it_where_that_one_gave_up(
    place: Place,  # noqa: F811
    make_transfer: Callable[..., HttpTransfer],  # noqa: F811
) -> None:
    file, content = place.stored(2 * PART_BYTES + 5)
    to = place.folder / "cache" / file.sha256
    with Proxy(place.address, bytes_per_s=20e6) as proxy:
        first, second = make_transfer(), make_transfer()
        begun = first.download(place.to_read(proxy, file), file, to, durable=False)
        proxy.until(lambda there: there.down.bytes > PART_BYTES)
        waiting = second.download(place.to_read(proxy, file), file, to, durable=False)
        first.stop()
        assert isinstance(ended(begun), Unreachable)
        assert ended(waiting) is None
    assert to.read_bytes() == content


def test_who_waits_for_anothers_download_can_be_told_to_stop(tmp_path: Path) -> None:
    file = File(path="w", bytes=5 * KB, sha256="a" * 64)
    stopped = Event()
    stopped.set()
    with Partial(tmp_path / "w", file, Event()), pytest.raises(Unreachable):
        Partial(tmp_path / "w", file, stopped).__enter__()


def test_what_came_meanwhile_is_not_fetched_again(tmp_path: Path) -> None:
    content = Random(0).randbytes(KB)
    file = File(path="w", bytes=KB, sha256=hashlib.sha256(content).hexdigest())
    (tmp_path / "w").write_bytes(content)
    carrier = HttpTransfer("http://127.0.0.1:1", Random(0))
    assert ended(carrier.download(Signed(url="/nowhere"), file, tmp_path / "w", durable=True)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baked:
    """A cache beside one that is only read, which has `base` of the file `weights`."""

    cache: Cache
    weights: File
    content: bytes

    @property
    def place(self) -> Path:
        assert self.cache.read_only
        return self.cache.read_only / self.weights.sha256


@pytest.fixture
def baked(place: Place, tmp_path: Path) -> Baked:  # noqa: F811
    weights, content = place.stored(PART_BYTES + 5)
    read_only = Cache(tmp_path / "image")
    read_only.place(weights.sha256).write_bytes(content)
    read_only.remember("base", (weights,))
    os.utime(read_only.place(weights.sha256), (1, 1))
    return Baked(cache=Cache(tmp_path / "cache", 10 * KB, read_only=read_only.folder), weights=weights, content=content)


def as_it_was(path: Path) -> tuple[float, int, int]:
    found = path.stat()
    return found.st_mtime, found.st_nlink, found.st_mode


def test_a_base_of_the_cache_that_is_only_read_is_held_and_comes_without_the_network(
    baked: Baked,
    make_transfer: Callable[..., NodesTransfer],  # noqa: F811
    tmp_path: Path,
) -> None:
    cache, file, before = baked.cache, baked.weights, as_it_was(baked.place)
    assert cache.bases() == ("base",) and not cache.link(file, tmp_path / "run" / "w")
    copying = make_transfer(finds=cache.unchecked).download(
        Signed(url="/nowhere"), file, cache.place(file.sha256), durable=True
    )
    assert ended(copying) is None and cache.link(file, tmp_path / "run" / "w")
    assert (tmp_path / "run" / "w").read_bytes() == baked.content
    cache.remember("base", (file,))
    assert cache.bases() == ("base",)
    (tmp_path / "run" / "w").unlink()
    cache.make_room(10 * KB)
    assert not cache.place(file.sha256).exists(), "it is evicted like any other"
    assert cache.bases() == ("base",) and as_it_was(baked.place) == before, "and the one that is only read stays"


def test_a_damaged_file_of_the_cache_that_is_only_read_is_downloaded_instead(
    baked: Baked,
    place: Place,  # noqa: F811
    make_transfer: Callable[..., NodesTransfer],  # noqa: F811
) -> None:
    cache, file = baked.cache, baked.weights
    baked.place.write_bytes(baked.content[:-1] + b"\0")
    with Proxy(place.address) as proxy:
        task = make_transfer(finds=cache.unchecked).download(
            place.to_read(proxy, file), file, cache.place(file.sha256), durable=True
        )
        assert ended(task) is None and proxy.down.bytes >= file.bytes
    assert cache.place(file.sha256).read_bytes() == baked.content
    assert not list(cache.folder.glob(".*.partial"))


@pytest.mark.parametrize("why", [errno.ELOOP, errno.EIO])
def test_a_file_that_its_disk_cannot_open_or_read_is_downloaded_instead(
    baked: Baked,
    place: Place,  # noqa: F811
    make_transfer: Callable[..., NodesTransfer],  # noqa: F811
    tmp_path: Path,
    why: int,
) -> None:
    cache, file, unreadable = baked.cache, baked.weights, tmp_path / "unreadable"
    unreadable.symlink_to(unreadable if why == errno.ELOOP else "/proc/self/mem")  # nothing lies at address 0
    with pytest.raises(OSError, match=os.strerror(why)):
        unreadable.open("rb", buffering=0).read(1)
    with Proxy(place.address) as proxy:
        task = make_transfer(finds=lambda _: unreadable).download(
            place.to_read(proxy, file), file, cache.place(file.sha256), durable=True
        )
        assert ended(task) is None
    assert cache.place(file.sha256).read_bytes() == baked.content
    assert not list(cache.folder.glob(".*.partial"))


def test_where_a_copy_cannot_be_written_the_error_is_that_of_the_place(
    baked: Baked,
    make_transfer: Callable[..., NodesTransfer],  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_transfer()._new_carrier().copy(baked.weights, baked.place, tmp_path / "file" / "w")


@pytest.mark.parametrize("there", ["nothing", "a shorter file", "a folder"])
def test_what_the_cache_that_is_only_read_does_not_have_as_a_whole_is_not_looked_at(baked: Baked, there: str) -> None:
    baked.place.unlink()
    if there == "a shorter file":
        baked.place.write_bytes(baked.content[:-1])
    elif there == "a folder":
        baked.place.mkdir()
    assert baked.cache.unchecked(baked.weights) is None


def test_a_transfer_that_was_stopped_begins_no_copy(
    baked: Baked,
    make_transfer: Callable[..., NodesTransfer],  # noqa: F811
) -> None:
    cache, file = baked.cache, baked.weights
    carrier = make_transfer()._new_carrier()
    carrier.close()
    with pytest.raises(Unreachable, match="stopped"):
        carrier.copy(file, baked.place, cache.place(file.sha256))
    assert not cache.place(file.sha256).exists()
