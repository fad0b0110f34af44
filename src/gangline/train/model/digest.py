"""Models that are equal: by their weights, whatever file they came from."""

from hashlib import sha256

import torch

from gangline.train.model.base import LoadedBase


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 of its weights in float32, by their names: the same from any kind of file."""
    total = sha256()
    for name, tensor in sorted(module.state_dict().items()):
        total.update(f"{name} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def text_encoders_digest(base: LoadedBase) -> str:
    return sha256("".join(map(weights_digest, base.text_encoders)).encode()).hexdigest()
