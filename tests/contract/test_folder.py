"""A folder as an object store for one who is at work in it: names are taken once, what comes down is what went up."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from gangline.adapters.objects.folder import COMING, DEAD_S, FolderObjects, FolderTransfer
from gangline.core.errors import BadInput, Damaged, NotFound, Unreachable, UserError
from gangline.core.files import PART_BYTES, File, Grant, Signed
from tests.conftest import file_at


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "store")


def names(objects: FolderObjects) -> set[str]:
    return set(objects.list(""))


def test_of_many_who_take_a_name_at_once_one_has_it(objects: FolderObjects) -> None:
    def take(number: int) -> bool:
        try:
            objects.write("claims/1.json", str(number).encode())
        except BadInput:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(take, range(40)))
    assert taken.count(True) == 1 and objects.read("claims/1.json") == str(taken.index(True)).encode()


def test_a_disk_without_hard_links_takes_names_once_too(
    objects: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", none)
    objects.write("a", b"first")
    with pytest.raises(BadInput):
        objects.write("a", b"second")
    assert objects.read("a") == b"first" and names(objects) == {"a"}


@pytest.mark.parametrize("size", [0, 1000, PART_BYTES + 1])
def test_what_comes_down_is_what_went_up(objects: FolderObjects, tmp_path: Path, size: int) -> None:
    (tmp_path / "w").write_bytes(Random(0).randbytes(size))
    file, transfer = file_at(tmp_path / "w", tmp_path), FolderTransfer(objects)
    described = transfer.describe(file, tmp_path / "w").result
    signed = objects.sign_put("deep/w", bytes=size, sha256=file.sha256, now_ms=0, seconds=1)
    assert transfer.upload(Grant(parts=(signed,)), described, tmp_path / "w").result is None
    assert objects.read_back("deep/w") == file.sha256 and names(objects) == {"deep/w"}
    assert transfer.download(signed, file, tmp_path / "back", durable=True).result is None
    assert (tmp_path / "back").read_bytes() == (tmp_path / "w").read_bytes()


def test_what_was_damaged_or_is_gone_does_not_come_down(objects: FolderObjects, tmp_path: Path) -> None:
    objects.write("w", b"other bytes")
    transfer, file = FolderTransfer(objects), File(path="w", bytes=11, sha256="0" * 64)
    for key, error in (("w", Damaged), ("gone", NotFound)):
        signed = objects.sign_get(key, now_ms=0, seconds=1)
        with pytest.raises(error):
            _ = transfer.download(signed, file, tmp_path / "back", durable=True).result
        assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("folder", Damaged),
        (OSError(errno.EIO, "Input/output error"), Damaged),
        (OSError(errno.ESTALE, "Stale file handle"), Unreachable),
        (PermissionError(errno.EACCES, "Permission denied"), UserError),
    ],
)
def test_a_file_that_cannot_be_read_is_told_from_a_disk_that_is_away(
    objects: FolderObjects,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str | OSError,
    error: type[Exception],
) -> None:
    objects.write("w", b"bytes")
    opened = Path.open
    if isinstance(trouble, OSError):

        def refuse(path: Path, mode: str = "r") -> object:
            if path == objects.root / "w":
                raise trouble
            return opened(path, mode)

        monkeypatch.setattr(Path, "open", refuse)
    else:
        (objects.root / "w").unlink()
        (objects.root / "w").mkdir()
    task = FolderTransfer(objects).download(
        Signed(url="w"), File(path="w", bytes=5, sha256="0" * 64), tmp_path / "back", durable=True
    )
    with pytest.raises(error):
        _ = task.result
    assert not (tmp_path / "back").exists()


def test_what_is_in_the_way_is_said(objects: FolderObjects) -> None:
    (objects.root / "runs" / "begun.json").mkdir(parents=True)
    with pytest.raises(Damaged, match="is a folder"):
        objects.read("runs/begun.json")
    (objects.root / "claims").touch()
    with pytest.raises(Unreachable, match="cannot be used"):
        objects.write("claims/1.json", b"{}")


def test_half_a_file_has_no_name_that_is_listed(objects: FolderObjects) -> None:
    objects.write("a/b", b"x")
    half = objects.root / COMING / "1"
    half.write_bytes(b"half")
    assert names(objects) == {"a/b"}
    objects.delete(["a/b", "gone"])
    assert names(objects) == set() and {path.name for path in objects.root.iterdir()} == {COMING}


def test_what_comes_no_more_is_swept(objects: FolderObjects) -> None:
    objects.write("a/b", b"x")
    half = objects.root / COMING / "1"
    half.write_bytes(b"half")
    now_s = half.stat().st_mtime
    objects.sweep(now_s + DEAD_S)
    assert half.exists()
    objects.sweep(now_s + DEAD_S + 1)
    assert not half.exists() and names(objects) == {"a/b"}
