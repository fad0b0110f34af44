"""Whether a file was written to its end, by its own format. Nothing is unpickled."""

import json
import struct
from collections.abc import Callable
from pathlib import PurePosixPath

Read = Callable[[int, int], bytes]
"""So many bytes of the file from an offset on; fewer where it ends."""

TORCH = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pth"})
ZIPS = TORCH | {".npz", ".zip"}
HEADER_BYTES_MAX = 100 * 2**20
JSON_BYTES_MAX = 64 * 2**20
OF_TORCH_BEFORE_ZIP = bytes.fromhex("8002 8a0a 6cfc9c46f920 6aa85019")
PICKLED, PICKLE_ENDS = b"\x80", b"."

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END_64, LOCATOR_64 = b"PK\x06\x06", b"PK\x06\x07"
END_BYTES, LOCATOR_64_BYTES, END_64_BYTES = 22, 20, 56


def is_whole(name: str, size: int, read: Read) -> bool:
    """Of a format that is not known here, nothing can be said: True."""
    ending = PurePosixPath(name).suffix.lower()
    if ending == ".safetensors":
        return _is_safetensors(size, read)
    if ending == ".json":
        return _is_json(size, read)
    if ending in ZIPS:
        return _is_zip_or_pickle(size, read)
    return True


def _is_safetensors(size: int, read: Read) -> bool:
    """https://github.com/huggingface/safetensors#format: 8 bytes of length, a header in JSON, then the tensors up to the end."""
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


def _is_zip_or_pickle(size: int, read: Read) -> bool:
    """What torch.save writes is a zip file, and was a row of pickles before that; pickle.dump writes one that ends in a full stop."""
    begins = read(0, 14)
    if begins[:4] == LOCAL:
        return _is_zip(size, read)
    if begins == OF_TORCH_BEFORE_ZIP:
        return True
    return begins[:1] == PICKLED and size > 1 and read(size - 1, 1) == PICKLE_ENDS


def _is_zip(size: int, read: Read) -> bool:
    """APPNOTE.TXT 4.3: the directory ends where the record of its end begins, which is the last of the file."""
    at = size - END_BYTES
    if at < len(LOCAL):
        return False
    end = read(at, END_BYTES)
    if end[:4] != END or end[20:] != b"\0\0":
        return False
    directory_bytes, directory = struct.unpack("<II", end[12:20])
    if read(at - LOCATOR_64_BYTES, 4) == LOCATOR_64:
        at = struct.unpack("<Q", read(at - LOCATOR_64_BYTES, LOCATOR_64_BYTES)[8:16])[0]
        end = read(at, END_64_BYTES)
        if end[:4] != END_64:
            return False
        directory_bytes, directory = struct.unpack("<QQ", end[40:56])
    return directory + directory_bytes == at and read(directory, 4) in (CENTRAL, end[:4])
