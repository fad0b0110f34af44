"""What the environment of a user says: about this machine's hardware, in the variables of CUDA and OpenMP, and secrets of commands."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangline.core.errors import BadInput

if TYPE_CHECKING:
    from gangline.adapters.cards import Card


def shown_cards() -> "list[Card]":
    """Return the GPUs that the environment shows to trainers."""
    from gangline.adapters.cards import list_cards, visible_cards

    return visible_cards(list_cards(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def shown_gpu() -> dict[str, str]:
    """Describe the first GPU that the environment shows to trainers; empty where there is none."""
    from gangline.adapters.cards import describe_gpu

    return describe_gpu(shown_cards())


def trainer_threads() -> str:
    """Return how many threads a trainer has on the CPU; its results depend on it."""
    return os.environ.get("OMP_NUM_THREADS", "1")


def own_secrets(names: Sequence[str]) -> dict[str, str]:
    """Return the values of a command's secrets as the environment of this user has them. Raises `BadInput`."""
    lacking = [name for name in names if name not in os.environ]
    if lacking:
        raise BadInput(f"the secret {lacking[0]} is not set", hint="here secrets are taken from your environment")
    return {name: os.environ[name] for name in names}
