"""A safetensors file is known by its header; what is something else is refused by name, and nothing is unpickled."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.models.recognition import FIRST_CONV, TELLS_V_OF_SD2
from gangline.data.bases import describe_base, files_of_base, files_of_vae
from gangline.data.safetensors_header import HEADER_BYTES_MAX, read_header, read_values
from tests.conftest import BASE


def write(path: Path, entries: dict[str, Any], data: bytes = b"") -> Path:
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_names_shapes_and_metadata_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.safetensors", {"__metadata__": {"format": "pt"}, "w": entry("F32", [1, 2], 0, 8)}, b"\0" * 8
    )
    header = read_header(path)
    assert (header.name, header.metadata, header.tensors["w"].shape) == ("a.safetensors", {"format": "pt"}, (1, 2))


@pytest.mark.parametrize(
    ("dtype", "content"),
    [("F16", struct.pack("<2e", 0.5, -2)), ("F32", struct.pack("<2f", 0.5, -2)), ("BF16", b"\0\x3f\0\xc0")],
)
def test_the_numbers_of_a_small_tensor_are_read_in_each_precision(tmp_path: Path, dtype: str, content: bytes) -> None:
    entries = {"before": entry("U8", [3], 0, 3), "w": entry(dtype, [2], 3, 3 + len(content))}
    path = write(tmp_path / "a.safetensors", entries, b"abc" + content)
    assert read_values(path, read_header(path), "w") == [0.5, -2]


def test_a_header_as_long_as_a_pickles_first_bytes_is_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = json.dumps({}).encode().ljust(0x0280)
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert path.read_bytes().startswith(b"\x80\x02")
    assert read_header(path).tensors == {}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("m.ckpt", b"", "m.ckpt is a pickle, which can run any program"),
        ("m.bin", b"", "m.bin is a pickle"),
        ("m.PT", b"", "m.PT is a pickle"),
        ("m.safetensors", b"PK\x03\x04rest of a zip", "m.safetensors is a pickle under another name"),
        ("m.safetensors", b"\x80\x04\x95rest of it", "m.safetensors is a pickle under another name"),
        ("m.safetensors", b"GGUF\x03\0\0\0\0\0\0\0", "m.safetensors is in GGUF"),
        ("m.safetensors", b"", "m.safetensors is not a safetensors file"),
        ("m.safetensors", b"<html>not found</html>", "m.safetensors is not a safetensors file"),
        ("m.safetensors", struct.pack("<Q", 4) + b"[1]x", "m.safetensors is not a safetensors file"),
        ("m.safetensors", struct.pack("<Q", 50_000) + b"[" * 50_000, "m.safetensors is not a safetensors file"),
        ("m.safetensors", struct.pack("<Q", 20) + b'{"w":{"dtype":"F"}} ', "m.safetensors is not a safetensors file"),
        ("m.safetensors", struct.pack("<Q", HEADER_BYTES_MAX + 1) + b"{}", "m.safetensors is not a safetensors file"),
    ],
)
def test_what_is_something_else_is_refused_by_name(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=says) as refused:
        read_header(tmp_path / name)
    assert refused.value.hint


def test_a_file_that_was_cut_off_says_how_much_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"w": entry("F32", [4], 0, 16)}, b"\0" * 10)
    whole = path.stat().st_size + 6
    with pytest.raises(BadInput, match=rf"m\.safetensors is cut off: it has {whole - 6} of {whole} bytes"):
        read_header(path)


# A base as it is handed in


@pytest.mark.parametrize(("size", "prediction"), [(0.2, "v_prediction"), (0.05, "epsilon")])
def test_the_weights_of_stable_diffusion_2_tell_what_they_predict(tmp_path: Path, size: float, prediction: str) -> None:
    entries = {FIRST_CONV: entry("F16", [320, 4, 3, 3], 0, 0), "cond_stage_model.model.x": entry("F16", [0], 0, 0)}
    entries |= {TELLS_V_OF_SD2: entry("F32", [4], 0, 16)}
    path = write(tmp_path / "m.safetensors", entries, struct.pack("<4f", size, -size, size, -size))
    assert describe_base(path).prediction_type == prediction
    assert "spread" in describe_base(tmp_path).because


def test_weights_of_a_dtype_that_is_not_read_leave_the_prediction_open(tmp_path: Path) -> None:
    entries = {FIRST_CONV: entry("F16", [320, 4, 3, 3], 0, 0), "cond_stage_model.model.x": entry("F16", [0], 0, 0)}
    without = describe_base(write(tmp_path / "without.safetensors", entries, b""))
    path = write(tmp_path / "m.safetensors", entries | {TELLS_V_OF_SD2: entry("F64", [1], 0, 8)}, b"\0" * 8)
    assert describe_base(path).prediction_type == without.prediction_type


def test_a_folder_of_several_models_asks_which(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, {})
    with pytest.raises(BadInput, match=r"holds 2 models: a\.safetensors, b\.safetensors"):
        describe_base(tmp_path)


def test_a_folder_with_a_pickle_alone_is_refused_by_the_pickles_name(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_bytes(b"PK")
    with pytest.raises(BadInput, match=r"model\.ckpt is a pickle"):
        describe_base(tmp_path)


def test_a_base_that_lacks_parts_says_which(tmp_path: Path) -> None:
    copy_of_base(tmp_path)
    for part in ("text_encoder_2", "vae"):
        for file in (tmp_path / part).iterdir():
            file.unlink()
    with pytest.raises(BadInput, match="lacks text_encoder_2, vae"):
        files_of_base(tmp_path)


def test_a_part_in_pickles_is_refused_by_name(tmp_path: Path) -> None:
    copy_of_base(tmp_path)
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").rename(
        tmp_path / "unet" / "diffusion_pytorch_model.bin"
    )
    with pytest.raises(BadInput, match="lacks unet") as refused:
        files_of_base(tmp_path)
    assert refused.value.hint.startswith("unet/diffusion_pytorch_model.bin is a pickle")


def copy_of_base(to: Path) -> None:
    for file in BASE.rglob("*"):
        if file.is_file():
            (to / file.relative_to(BASE)).parent.mkdir(exist_ok=True)
            (to / file.relative_to(BASE)).write_bytes(file.read_bytes())


def test_the_files_of_a_vae_are_those_of_its_folder_or_of_a_base(tmp_path: Path) -> None:
    assert {file.name for file in files_of_vae(BASE / "vae")} == {"config.json", "diffusion_pytorch_model.safetensors"}
    assert {file.parent.name for file in files_of_vae(BASE)} == {"vae"}
    single = write(tmp_path / "vae.safetensors", {})
    assert files_of_vae(single) == files_of_vae(tmp_path) == [single]
    with pytest.raises(BadInput, match="holds no VAE"):
        files_of_vae(BASE / "tokenizer")
