"""Decide whether a file was written to its end, by its own format. Nothing is unpickled.

Files that the known libraries write are recognised by name and must be complete. A script's other files may be anything, so they are
checked only if their format identifies itself.
"""

import json
import re
import struct
from collections.abc import Callable
from pathlib import PurePosixPath

Read = Callable[[int, int], bytes]
"""Takes an offset and a count; returns that many bytes of the file, fewer at its end."""

ZIPS = frozenset({".bin", ".ckpt", ".npz", ".pkl", ".pt", ".pth", ".zip"})
OF_LIBRARIES = re.compile(
    r"(optimizer|scheduler|sampler|dl_state_dict|custom_checkpoint|random_states|rng_state|scaler|training_args|pytorch_model"
    r"|diffusion_pytorch_model|adapter_model)[^/]*\.(bin|pkl|pt|pth)|[^/]*\.ckpt"
)
STATES = re.compile(r"(trainer_state|train_state|manifest|[^/]*\.index)\.json")
HEADER_BYTES_MAX = 100 * 2**20
JSON_BYTES_MAX = 64 * 2**20
OF_TORCH_BEFORE_ZIP = bytes.fromhex("8002 8a0a 6cfc9c46f920 6aa85019")
PICKLED, PICKLE_ENDS = b"\x80", b"."

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END_64, LOCATOR_64 = b"PK\x06\x06", b"PK\x06\x07"
END_BYTES, LOCATOR_64_BYTES, END_64_BYTES = 22, 20, 56
COMMENT_BYTES_MAX = 65_535


def is_complete_file(path: str, size: int, read: Read) -> bool:
    """Return whether the file is complete; True for unknown formats, False if it shrinks while it is read."""
    try:
        return _is_complete(path, size, read)
    except struct.error:
        return False


def _is_complete(path: str, size: int, read: Read) -> bool:
    name = PurePosixPath(path).name
    ending = PurePosixPath(path).suffix.lower()
    if ending == ".safetensors":
        return _is_safetensors(size, read)
    if STATES.fullmatch(name):
        return _is_json(size, read)
    if ending in ZIPS and read(0, 4) == LOCAL:
        return _is_zip(size, read)
    return OF_LIBRARIES.fullmatch(name) is None or _is_pickle(size, read)


def _is_safetensors(size: int, read: Read) -> bool:
    """Check 8 bytes with the header's length, a JSON header, then tensors to the end
    (https://github.com/huggingface/safetensors#format)."""
    if size < 8:
        return False
    length = struct.unpack("<Q", read(0, 8))[0]
    if length > min(HEADER_BYTES_MAX, size - 8):
        return False
    try:
        header = json.loads(read(8, length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return 8 + length + max(ends, default=0) == size
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def _is_json(size: int, read: Read) -> bool:
    try:
        return size > JSON_BYTES_MAX or bool(json.loads(read(0, size)) is not None)
    except ValueError:
        return False


def _is_pickle(size: int, read: Read) -> bool:
    """Accept what torch.save wrote before it wrote zip files, a series of pickles whose end cannot be checked, and what pickle.dump
    writes."""
    if read(0, len(OF_TORCH_BEFORE_ZIP)) == OF_TORCH_BEFORE_ZIP:
        return True
    return read(0, 1) == PICKLED and size > 1 and read(size - 1, 1) == PICKLE_ENDS


def _is_zip(size: int, read: Read) -> bool:
    """Check that the central directory ends where its end record begins, and that only a comment follows that record (APPNOTE.TXT 4.3)."""
    first = max(0, size - END_BYTES - COMMENT_BYTES_MAX)
    tail = read(first, size - first)
    at = tail.rfind(END)
    while at >= 0 and at + END_BYTES + int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail):
        at = tail.rfind(END, 0, at)
    if at < 0 or at + END_BYTES > len(tail):
        return False
    directory_bytes, directory = struct.unpack("<II", tail[at + 12 : at + 20])
    at += first
    if read(at - LOCATOR_64_BYTES, 4) == LOCATOR_64:
        at = struct.unpack("<Q", read(at - LOCATOR_64_BYTES, LOCATOR_64_BYTES)[8:16])[0]
        end = read(at, END_64_BYTES)
        if end[:4] != END_64:
            return False
        directory_bytes, directory = struct.unpack("<QQ", end[40:56])
    return directory + directory_bytes == at and (not directory_bytes or read(directory, 4) == CENTRAL)
