"""Equal results: the same names, types, shapes and tensor bytes, whatever else a file says."""

import hashlib
from pathlib import Path

from safetensors import deserialize


def tensors_digest(path: Path) -> str:
    """SHA-256 over every tensor of a safetensors file, in the order of their names."""
    total = hashlib.sha256()
    for name, tensor in sorted(deserialize(path.read_bytes()), key=lambda item: item[0]):
        total.update(f"{name} {tensor['dtype']} {list(tensor['shape'])}\n".encode())
        total.update(tensor["data"])
    return total.hexdigest()
