"""Write the tensors of a checkpoint from front to back, and announce each part of a file that is complete: its upload begins while the rest
is written.

The file has the bytes that safetensors itself would write. It is hashed on the way, as a whole and in parts, so that nobody has to read it
again.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from gangline.core.files import PART_BYTES, File
from gangline.core.runs.contract import PARTS, Part
from gangline.train.tensors import Tensors

DTYPES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The names of dtypes in the format, in the order in which safetensors writes their tensors."""
ALIGNED = 8
PIECE_BYTES = 4 * 2**20


def write_streamed(tensors: Tensors, path: Path, rank: int) -> File:
    """Write tensors of the CPU to a new file. `rank` names the list of parts beside it, to which other files of the rank are added."""
    order = list(DTYPES)
    names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
    pieces = [_header(tensors, names), *(_bytes_of(tensors[name]) for name in names)]
    size = sum(map(len, pieces))
    whole, part = hashlib.sha256(), hashlib.sha256()
    with (
        path.open("wb", buffering=0) as file,
        (path.parent / parts_name(rank)).open("a") as told,
        ThreadPoolExecutor(1, thread_name_prefix="hash") as beside,
    ):
        at, hashing = 0, None
        for piece in _cut(pieces):
            _wait(hashing)
            hashing = beside.submit(whole.update, piece)  # beside the part's, as each takes as long as the write
            _write(file, piece)
            part.update(piece)
            at += len(piece)
            if size > PART_BYTES and (at % PART_BYTES == 0 or at == size):
                made = Part(path=path.name, bytes=size, sha256=part.hexdigest())
                told.write(json.dumps(made.to_json()) + "\n")
                told.flush()
                part = hashlib.sha256()
        _wait(hashing)
    return File(path=path.name, bytes=size, sha256=whole.hexdigest())


def parts_name(rank: int) -> str:
    return PARTS.replace("*", f"{rank:05d}")


def _header(tensors: Tensors, names: list[str]) -> memoryview:
    header, at = dict[str, Any](), 0
    for name in names:
        tensor = tensors[name]
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNED)
    return memoryview(struct.pack("<Q", len(text)) + text)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat: Any = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(flat)


def _cut(pieces: list[memoryview]) -> Iterator[memoryview]:
    """Yield the bytes in short pieces, none of which spans two parts."""
    at = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            stop = min(len(piece), start + PIECE_BYTES, start + PART_BYTES - at % PART_BYTES)
            yield piece[start:stop]
            at += stop - start
            start = stop


def _write(file: Any, piece: memoryview) -> None:
    while piece:
        piece = piece[file.write(piece) :]


def _wait(hashing: "Future[None] | None") -> None:
    if hashing:
        hashing.result()
