"""Digests by which models are equal if their weights are, whatever file they came from."""

from hashlib import sha256

import torch

from gangline.train.model.base import LoadedBase


def weights_digest(module: torch.nn.Module) -> str:
    """Return the SHA-256 of the weights in float32, sorted by name: the same for every file format."""
    total = sha256()
    for name, tensor in sorted(module.state_dict().items()):
        total.update(f"{name} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def text_encoders_digest(base: LoadedBase) -> str:
    """Return one SHA-256 over the digests of all text encoders, in the family's order."""
    return sha256("".join(map(weights_digest, base.text_encoders)).encode()).hexdigest()
