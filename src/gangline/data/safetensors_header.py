"""The header of a safetensors file, read without loading a tensor; and files that are something else, refused by name."""

import json
import struct
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.families import Header, Tensor

PICKLES = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
HEADER_BYTES_MAX = 32 * 2**20
CONVERT = "convert it to safetensors where you trust it, or get the .safetensors that most authors publish beside it"


def read_header(path: Path) -> Header:
    """Names, dtypes, shapes and places of the tensors of `path`, whose bytes are all there.

    Raises `BadInput` that names the file: a pickle, cut off, or no safetensors at all.
    """
    refuse_pickle(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(HEADER_BYTES_MAX, size - 8):
                raise _no_safetensors(path.name, start)
            value = json.loads(file.read(length))
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise _no_safetensors(path.name) from None
    return _header(path.name, value, 8 + length, size)


def refuse_pickle(path: Path) -> None:
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{path.name} is a pickle, which can run any program when it is loaded", hint=CONVERT)


def _no_safetensors(name: str, start: bytes = b"") -> BadInput:
    if start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return BadInput(f"{name} is a pickle under another name", hint=CONVERT)
    if start.startswith(b"GGUF"):
        return BadInput(f"{name} is in GGUF, which is for rendering only", hint="give the full model in safetensors")
    return BadInput(f"{name} is no safetensors file, or is damaged", hint="get it again")


def _header(name: str, value: Any, data_start: int, size: int) -> Header:
    try:
        metadata = {str(key): str(text) for key, text in value.pop("__metadata__", {}).items()}
        tensors = {tensor: _tensor(entry) for tensor, entry in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _no_safetensors(name) from None
    end = data_start + max((tensor.end for tensor in tensors.values()), default=0)
    if end > size:
        raise BadInput(f"{name} is cut off: {size} of {end} bytes are there", hint="get it again")
    return Header(name=name, data_start=data_start, tensors=tensors, metadata=metadata)


def _tensor(entry: Any) -> Tensor:
    start, end = (int(place) for place in entry["data_offsets"])
    if not 0 <= start <= end:
        raise ValueError("a tensor ends before it begins")
    return Tensor(dtype=str(entry["dtype"]), shape=tuple(int(side) for side in entry["shape"]), start=start, end=end)


def read_values(path: Path, header: Header, name: str) -> list[float]:
    """The numbers of one small tensor; none where it is in neither 16 nor 32 bits."""
    tensor = header.tensors[name]
    code = {"F16": "e", "BF16": "f", "F32": "f"}.get(tensor.dtype)
    if code is None:
        return []
    with path.open("rb") as file:
        file.seek(header.data_start + tensor.start)
        content = file.read(tensor.end - tensor.start)
    if tensor.dtype == "BF16":
        content = b"".join(b"\0\0" + content[at : at + 2] for at in range(0, len(content), 2))
    return [value for (value,) in struct.iter_unpack(f"<{code}", content)]
