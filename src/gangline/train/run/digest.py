"""Hashes of files and of results. Two results are equal if names, types, shapes and bytes of their tensors are, whatever else is in their
files."""

import hashlib
from pathlib import Path

from safetensors import deserialize

from gangline.core.files import File


def tensors_digest(path: Path) -> str:
    """Return the SHA-256 over every tensor of a safetensors file, sorted by name."""
    total = hashlib.sha256()
    for name, tensor in sorted(deserialize(path.read_bytes()), key=lambda item: item[0]):
        total.update(f"{name} {tensor['dtype']} {list(tensor['shape'])}\n".encode())
        total.update(tensor["data"])
    return total.hexdigest()


def hashed_file(path: Path, name: str) -> File:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path=name, bytes=path.stat().st_size, sha256=sha256)
