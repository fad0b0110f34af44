"""The hub that models are fetched from, with the environment read as the hub's own client reads it."""

from typing import TYPE_CHECKING

from gangline.compose.settings import hub_home, read_hub_settings
from gangline.core.models.bases import ModelRole
from gangline.core.server.programs import HubSettings
from gangline.core.specs.fields import HubBase

if TYPE_CHECKING:
    from gangline.adapters.hub import HuggingFaceHub
    from gangline.service.content.on_hub import OnHub


def make_hub(settings: HubSettings, token: str = "") -> "HuggingFaceHub":
    """Make the hub that the settings name. `token` is for where they have none."""
    from gangline.adapters.hub import ENDPOINT, HuggingFaceHub

    endpoint = "" if settings.offline else settings.endpoint or ENDPOINT
    return HuggingFaceHub(endpoint, settings.token or token)


def look_up_for_user(model: HubBase, role: ModelRole, *, whole: bool = True) -> "OnHub":
    """What a model on the hub is, asked with the token of who types the command. Raises as `look_up` does."""
    from gangline.service.content.on_hub import look_up

    return look_up(make_hub(read_hub_settings(), _users_token()), model, role, whole=whole)


def _users_token() -> str:
    """The one that the hub's own client keeps after a login; empty where nobody has logged in."""
    try:
        return (hub_home() / "token").read_text().strip()
    except (OSError, ValueError):
        return ""
