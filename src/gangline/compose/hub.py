"""The hub that models are fetched from, with the environment read as the hub's own client reads it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.compose.settings import strip_secrets
from gangline.core.models.bases import ModelRole
from gangline.core.specs.fields import HubBase

if TYPE_CHECKING:
    from gangline.adapters.hub import HuggingFaceHub
    from gangline.service.content.on_hub import OnHub


def make_hub(token: str = "") -> "HuggingFaceHub":
    """Make the hub that the environment names, as its own client reads it. `token` is for where that has none."""
    from gangline.adapters.hub import ENDPOINT, HuggingFaceHub

    strip_secrets("HF_TOKEN")
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    endpoint = "" if offline else os.environ.get("HF_ENDPOINT") or ENDPOINT
    return HuggingFaceHub(endpoint, os.environ.get("HF_TOKEN") or token)


def users_cache() -> Path:
    """Return where the hub's own client keeps what it fetched."""
    return Path(os.environ.get("HF_HUB_CACHE") or _hub_home() / "hub")


def _hub_home() -> Path:
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def look_up_for_user(model: HubBase, role: ModelRole, *, whole: bool = True) -> "OnHub":
    """What a model on the hub is, asked with the token of who types the command. Raises as `look_up` does."""
    from gangline.service.content.on_hub import look_up

    return look_up(make_hub(_users_token()), model, role, whole=whole)


def _users_token() -> str:
    """The one that the hub's own client keeps after a login; empty where nobody has logged in."""
    try:
        return (_hub_home() / "token").read_text().strip()
    except (OSError, ValueError):
        return ""
