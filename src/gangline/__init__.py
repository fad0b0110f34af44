"""Gangline trains Stable Diffusion on GPUs that can vanish at any moment."""

from typing import TYPE_CHECKING, Any

from gangline.version import VERSION as __version__

if TYPE_CHECKING:
    from gangline.core.specs.fields import FilesBase, HubBase
    from gangline.core.specs.lora import LoraSpec
    from gangline.core.specs.scratch import ScratchSpec
    from gangline.wire.client import Client

    train_lora: Any  # its types are in its module, which imports this one

__all__ = ["Client", "FilesBase", "HubBase", "LoraSpec", "ScratchSpec", "__version__", "train_lora"]

_FROM = {
    "Client": "gangline.wire.client",
    "FilesBase": "gangline.core.specs.fields",
    "HubBase": "gangline.core.specs.fields",
    "LoraSpec": "gangline.core.specs.lora",
    "ScratchSpec": "gangline.core.specs.scratch",
    "train_lora": "gangline.cli.jobs.places.python",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a trainer that imports the package does not need HTTP."""
    if name not in _FROM:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FROM[name]), name)
