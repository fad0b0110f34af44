"""Read the header of a safetensors file without loading a tensor, and refuse pickles by name."""

import json
import struct
from pathlib import Path

from gangline.core.errors import BadInput
from gangline.core.models.recognition import CONVERT, Header, header_of, no_safetensors

PICKLES = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
HEADER_BYTES_MAX = 32 * 2**20


def read_header(path: Path) -> Header:
    """Return names, dtypes, shapes and offsets of the tensors in `path`, whose size is checked.

    Raise `BadInput` that names the file if it is a pickle, truncated, or not a safetensors file.
    """
    refuse_pickle(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(HEADER_BYTES_MAX, size - 8):
                raise no_safetensors(path.name, start)
            value = json.loads(file.read(length))
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise no_safetensors(path.name) from None
    return header_of(path.name, value, 8 + length, size)


def refuse_pickle(path: Path) -> None:
    """Raise `BadInput` if the file's name is that of a pickle."""
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{path.name} is a pickle, which can run any program when it is loaded", hint=CONVERT)


def read_values(path: Path, header: Header, name: str) -> list[float]:
    """Return the numbers of one small tensor; empty unless it is float16, bfloat16 or float32."""
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
