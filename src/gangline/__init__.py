"""Gangline trains Stable Diffusion on GPUs that can vanish at any moment."""

from typing import TYPE_CHECKING, Any

from gangline.version import VERSION as __version__

if TYPE_CHECKING:
    from gangline.cli.jobs.places.python import train_lora
    from gangline.compose.client import AsyncClient, Client
    from gangline.core.errors import (
        BadInput,
        Changed,
        Damaged,
        Denied,
        Forbidden,
        GanglineError,
        InProgress,
        JobFailed,
        NotFound,
        TooLarge,
        TooMany,
        TooSlow,
        Unreachable,
        UserError,
        WaitTimeout,
    )
    from gangline.core.parsing import InvalidSpec
    from gangline.core.specs.command import CommandSpec
    from gangline.core.specs.fields import FilesBase, HubBase
    from gangline.core.specs.lora import LoraSpec
    from gangline.core.specs.scratch import ScratchSpec

__all__ = [
    "AsyncClient",
    "BadInput",
    "Changed",
    "Client",
    "CommandSpec",
    "Damaged",
    "Denied",
    "FilesBase",
    "Forbidden",
    "GanglineError",
    "HubBase",
    "InProgress",
    "InvalidSpec",
    "JobFailed",
    "LoraSpec",
    "NotFound",
    "ScratchSpec",
    "TooLarge",
    "TooMany",
    "TooSlow",
    "Unreachable",
    "UserError",
    "WaitTimeout",
    "__version__",
    "train_lora",
]

_FROM = {
    "AsyncClient": "compose.client",
    "Client": "compose.client",
    "CommandSpec": "core.specs.command",
    "FilesBase": "core.specs.fields",
    "HubBase": "core.specs.fields",
    "InvalidSpec": "core.parsing",
    "LoraSpec": "core.specs.lora",
    "ScratchSpec": "core.specs.scratch",
    "train_lora": "cli.jobs.places.python",
}
"""Where each public name is; the others are errors."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a trainer that imports the package does not need HTTP."""
    if name not in __all__:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gangline.{_FROM.get(name, 'core.errors')}"), name)
