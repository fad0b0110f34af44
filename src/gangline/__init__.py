"""Gangline trains Stable Diffusion on GPUs that can vanish at any moment."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.core.lora_spec import LoraSpec
    from gangline.core.scratch import ScratchSpec
    from gangline.core.spec_fields import FilesBase, HubBase
    from gangline.wire.client import Client

__version__ = "0.1.0"
__all__ = ["Client", "FilesBase", "HubBase", "LoraSpec", "ScratchSpec"]

_FROM = {
    "Client": "gangline.wire.client",
    "FilesBase": "gangline.core.spec_fields",
    "HubBase": "gangline.core.spec_fields",
    "LoraSpec": "gangline.core.lora_spec",
    "ScratchSpec": "gangline.core.scratch",
}


def __getattr__(name: str) -> Any:
    """Loaded when first used: a trainer that imports the package has no need of HTTP."""
    if name not in _FROM:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FROM[name]), name)
