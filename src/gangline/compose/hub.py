"""The hub that models are fetched from, with the environment read as the hub's own client reads it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.compose.settings import strip_secrets

if TYPE_CHECKING:
    from gangline.adapters.hub import HuggingFaceHub


def make_hub() -> "HuggingFaceHub":
    """Make the hub that the environment names, as its own client reads it."""
    from gangline.adapters.hub import ENDPOINT, HuggingFaceHub

    strip_secrets("HF_TOKEN")
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    endpoint = "" if offline else os.environ.get("HF_ENDPOINT") or ENDPOINT
    return HuggingFaceHub(endpoint, os.environ.get("HF_TOKEN", ""))


def users_cache() -> Path:
    """Return where the hub's own client keeps what it fetched."""
    hub_home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or hub_home / "hub")
