"""A file that was cut anywhere is never taken for a complete one."""

import json
import pickle  # noqa: TID251 - written here, never read
import random
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gangline.core.command.completeness import is_complete_file


def whole(name: str, content: bytes) -> bool:
    return is_complete_file(name, len(content), lambda at, count: content[at : at + count])


def written(folder: Path, name: str) -> bytes:
    """As the libraries write it."""
    path, tensors = folder / name, {"a": torch.arange(600.0), "b": torch.zeros(3, dtype=torch.bfloat16)}
    match path.suffix:
        case ".safetensors":
            save_file(tensors, path, metadata={"format": "pt"})
        case ".json":
            path.write_text(json.dumps({"global_step": 7}))
        case ".pickle":
            path = path.with_suffix(".pkl")
            path.write_bytes(pickle.dumps(random.getstate()))
        case _:
            torch.save(tensors, path)
    return path.read_bytes()


NAMES = [
    "a.safetensors",
    "optimizer.bin",
    "scaler.pt",
    "rng_state.pth",
    "random_states_0.pkl",
    "a.ckpt",
    "trainer_state.json",
    "custom_checkpoint_0.pickle",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_cut_is_not_whole_and_what_was_not_is(tmp_path: Path, name: str) -> None:
    content, called = written(tmp_path, name), name.replace(".pickle", ".pkl")
    assert whole(called, content)
    cuts = {0, 1, 7, 8, 9, len(content) // 2, len(content) - 23, len(content) - 2, len(content) - 1}
    assert [cut for cut in sorted(cuts) if cut >= 0 and whole(called, content[:cut])] == []


@pytest.mark.parametrize("name", ["a.safetensors", "optimizer.bin"])
def test_what_has_its_length_but_not_yet_its_end_is_not_whole(tmp_path: Path, name: str) -> None:
    """Room was taken, and the bytes come."""
    content = written(tmp_path, name)
    if name == "optimizer.bin":
        assert not whole(name, content[:-100] + bytes(100))
    assert not whole(name, bytes(len(content)))


def test_a_zip_of_more_than_four_gigabytes_has_another_end() -> None:
    directory = b"PK\x01\x02" + bytes(60)
    offset = 5 * 2**30
    end_64 = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, len(directory), offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, offset + len(directory), 1)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), 0xFFFFFFFF, 0)
    tail = directory + end_64 + locator + end

    def read(at: int, count: int) -> bytes:
        """Nothing but zeros between the first bytes and the last."""
        if at == 0:
            return b"PK\x03\x04"[:count]
        zeros = bytes(max(0, min(count, offset - at)))
        return zeros + tail[max(0, at - offset) : max(0, at + count - offset)]

    assert is_complete_file("a.bin", offset + len(tail), read)
    assert not is_complete_file("a.bin", offset + len(tail) - 1, read)


def test_a_zip_by_another_writer_is_whole_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
        file.writestr("x", b"y" * 100)
    assert whole("a.pt", (tmp_path / "a.pt").read_bytes())


def test_torchs_older_format_is_taken_as_it_is(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.bin", _use_new_zipfile_serialization=False)
    assert whole("a.bin", (tmp_path / "a.bin").read_bytes())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b""),
        ("lines.json", b"{}\n{}\n"),
        ("tokenizer.bin", b"raw"),
        ("table.pkl", b"compressed"),
        ("null.json", b"null"),
    ],
)
def test_of_a_scripts_own_files_nothing_is_said(name: str, content: bytes) -> None:
    assert whole(name, content)


def test_a_zip_may_end_in_a_comment(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
        file.writestr("x", b"y" * 100)
        file.comment = b"PK made by hand"
    content = (tmp_path / "a.pt").read_bytes()
    assert whole("a.pt", content) and not whole("a.pt", content[:-1])
